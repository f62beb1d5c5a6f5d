/*
 * The option table of embps-train and the rules between options.
 *
 * Both models have the same options but for the default of --alpha and for --form, which CBOW has
 * no use for; so the table is a template that is copied and adjusted. An option that would have no
 * effect is refused: who gives it expects something of it.
 */
#include "worker/train/train_options.h"

#include "embps.h"
#include "proto/message.h"
#include "worker/train/cbow.h"
#include "worker/train/lookahead.h"
#include "worker/train/skipgram.h"

#include <string.h>

#define COUNT_MAX 9007199254740992.0 /* 2^53: bounds of the table are doubles */

#define FIELD(name) offsetof(psw_train_options_t, name)

/* Places of options that rules speak of; the rest of the table is free. */
enum {
    OPTION_ALPHA,
    OPTION_FORM,
    OPTION_LOCAL,
    OPTION_THREADS,
    OPTION_DATA,
    OPTION_MEMORY,
    OPTION_CORPUS,
    OPTION_OUT,
    OPTION_OUT_CONTEXT,
    OPTION_BINARY,
    OPTION_DIM,
    OPTION_PRECISION,
    OPTION_WIRE,
    OPTION_DIRECT,
    OPTION_WINDOW,
    OPTION_NEGATIVE,
    OPTION_SAMPLE,
    OPTION_MIN_COUNT,
    OPTION_EPOCHS,
    OPTION_SEED,
    OPTION_SAVE_VOCAB,
    OPTION_READ_VOCAB,
    OPTION_LOG_JSON,
    OPTION_QUIET,
    OPTION_BATCH_WORDS,
    OPTION_STALENESS,
    OPTION_PREFETCH,
    OPTION_CACHE,
    OPTION_FLUSH,
    OPTION_CHECKPOINT_BATCHES,
    OPTION_CHECKPOINTS,
    OPTION_RESUME,
    OPTION_KEEP,
    OPTION_TIMEOUT,
    N_OPTIONS
};

static const char *const direct_choices[] = {"off", "auto", NULL};
static const char *const precisions[] = {"f32", "bf16", "f16", NULL};

static const psc_option_t template[N_OPTIONS] = {
    [OPTION_CORPUS] = {.name = "corpus",
                       .argument = "FILE",
                       .type = PSC_OPTION_LIST,
                       .offset = FIELD(corpus),
                       .required = true,
                       .help =
                           "Plain text: words between blanks, one sentence or paragraph a line. "
                           "Lines may be of any length, words up to 4,096 bytes; any bytes are "
                           "taken. Every worker reads its part, so all hosts need the files."},
    [OPTION_OUT] = {.name = "out",
                    .argument = "FILE",
                    .type = PSC_OPTION_TEXT,
                    .offset = FIELD(out),
                    .required = true,
                    .help =
                        "Where the word vectors go, in the format of the original word2vec tool. "
                        "Written by worker 0 at the end, whole or not at all."},
    [OPTION_OUT_CONTEXT] = {.name = "out-context",
                            .argument = "FILE",
                            .type = PSC_OPTION_TEXT,
                            .offset = FIELD(out_context),
                            .help =
                                "Where the output vectors (those of the negatives) go as well."},
    [OPTION_BINARY] = {.name = "binary",
                       .type = PSC_OPTION_FLAG,
                       .offset = FIELD(binary),
                       .help = "Write vectors in the binary format instead of text."},
    [OPTION_DIM] = {.name = "dim",
                    .argument = "N",
                    .type = PSC_OPTION_U64,
                    .offset = FIELD(dim),
                    .min = 1,
                    .max = PSP_DIM_MAX,
                    .default_value = "100",
                    .help = "Numbers in a vector."},
    [OPTION_PRECISION] = {.name = "precision",
                          .argument = "NAME",
                          .type = PSC_OPTION_TEXT,
                          .offset = FIELD(precision),
                          .default_value = "f32",
                          .choices = precisions,
                          .help = "How servers keep the numbers: f32, or bf16 or f16 in half the "
                                  "memory, rounded at random so that small steps count on average. "
                                  "Training computes with 32 bits, and the files have them."},
    [OPTION_WIRE] = {.name = "wire",
                     .argument = "FORMATS",
                     .type = PSC_OPTION_TEXT,
                     .offset = FIELD(wire),
                     .default_value = "f32",
                     .help = "How numbers travel between workers and servers: f32, bf16 or f16 in "
                             "half the bytes, or int8 in a quarter. One format for both ways, or "
                             "pull=FORMAT,push=FORMAT. What is pushed is rounded at random so that "
                             "small steps count on average. The files have the numbers as the "
                             "servers keep them."},
    [OPTION_DIRECT] = {.name = "direct",
                       .argument = "WHEN",
                       .type = PSC_OPTION_TEXT,
                       .offset = FIELD(direct),
                       .default_value = "off",
                       .choices = direct_choices,
                       .help = "auto: rows are read straight from the memory of servers on this "
                               "host that allow it (embps-server --direct). The vectors are the "
                               "same; it pays where servers are busy and rows come as f32."},
    [OPTION_WINDOW] = {.name = "window",
                       .argument = "N",
                       .type = PSC_OPTION_U64,
                       .offset = FIELD(window),
                       .min = 1,
                       .max = PSW_WINDOW_MAX,
                       .default_value = "5",
                       .help = "Words to each side of the centre word at most; each window reaches "
                               "a random number of 1 to N words."},
    [OPTION_NEGATIVE] = {.name = "negative",
                         .argument = "N",
                         .type = PSC_OPTION_U64,
                         .offset = FIELD(negative),
                         .min = 1,
                         .max = PSW_NEGATIVE_MAX,
                         .default_value = "5",
                         .help =
                             "Negatives for each centre word, drawn by their counts^0.75. There "
                             "is no training without negatives (hierarchical softmax)."},
    [OPTION_SAMPLE] = {.name = "sample",
                       .argument = "X",
                       .type = PSC_OPTION_DOUBLE,
                       .offset = FIELD(sample),
                       .min = 0,
                       .max = 1,
                       .default_value = "1e-3",
                       .help = "Words with a larger share of the text than X are thinned out at "
                               "random; 1e-4 suits large texts. 0 keeps all."},
    [OPTION_MIN_COUNT] = {.name = "min-count",
                          .argument = "N",
                          .type = PSC_OPTION_U64,
                          .offset = FIELD(min_count),
                          .min = 1,
                          .max = COUNT_MAX,
                          .default_value = "5",
                          .help = "Words seen less often are left out."},
    [OPTION_EPOCHS] = {.name = "epochs",
                       .argument = "N",
                       .type = PSC_OPTION_U64,
                       .offset = FIELD(epochs),
                       .min = 1,
                       .max = 1000000,
                       .default_value = "5",
                       .help = "Passes over the text."},
    [OPTION_ALPHA] = {.name = "alpha",
                      .argument = "X",
                      .type = PSC_OPTION_DOUBLE,
                      .offset = FIELD(alpha),
                      .min = 1e-9,
                      .max = 10,
                      .default_value = "0.025",
                      .help =
                          "Rate at the start; it falls evenly over all words of all epochs to a "
                          "ten-thousandth of this."},
    [OPTION_SEED] = {.name = "seed",
                     .argument = "N",
                     .type = PSC_OPTION_U64,
                     .offset = FIELD(seed),
                     .min = 0,
                     .max = COUNT_MAX,
                     .default_value = "1",
                     .help =
                         "Of all random numbers. One worker gives the same vectors for the same "
                         "seed, whatever the number of servers and the memory."},
    [OPTION_FORM] = {.name = "form",
                     .argument = "NAME",
                     .type = PSC_OPTION_TEXT,
                     .offset = FIELD(form),
                     .default_value = "matrix",
                     .help = "matrix: the contexts of a word share its negatives, which is fast. "
                             "plain: negatives for each pair of words, the original form, for "
                             "comparison."},
    [OPTION_SAVE_VOCAB] = {.name = "save-vocab",
                           .argument = "FILE",
                           .type = PSC_OPTION_TEXT,
                           .offset = FIELD(save_vocab),
                           .help = "Write words and counts, one \"word count\" a line."},
    [OPTION_READ_VOCAB] = {.name = "read-vocab",
                           .argument = "FILE",
                           .type = PSC_OPTION_TEXT,
                           .offset = FIELD(read_vocab),
                           .help = "Take words and counts from such a file instead of the text; "
                                   "--min-count holds for them too."},
    [OPTION_LOG_JSON] = {.name = "log-json",
                         .argument = "FILE",
                         .type = PSC_OPTION_TEXT,
                         .offset = FIELD(log_json),
                         .help = "Write the progress as lines of JSON, one a second."},
    [OPTION_QUIET] = {.name = "quiet",
                      .type = PSC_OPTION_FLAG,
                      .offset = FIELD(quiet),
                      .help = "Show no progress."},
    [OPTION_BATCH_WORDS] = {.name = "batch-words",
                            .argument = "N",
                            .type = PSC_OPTION_U64,
                            .offset = FIELD(batch_words),
                            .min = 1,
                            .max = PSW_BATCH_WORDS_MAX,
                            .help = "Words of the text between one pull and the next. More of them "
                                    "move fewer rows a word; several workers then see each other's "
                                    "changes later, and many words under way at once make the "
                                    "first steps overshoot. Default: 20,000 for one worker, "
                                    "otherwise 20,000 divided by their number, at least 1,000."},
    [OPTION_STALENESS] = {.name = "staleness",
                          .argument = "CLOCKS",
                          .type = PSC_OPTION_TEXT,
                          .offset = FIELD(staleness),
                          .default_value = "async",
                          .help =
                              "How the workers keep together; a batch is a clock. async: nobody "
                              "waits for anybody. N: nobody is more than N clocks ahead of the "
                              "slowest. 0: in step: all pull the same rows, and their changes are "
                              "summed in the order of the workers, so that a run has the same bits "
                              "each time and for any number of servers; nothing overlaps then."},
    [OPTION_PREFETCH] = {.name = "prefetch",
                         .argument = "N",
                         .type = PSC_OPTION_U64,
                         .offset = FIELD(prefetch),
                         .min = 0,
                         .max = PSW_LOOKAHEAD_MAX,
                         .default_value = "0",
                         .help = "Batches that are announced to the servers ahead of their pulls, "
                                 "so that rows come from disk before they are asked for. Changes "
                                 "no result. Worth it where most rows lie on disk and a tenth of "
                                 "the servers' memory holds the rows of a batch."},
    [OPTION_CACHE] = {.name = "cache",
                      .argument = "BYTES",
                      .type = PSC_OPTION_SIZE,
                      .offset = FIELD(cache),
                      .min = 0,
                      .max = COUNT_MAX,
                      .default_value = "0",
                      .help = "Memory of each worker for copies of the words that it sees most "
                              "often: they travel less often, and other workers see changes to "
                              "them later. A word takes about 16 bytes for each of its --dim "
                              "numbers. 0, or --staleness 0: no cache."},
    [OPTION_FLUSH] = {.name = "flush",
                      .argument = "N",
                      .type = PSC_OPTION_U64,
                      .offset = FIELD(flush),
                      .min = 1,
                      .max = EMBPS_FLUSH_MAX,
                      .default_value = "16",
                      .help = "With --cache: changes of a kept word are sent once in N batches; "
                              "of words that every batch changes, four times as often. At the "
                              "start, when steps are large, more often too."},
    [OPTION_CHECKPOINT_BATCHES] =
        {.name = "checkpoint-batches",
         .argument = "N",
         .type = PSC_OPTION_U64,
         .offset = FIELD(checkpoint_batches),
         .min = 0,
         .max = COUNT_MAX,
         .default_value = "0",
         .help = "Have the servers make a checkpoint each time every worker has trained N batches, "
                 "with how far the training is (embps-server --checkpoints DIR, or the same here "
                 "with --local). The same command "
                 "line goes on from the newest: in one worker, and in any number with --staleness "
                 "0, to the last bit as if nothing had been. 0: none."},
    [OPTION_CHECKPOINTS] = {.name = "checkpoints",
                            .argument = "DIR",
                            .type = PSC_OPTION_TEXT,
                            .offset = FIELD(checkpoints),
                            .help = "With --local: the folder of checkpoints; it is made where its "
                                    "parent exists. A run that is started again with the same DIR "
                                    "goes on from the newest one, and takes over the --data of the "
                                    "run before."},
    [OPTION_RESUME] = {.name = "resume",
                       .argument = "WHICH",
                       .type = PSC_OPTION_TEXT,
                       .offset = FIELD(resume),
                       .default_value = "auto",
                       .help = "With --local: the checkpoint to go on from: auto (the newest, if "
                               "there is one), none, or its name."},
    [OPTION_KEEP] = {.name = "keep",
                     .argument = "N",
                     .type = PSC_OPTION_U64,
                     .offset = FIELD(keep),
                     .min = 0,
                     .max = 1000000,
                     .default_value = "3",
                     .help = "With --local: how many checkpoints stay. 0: all."},
    [OPTION_TIMEOUT] = {.name = "timeout",
                        .argument = "SECONDS",
                        .type = PSC_OPTION_DOUBLE,
                        .offset = FIELD(timeout_s),
                        .min = 0,
                        .max = 1e6,
                        .default_value = "60",
                        .help = "How long a server may owe an answer without a sign of life; the "
                                "training then ends with an error that names it. Waiting for other "
                                "workers does not count. 0: for ever."},
    [OPTION_LOCAL] = {.name = "local",
                      .type = PSC_OPTION_FLAG,
                      .offset = FIELD(local),
                      .help = "Run the server in this process too: no mpirun needed."},
    [OPTION_THREADS] = {.name = "threads",
                        .argument = "N",
                        .type = PSC_OPTION_U64,
                        .offset = FIELD(threads),
                        .min = 1,
                        .max = 1024,
                        .help = "With --local: workers, one a thread. Default: one for each core."},
    [OPTION_DATA] = {.name = "data",
                     .argument = "DIR",
                     .type = PSC_OPTION_TEXT,
                     .offset = FIELD(data),
                     .help = "With --local, and needed there: the data directory. It is kept, and "
                             "must not hold tables of another run."},
    [OPTION_MEMORY] = {.name = "memory",
                       .argument = "BYTES",
                       .type = PSC_OPTION_SIZE,
                       .offset = FIELD(memory),
                       .min = 8 << 20,
                       .max = COUNT_MAX,
                       .default_value = "256M",
                       .help = "With --local: memory for rows; the others stay in the data "
                               "directory."},
};

static const char description[] =
    "Trains word vectors with negative sampling on tables that live on servers. Start it with "
    "mpirun "
    "beside embps-server, or alone with --local.\n\n"
    "SIGINT, SIGTERM and, unless it is ignored, SIGHUP end the training at the next batch; no "
    "vectors are written then.";

const psw_model_t *const *psw_models(size_t *n_out)
{
    static const psw_model_t *const models[] = {&psw_skipgram, &psw_cbow};
    *n_out = sizeof models / sizeof models[0];
    return models;
}

const psw_model_t *psw_model_find(const char *name)
{
    size_t n;
    const psw_model_t *const *models = psw_models(&n);
    for (size_t i = 0; i < n; i++) {
        if (strcmp(models[i]->name, name) == 0)
            return models[i];
    }
    return NULL;
}

static psc_status_t refuse(psc_error_t *error, const char *reason)
{
    return psc_error_set(error, PSC_INVALID_ARGUMENT, "%s", reason);
}

static psc_status_t check_outputs(const psw_train_options_t *options, psc_error_t *error)
{
    const struct {
        const char *name, *path;
    } files[] = {{"--out", options->out},
                 {"--out-context", options->out_context},
                 {"--save-vocab", options->save_vocab},
                 {"--log-json", options->log_json}};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        for (size_t j = 0; j < i; j++) {
            if (files[i].path != NULL && files[j].path != NULL &&
                strcmp(files[i].path, files[j].path) == 0)
                return psc_error_set(error, PSC_INVALID_ARGUMENT,
                                     "%s and %s name the same file: %s", files[j].name,
                                     files[i].name, files[i].path);
        }
    }
    return PSC_OK;
}

static psc_status_t read_staleness(psw_train_options_t *options, psc_error_t *error)
{
    const char *text = options->staleness;
    const size_t digits = strspn(text, "0123456789");
    options->staleness_clocks = EMBPS_ASYNC;
    if (strcmp(text, "async") == 0)
        return PSC_OK;
    if (digits == 0 || digits > 9 || text[digits] != '\0')
        return psc_error_set(error, PSC_INVALID_ARGUMENT,
                             "--staleness is \"%s\"; possible are async and 0 to 999999999 clocks",
                             text);
    options->staleness_clocks = 0;
    for (size_t i = 0; i < digits; i++)
        options->staleness_clocks = options->staleness_clocks * 10 + (uint32_t)(text[i] - '0');
    return PSC_OK;
}

/* --wire: a format, or formats by direction. */
static psc_status_t read_wire(psw_train_options_t *options, psc_error_t *error)
{
    bool known = psp_row_format_find(options->wire, &options->pull_format);
    options->push_format = options->pull_format;
    bool pull = false, push = false;
    const char *part = known ? "" : options->wire;
    while (*part != '\0') {
        char name[8] = "";
        size_t size = strcspn(part, ",");
        bool is_pull = strncmp(part, "pull=", 5) == 0;
        bool *given = is_pull ? &pull : &push;
        known = (is_pull || strncmp(part, "push=", 5) == 0) && size - 5 < sizeof name && !*given;
        if (known) {
            memcpy(name, part + 5, size - 5);
            known =
                psp_row_format_find(name, is_pull ? &options->pull_format : &options->push_format);
        }
        if (!known)
            break;
        *given = true;
        part += size + (part[size] == ',' && part[size + 1] != '\0');
    }
    if (known)
        return PSC_OK;
    return psc_error_set(error, PSC_INVALID_ARGUMENT,
                         "--wire is \"%.100s\"; possible are " PSP_FORMAT_NAMES
                         ", or pull= and push= with one of them, as in pull=bf16,push=int8",
                         options->wire);
}

static psc_status_t check_checkpoints(const psw_train_options_t *options, const bool *given,
                                      psc_error_t *error)
{
    const bool any = given[OPTION_CHECKPOINTS] || given[OPTION_RESUME] || given[OPTION_KEEP];
    if (!options->local && any)
        return refuse(error, "--checkpoints, --resume and --keep have no effect without --local: "
                             "they are options of the servers (embps-server --checkpoints DIR)");
    if (any && !given[OPTION_CHECKPOINTS])
        return refuse(error, "--resume and --keep have no effect without --checkpoints DIR");
    if (given[OPTION_CHECKPOINTS] && options->checkpoint_batches == 0)
        return refuse(error, "--checkpoints needs --checkpoint-batches N: how often one is made");
    if (options->local && options->checkpoint_batches != 0 && !given[OPTION_CHECKPOINTS])
        return refuse(error, "--checkpoint-batches with --local needs --checkpoints DIR, the "
                             "folder that they are made in");
    return PSC_OK;
}

static psc_status_t check(psw_train_options_t *options, const bool *given, psc_error_t *error)
{
    psc_status_t st = read_staleness(options, error);
    if (st != PSC_OK)
        return st;
    if (!options->local && given[OPTION_THREADS])
        return refuse(error,
                      "--threads has no effect without --local: under mpirun every worker is "
                      "a rank of its own (mpirun -n N embps-train ...)");
    if (!options->local && given[OPTION_DATA])
        return refuse(error, "--data has no effect without --local: the servers keep the data "
                             "(embps-server --data DIR)");
    if (!options->local && given[OPTION_MEMORY])
        return refuse(error, "--memory has no effect without --local: the servers keep the rows "
                             "(embps-server --memory BYTES)");
    st = check_checkpoints(options, given, error);
    if (st != PSC_OK)
        return st;
    if (given[OPTION_FLUSH] && options->cache == 0)
        return refuse(error, "--flush has no effect without --cache BYTES");
    if (options->cache != 0 && options->cache < 64 << 10)
        return refuse(error, "--cache: at least 64K bytes are needed, or 0 for no cache");
    if (options->local && !given[OPTION_DATA])
        return refuse(error, "--local needs --data DIR, a directory for the tables");
    if (strcmp(options->form, "matrix") != 0 && strcmp(options->form, "plain") != 0)
        return psc_error_set(error, PSC_INVALID_ARGUMENT,
                             "--form is \"%s\"; possible are matrix and plain", options->form);
    if (given[OPTION_FORM] && options->model->plain == NULL)
        return psc_error_set(error, PSC_INVALID_ARGUMENT,
                             "--form has no effect for %s: a window has one set of negatives there "
                             "in any form",
                             options->model->name);
    options->plain = strcmp(options->form, "plain") == 0;
    options->reads_direct = strcmp(options->direct, "auto") == 0;
    st = read_wire(options, error);
    return st == PSC_OK ? check_outputs(options, error) : st;
}

psc_status_t psw_train_options_parse(const psw_model_t *model, int argc, char *const argv[],
                                     psw_train_options_t *options_out,
                                     psc_parse_result_t *result_out, psc_error_t *error)
{
    bool cbow = model == &psw_cbow, given[N_OPTIONS] = {false};
    psc_option_t table[N_OPTIONS];
    psc_command_t command = {
        .name = cbow ? "embps-train cbow" : "embps-train skipgram",
        .synopsis = "--corpus FILE... --out FILE [options]",
        .summary = cbow ? "word vectors by CBOW" : "word vectors by skip-gram",
        .description = description,
        .options = table,
        .n_options = N_OPTIONS,
        .examples = cbow
                        ? "embps-train cbow --local --data tables --corpus text --out vectors"
                        : "embps-train skipgram --local --data tables --corpus text --out vectors\n"
                          "mpirun -n 2 embps-server --data tables : -n 2 embps-train skipgram "
                          "--corpus text --out vectors",
    };
    memcpy(table, template, sizeof table);
    if (cbow)
        table[OPTION_ALPHA].default_value = "0.05";
    *options_out = (psw_train_options_t){.model = model};
    psc_status_t st =
        psc_options_parse(&command, argc, argv, options_out, NULL, given, result_out, error);
    if (st != PSC_OK || *result_out == PSC_PARSE_EXIT)
        return st;
    return check(options_out, given, error);
}
