/*
 * Command lines of embps-train: one table for each model, read into one struct.
 */
#ifndef WORKER_TRAIN_TRAIN_OPTIONS_H
#define WORKER_TRAIN_TRAIN_OPTIONS_H

#include "common/options.h"
#include "proto/row_format.h"
#include "worker/train/model.h"

/* Effective options of a run. Texts are borrowed from argv. */
typedef struct psw_train_options {
    const psw_model_t *model;
    psc_option_list_t corpus;
    const char *out;
    const char *out_context; /* NULL: not wanted; so below */
    const char *save_vocab;
    const char *read_vocab;
    const char *log_json;
    const char *data;      /* local only */
    const char *form;      /* "matrix" or "plain" */
    const char *precision; /* of the tables: "f32", "bf16" or "f16" */
    const char *wire;      /* as given; what it says: */
    psp_format_t pull_format, push_format;
    const char *direct; /* "off" or "auto" */
    bool reads_direct;  /* it is "auto" */
    uint64_t dim, window, negative, min_count, epochs, seed;
    uint64_t batch_words;        /* 0: by the number of workers */
    uint64_t prefetch;           /* batches announced ahead */
    uint64_t threads;            /* local only; 0: one for each core */
    uint64_t memory;             /* local only; bytes */
    uint64_t cache;              /* of each worker; bytes; 0: none */
    uint64_t flush;              /* clocks */
    uint64_t checkpoint_batches; /* 0: no checkpoints */
    const char *checkpoints;     /* local only; their folder, NULL: none */
    const char *resume;          /* local only, as embps-server's; so keep */
    uint64_t keep;
    double sample, alpha;
    double timeout_s;          /* of servers; 0: none */
    bool plain;                /* form is "plain" */
    const char *staleness;     /* "async" or a number of clocks */
    uint32_t staleness_clocks; /* the same; EMBPS_ASYNC */
    bool binary, local, quiet;
} psw_train_options_t;

/* The models, in the order of the help; n_out gets their number. Static. */
const psw_model_t *const *psw_models(size_t *n_out);

/* The model of this name, or NULL. */
const psw_model_t *psw_model_find(const char *name);

/*
 * Parses argv[1..argc-1], the words behind the name of the model, and refuses what makes no sense
 * together. Errors: INVALID_ARGUMENT naming the option and the reason; NO_MEMORY.
 */
PSC_MUST_CHECK psc_status_t psw_train_options_parse(const psw_model_t *model, int argc,
                                                    char *const argv[],
                                                    psw_train_options_t *options_out,
                                                    psc_parse_result_t *result_out,
                                                    psc_error_t *error);

#endif
