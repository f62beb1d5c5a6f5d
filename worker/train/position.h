/*
 * How far a training is, as bytes that are kept with a checkpoint, and what decides its bits: who
 * goes on from there must be the same training. JSON, so that people can read it:
 *
 *     {"program": "embps-train", "version": 1, "batches": 1200, "words": 8310022, "lost": 0,
 *      "training": {"model": "skipgram", "--dim": "100", ...}}
 *
 * Threads: none.
 */
#ifndef WORKER_TRAIN_POSITION_H
#define WORKER_TRAIN_POSITION_H

#include "common/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PSW_FACTS_MAX 32u
#define PSW_FACT_BYTES 96u
#define PSW_POSITION_BYTES ((size_t)16 << 10) /* of one at most */

/* One of the things that decide the bits, as the command line calls it. */
typedef struct psw_fact {
    const char *name; /* static */
    char value[PSW_FACT_BYTES];
} psw_fact_t;

typedef struct psw_facts {
    size_t n;
    psw_fact_t all[PSW_FACTS_MAX];
} psw_facts_t;

/* Adds a fact; its value is made as by printf. */
__attribute__((format(printf, 3, 4))) void psw_facts_add(psw_facts_t *facts, const char *name,
                                                         const char *format, ...);

typedef struct psw_position {
    uint64_t batches; /* that each worker has trained, or all that it had */
    uint64_t words;   /* of the text, by all workers, as far as known */
    uint64_t lost;    /* workers that were lost before, whose batches may be untrained */
} psw_position_t;

/* Writes bytes_out [PSW_POSITION_BYTES] and their number. Errors: NO_MEMORY. */
PSC_MUST_CHECK psc_status_t psw_position_pack(const psw_position_t *position,
                                              const psw_facts_t *facts, char *bytes_out,
                                              size_t *n_out, psc_error_t *error);

/*
 * Reads what was packed; checkpoint: its name, for messages. Errors: CORRUPT (no position of a
 * training), UNSUPPORTED (of a later version), MISMATCH (of another training: what differs, with
 * both values).
 */
PSC_MUST_CHECK psc_status_t psw_position_read(const char *bytes, size_t n, const char *checkpoint,
                                              const psw_facts_t *facts,
                                              psw_position_t *position_out, psc_error_t *error);

#endif
