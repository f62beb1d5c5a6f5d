/*
 * What both ways to run share: the lines at the beginning and the end, and the export.
 * Threads: worker 0's.
 */
#include "worker/train/run.h"

#include "common/clock.h"
#include "common/log.h"
#include "worker/programs/client_error.h"
#include "worker/train/export.h"
#include "worker/train/progress.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

psc_status_t psw_run_progress(const psw_setup_t *setup, struct psw_progress **progress_out,
                              psc_error_t *error)
{
    const psw_train_options_t *options = setup->options;
    psw_progress_options_t how = {.words = setup->corpus_words * options->epochs,
                                  .json_path = options->log_json,
                                  .stream = options->quiet ? NULL : stderr,
                                  .terminal = isatty(STDERR_FILENO) == 1,
                                  .now_us = psc_clock_us()};
    return psw_progress_create(&how, progress_out, error);
}

static void take_counter(void *context, const char *name, uint64_t value)
{
    psw_account_t *account = context;
    const struct {
        const char *name;
        uint64_t *to;
    } all[] = {{"workers.pushes", &account->pushes},
               {"workers.rows", &account->rows},
               {"workers.pushes_applied", &account->pushes_applied},
               {"workers.rows_applied", &account->rows_applied}};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        if (strcmp(name, all[i].name) == 0)
            *all[i].to = value;
    }
}

psc_status_t psw_run_account(embps_client_t *client, psw_account_t *account_out, psc_error_t *error)
{
    embps_error_t what;
    psw_account_t account = {.pushes = 0};
    if (embps_stats(client, take_counter, &account, &what) != 0)
        return psw_error_import(&what, error);
    if (account.pushes != account.pushes_applied || account.rows != account.rows_applied)
        psc_log(PSC_LOG_WARN,
                "the workers have sent %" PRIu64 " pushes of %" PRIu64
                " rows, and the servers have applied %" PRIu64 " of %" PRIu64,
                account.pushes, account.rows, account.pushes_applied, account.rows_applied);
    *account_out = account;
    return PSC_OK;
}

psc_status_t psw_run_export(const psw_setup_t *setup, const psw_tables_t *tables, psw_stop_t *stop,
                            psc_error_t *error)
{
    const psw_train_options_t *options = setup->options;
    psc_status_t st =
        psw_export(tables->in, setup->vocab, options->binary, options->out, stop, error);
    if (st == PSC_OK && options->out_context != NULL)
        st = psw_export(tables->out, setup->vocab, options->binary, options->out_context, stop,
                        error);
    if (st == PSC_OK && !options->quiet)
        (void)fprintf(stderr, "%u vectors of %" PRIu64 " in %s\n", psw_vocab_size(setup->vocab),
                      options->dim, options->out);
    return st;
}

void psw_run_introduce(const psw_setup_t *setup, uint64_t long_words)
{
    const psw_train_options_t *options = setup->options;
    if (long_words > 0)
        psc_log(PSC_LOG_WARN, "corpus %s: %" PRIu64 " words of more than %u bytes are left out",
                psw_corpus_name(setup->corpus), long_words, PSW_WORD_MAX_BYTES);
    if (options->quiet)
        return;
    if (options->read_vocab != NULL) { /* its counts are of another text, perhaps */
        (void)fprintf(stderr, "corpus %s: %" PRIu64 " words; vocabulary of %u words from %s\n",
                      psw_corpus_name(setup->corpus), setup->corpus_words,
                      psw_vocab_size(setup->vocab), options->read_vocab);
        return;
    }
    (void)fprintf(stderr,
                  "corpus %s: %" PRIu64 " words, %" PRIu64 " of them in a vocabulary of %u\n",
                  psw_corpus_name(setup->corpus), setup->corpus_words,
                  psw_vocab_total(setup->vocab), psw_vocab_size(setup->vocab));
}
