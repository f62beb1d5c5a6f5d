/*
 * The way from options to a vocabulary, cut into steps between which ranks can agree.
 *
 * Files to be written are tried by opening and dropping a temporary beside them, so that a run of
 * hours does not find out at its end, and a killed one leaves nothing behind.
 *
 * Threads: psw_setup_count and psw_setup_train run in any number of threads over one setup; the
 * others in one. Signals are looked for once in 2^16 words.
 */
#include "worker/train/train_setup.h"

#include "common/alloc.h"
#include "common/file.h"
#include "common/log.h"
#include "worker/client.h"
#include "worker/programs/client_error.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <sys/stat.h>
#include <xxhash.h>

#define BATCH_WORDS_OF_ALL 20000u
#define BATCH_WORDS_LEAST 1000u

#define STOP_WORDS ((uint64_t)1 << 16)

static psc_status_t check_writable(const psw_setup_t *setup, const char *path, psc_error_t *error)
{
    struct stat info;
    psc_outfile_t *file;
    if (path == NULL)
        return PSC_OK;
    if (stat(path, &info) == 0 && !S_ISREG(info.st_mode))
        return psc_error_set(error, PSC_INVALID_ARGUMENT,
                             "%s cannot be written: it is there and no regular file", path);
    if (psw_corpus_has_file(setup->corpus, path))
        return psc_error_set(error, PSC_INVALID_ARGUMENT,
                             "%s cannot be written: it is a file of the corpus", path);
    psc_status_t st = psc_outfile_open(path, &file, error);
    if (st == PSC_OK)
        psc_outfile_abort(file);
    return st;
}

psc_status_t psw_setup_open(psw_setup_t *setup, const psw_train_options_t *options, bool writes,
                            psc_error_t *error)
{
    *setup = (psw_setup_t){.options = options};
    psc_status_t st =
        psw_corpus_open(options->corpus.items, options->corpus.n, &setup->corpus, error);
    if (st != PSC_OK || !writes)
        return st;
    const char *const paths[] = {options->out, options->out_context, options->save_vocab,
                                 options->log_json};
    for (size_t i = 0; st == PSC_OK && i < sizeof paths / sizeof paths[0]; i++)
        st = check_writable(setup, paths[i], error);
    return st;
}

void psw_setup_clear(psw_setup_t *setup)
{
    psw_sampler_clear(&setup->sampler);
    psw_vocab_destroy(setup->vocab);
    psw_corpus_close(setup->corpus);
    *setup = (psw_setup_t){0};
}

psc_status_t psw_setup_count(const psw_setup_t *setup, uint32_t worker, uint32_t n_workers,
                             psw_counter_t *counter, psw_stop_t *stop, psw_part_t *part_out,
                             psc_error_t *error)
{
    psw_part_t part = {0};
    psw_reader_t *reader;
    psw_token_t token;
    psw_corpus_share(setup->corpus, worker, n_workers, &part.begin, &part.end);
    psc_status_t st = psw_reader_create(setup->corpus, part.begin, part.end, &reader, error);
    if (st != PSC_OK)
        return st;
    while ((st = psw_reader_next(reader, &token, error)) == PSC_OK && token.kind != PSW_TOKEN_END) {
        if (token.kind != PSW_TOKEN_WORD)
            continue;
        if (part.words++ % STOP_WORDS == 0) {
            psw_stop_poll(stop);
            if (psw_stop_requested(stop)) {
                st = psc_error_set(error, PSC_INTERRUPTED, "stopped by a signal");
                break;
            }
        }
        part.hash = XXH3_64bits_withSeed(token.bytes, token.size, part.hash);
        if (counter != NULL &&
            (st = psw_counter_add(counter, token.bytes, token.size, 1, error)) != PSC_OK)
            break;
    }
    part.long_words = psw_reader_long_words(reader);
    psw_reader_destroy(reader);
    if (st == PSC_OK)
        *part_out = part;
    return st;
}

static psc_status_t check_vocab(const psw_setup_t *setup, const psw_counter_t *counter,
                                psc_error_t *error)
{
    const psw_train_options_t *options = setup->options;
    uint32_t kept = psw_vocab_size(setup->vocab);
    const char *name = psw_corpus_name(setup->corpus);
    if (setup->corpus_words == 0)
        return psc_error_set(error, PSC_INVALID_ARGUMENT, "corpus %s holds no words", name);
    if (kept >= 2)
        return PSC_OK;
    if (options->read_vocab != NULL)
        return psc_error_set(
            error, PSC_INVALID_ARGUMENT,
            "vocabulary %s: %zu words read, %u kept (--min-count %" PRIu64 "): nothing to train",
            options->read_vocab, psw_counter_distinct(counter), kept, options->min_count);
    return psc_error_set(error, PSC_INVALID_ARGUMENT,
                         "corpus %s: %" PRIu64 " words read, %zu different ones, %u kept "
                         "(--min-count %" PRIu64 "): nothing to train",
                         name, setup->corpus_words, psw_counter_distinct(counter), kept,
                         options->min_count);
}

psc_status_t psw_setup_finish(psw_setup_t *setup, const psw_counter_t *counter,
                              uint64_t corpus_words, bool writes, psc_error_t *error)
{
    const psw_train_options_t *options = setup->options;
    psw_counter_t *read = NULL;
    psc_status_t st = PSC_OK;
    setup->corpus_words = corpus_words;
    if (counter == NULL) {
        st = psw_counter_create(&read, error);
        if (st == PSC_OK)
            st = psw_vocab_read(options->read_vocab, read, error);
        counter = read;
    }
    if (st == PSC_OK)
        st = psw_vocab_build(counter, options->min_count, &setup->vocab, error);
    if (st == PSC_OK)
        st = check_vocab(setup, counter, error);
    psw_counter_destroy(read);
    if (st == PSC_OK)
        st = psw_sampler_init(&setup->sampler, setup->vocab, options->sample, error);
    if (st == PSC_OK && writes && options->save_vocab != NULL)
        st = psw_vocab_save(setup->vocab, options->save_vocab, error);
    return st;
}

psc_status_t psw_setup_check_trained(const psw_setup_t *setup, uint32_t worker, uint32_t n_workers,
                                     uint64_t words, uint64_t windows, psc_error_t *error)
{
    const psw_train_options_t *options = setup->options;
    const char *name = psw_corpus_name(setup->corpus);
    char text[400];
    if (windows > 0)
        return PSC_OK;
    if (words == 0)
        (void)snprintf(text, sizeof text,
                       "no words of corpus %.120s are in its share: start fewer workers", name);
    else
        (void)snprintf(text, sizeof text,
                       "of %" PRIu64 " words of corpus %.120s no two were left side by side: they "
                       "are not in the vocabulary%s%.120s, or --sample %g drops them; use a "
                       "vocabulary of this corpus or a larger --sample (0 drops none)",
                       words, name, options->read_vocab != NULL ? " " : "",
                       options->read_vocab != NULL ? options->read_vocab : "", options->sample);
    if (n_workers == 1)
        return psc_error_set(error, PSC_INVALID_ARGUMENT, "nothing was trained: %s", text);
    psc_log(PSC_LOG_WARN, "worker %u of %u trained nothing: %s", worker, n_workers, text);
    return PSC_OK;
}

/* Words under way in all workers' batches stay the same, however many workers there are. */
static uint32_t batch_words_for(const psw_train_options_t *options, uint32_t n_workers)
{
    if (options->batch_words != 0)
        return (uint32_t)options->batch_words;
    uint32_t each = BATCH_WORDS_OF_ALL / n_workers;
    return each > BATCH_WORDS_LEAST ? each : BATCH_WORDS_LEAST;
}

static psc_status_t open_tables(const psw_train_options_t *options, embps_client_t *client,
                                psw_tables_t *tables_out, psc_error_t *error)
{
    embps_error_t what;
    const psw_tables_options_t tables = {.dim = (uint32_t)options->dim,
                                         .seed = options->seed,
                                         .precision = options->precision,
                                         .pull_format = psp_row_format(options->pull_format)->name,
                                         .push_format = psp_row_format(options->push_format)->name};
    if (options->reads_direct && embps_set_direct(client, true, NULL, &what) != 0)
        return psw_error_import(&what, error);
    return psw_tables_open(client, &tables, tables_out, error);
}

/* What decides the bits of a training, beside its rows. */
static void describe(const psw_setup_t *setup, uint32_t n_workers, psw_facts_t *facts)
{
    const psw_train_options_t *options = setup->options;
    *facts = (psw_facts_t){.n = 0};
    psw_facts_add(facts, "model", "%s", options->model->name);
    psw_facts_add(facts, "--form", "%s", options->plain ? "plain" : "matrix");
    psw_facts_add(facts, "--dim", "%" PRIu64, options->dim);
    psw_facts_add(facts, "--precision", "%s", options->precision);
    psw_facts_add(facts, "--wire", "pull=%s,push=%s", psp_row_format(options->pull_format)->name,
                  psp_row_format(options->push_format)->name);
    psw_facts_add(facts, "--window", "%" PRIu64, options->window);
    psw_facts_add(facts, "--negative", "%" PRIu64, options->negative);
    psw_facts_add(facts, "--sample", "%.17g", options->sample);
    psw_facts_add(facts, "--min-count", "%" PRIu64, options->min_count);
    psw_facts_add(facts, "--epochs", "%" PRIu64, options->epochs);
    psw_facts_add(facts, "--alpha", "%.17g", options->alpha);
    psw_facts_add(facts, "--seed", "%" PRIu64, options->seed);
    psw_facts_add(facts, "--staleness", "%s", options->staleness);
    psw_facts_add(facts, "workers", "%" PRIu32, n_workers);
    psw_facts_add(facts, "--batch-words", "%" PRIu32, batch_words_for(options, n_workers));
    if (options->staleness_clocks != 0) { /* else nothing depends on them */
        psw_facts_add(facts, "--checkpoint-batches", "%" PRIu64, options->checkpoint_batches);
        psw_facts_add(facts, "--cache", "%" PRIu64, options->cache);
        psw_facts_add(facts, "--flush", "%" PRIu64, options->flush);
        psw_facts_add(facts, "--prefetch", "%" PRIu64, options->prefetch);
    }
    psw_facts_add(facts, "words of the corpus", "%" PRIu64, setup->corpus_words);
    psw_facts_add(facts, "the text with hash", "%016" PRIx64, setup->corpus_hash);
    psw_facts_add(facts, "the vocabulary with hash", "%016" PRIx64,
                  psw_vocab_fingerprint(setup->vocab));
}

/* Where the checkpoint is that the servers go on from; at the begin without one. */
static psc_status_t find_position(const psw_setup_t *setup, embps_client_t *client,
                                  const psw_facts_t *facts, psw_position_t *position_out,
                                  psc_error_t *error)
{
    char state[PSW_POSITION_BYTES];
    size_t n = 0;
    embps_error_t what;
    const char *checkpoint = psw_client_resumed(client);
    *position_out = (psw_position_t){.batches = 0};
    if (checkpoint[0] == '\0')
        return PSC_OK;
    if (embps_checkpoint_state(client, checkpoint, state, sizeof state, &n, NULL, &what) != 0)
        return psw_error_import(&what, error);
    if (n != 0)
        return psw_position_read(state, n, checkpoint, facts, position_out, error);
    if (setup->options->checkpoint_batches == 0)
        return PSC_OK; /* tables to begin with */
    return psc_error_set(error, PSC_MISMATCH,
                         "checkpoint %s has the tables, but not how far the training was: "
                         "embps-server --resume with the name of another one, or none",
                         checkpoint);
}

/* Passes over the batches that were trained before. */
static psc_status_t skip(psw_builder_t *builder, const psw_position_t *position,
                         const psw_trainer_options_t *how, psw_train_counts_t *counts,
                         psc_error_t *error)
{
    psc_status_t st = PSC_OK;
    bool more = true;
    for (uint64_t i = 0; st == PSC_OK && more && i < position->batches; i++) {
        uint64_t words = 0, windows = 0;
        st = psw_trainer_look_for_stop(how, error);
        if (st == PSC_OK)
            st = psw_builder_skip(builder, &words, &windows, &more, error);
        counts->words += words;
        counts->windows += windows;
    }
    counts->total_words = counts->resumed_words = position->words;
    counts->resumed_lost = position->lost;
    return st;
}

psc_status_t psw_setup_train(const psw_setup_t *setup, embps_client_t *client, uint32_t worker,
                             const psw_part_t *part, psw_stop_t *stop, bool polls_signals,
                             psw_report_fn report, void *report_context, psw_tables_t *tables_out,
                             psw_train_counts_t *counts_out, psc_error_t *error)
{
    const psw_train_options_t *options = setup->options;
    psw_reader_t *reader = NULL;
    psw_builder_t *builder = NULL;
    psw_facts_t facts;
    psw_position_t position = {.batches = 0};
    embps_set_timeout(client, (uint32_t)ceil(options->timeout_s * 1000));
    describe(setup, embps_worker_count(client), &facts);
    psc_status_t st = find_position(setup, client, &facts, &position, error);
    if (st == PSC_OK)
        st = open_tables(options, client, tables_out, error);
    if (st == PSC_OK)
        st = psw_reader_create(setup->corpus, part->begin, part->end, &reader, error);
    if (st == PSC_OK) {
        psw_builder_options_t how = {.vocab = setup->vocab,
                                     .sampler = &setup->sampler,
                                     .reader = reader,
                                     .share_words = part->words,
                                     .seed = options->seed,
                                     .worker = worker,
                                     .epochs = (uint32_t)options->epochs,
                                     .window = (uint32_t)options->window,
                                     .negative = (uint32_t)options->negative,
                                     .batch_words =
                                         batch_words_for(options, embps_worker_count(client)),
                                     .plain = options->plain,
                                     .alpha = options->alpha};
        st = psw_builder_create(&how, &builder, error);
    }
    if (st == PSC_OK) {
        psw_trainer_options_t how = {.client = client,
                                     .tables = *tables_out,
                                     .builder = builder,
                                     .model = options->model,
                                     .plain = options->plain,
                                     .dim = (uint32_t)options->dim,
                                     .window = (uint32_t)options->window,
                                     .negative = (uint32_t)options->negative,
                                     .prefetch = (uint32_t)options->prefetch,
                                     .staleness = options->staleness_clocks,
                                     .cache_bytes = options->cache,
                                     .flush = (uint32_t)options->flush,
                                     .checkpoint_batches = options->checkpoint_batches,
                                     .first_batch = position.batches,
                                     .facts = &facts,
                                     .vocab = setup->vocab,
                                     .stop = stop,
                                     .polls_signals = polls_signals,
                                     .report = report,
                                     .report_context = report_context};
        if (position.batches != 0 && report != NULL && !options->quiet)
            (void)fprintf(stderr,
                          "goes on from %s: %" PRIu64 " batches of each worker, %" PRIu64
                          " of %" PRIu64 " words\n",
                          psw_client_resumed(client), position.batches, position.words,
                          setup->corpus_words * options->epochs);
        if (position.lost != 0 && worker == 0)
            psc_log(PSC_LOG_WARN,
                    "%" PRIu64 " workers had been lost before checkpoint %s: what these had not "
                    "trained by then stays untrained",
                    position.lost, psw_client_resumed(client));
        st = skip(builder, &position, &how, &how.counts, error);
        if (st == PSC_OK)
            st = psw_trainer_run(&how, counts_out, error);
    }
    psw_builder_destroy(builder);
    psw_reader_destroy(reader);
    return st;
}
