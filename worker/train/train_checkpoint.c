/*
 * Whatever fails fails the checkpoint, and is said; the training goes on, unless the client itself
 * has come to its end. Threads: the trainer's.
 */
#include "worker/train/train_checkpoint.h"

#include "common/alloc.h"
#include "common/log.h"
#include "worker/client.h"

#include <inttypes.h>
#include <xxhash.h>

static psc_status_t take_failure(const psw_train_checkpoint_t *checkpoint, const psc_error_t *fault,
                                 psc_error_t *error)
{
    psc_status_t st = psw_client_state(checkpoint->client, error);
    if (st == PSC_OK) /* BUSY: servers make one of their own just then */
        psc_log(fault->code == PSC_BUSY ? PSC_LOG_INFO : PSC_LOG_WARN,
                "a checkpoint was not made, and the training goes on: %s", fault->message);
    return st;
}

/* The vocabulary as checkpoints have it; a worker that makes none needs no memory for that. */
static psc_status_t write_words(psw_train_checkpoint_t *checkpoint, psc_error_t *error)
{
    char *bytes = NULL;
    size_t n = 0;
    if (checkpoint->vocab == NULL || checkpoint->words.n != 0)
        return PSC_OK;
    psc_status_t st = psw_vocab_write(checkpoint->vocab, &bytes, &n, error);
    if (st == PSC_OK)
        checkpoint->words = (psw_words_t){
            .bytes = (const uint8_t *)bytes, .n = n, .checksum = XXH3_64bits(bytes, n)};
    return st;
}

void psw_train_checkpoint_clear(psw_train_checkpoint_t *checkpoint)
{
    psc_free((void *)(uintptr_t)checkpoint->words.bytes);
    checkpoint->words = (psw_words_t){.n = 0};
}

psc_status_t psw_train_checkpoint_cut(psw_train_checkpoint_t *checkpoint,
                                      const psw_position_t *position, psc_error_t *error)
{
    psc_error_t fault = PSC_ERROR_INIT;
    size_t n;
    uint32_t n_lost;
    if (embps_worker_rank(checkpoint->client) != psw_client_first(checkpoint->client, &n_lost))
        return PSC_OK;
    if (checkpoint->making.client != NULL) {
        psc_log(PSC_LOG_INFO,
                "no checkpoint at batch %" PRIu64 ": the one before is still being made",
                position->batches);
        return PSC_OK;
    }
    psw_position_t here = *position;
    here.lost += n_lost;
    psc_status_t st = write_words(checkpoint, &fault);
    if (st == PSC_OK)
        st = psw_position_pack(&here, checkpoint->facts, checkpoint->position, &n, &fault);
    if (st == PSC_OK)
        st = psw_making_begin(checkpoint->client, true, checkpoint->position, n,
                              &checkpoint->making, &fault);
    checkpoint->making.words = checkpoint->words;
    return st == PSC_OK ? st : take_failure(checkpoint, &fault, error);
}

psc_status_t psw_train_checkpoint_step(psw_train_checkpoint_t *checkpoint, psc_error_t *error)
{
    psc_error_t fault = PSC_ERROR_INIT;
    bool over;
    if (checkpoint->making.client == NULL ||
        psw_making_step(&checkpoint->making, &over, &fault) == PSC_OK)
        return PSC_OK;
    return take_failure(checkpoint, &fault, error);
}

psc_status_t psw_train_checkpoint_finish(psw_train_checkpoint_t *checkpoint, psc_error_t *error)
{
    psc_error_t fault = PSC_ERROR_INIT;
    return psw_making_wait(&checkpoint->making, &fault) == PSC_OK
               ? PSC_OK
               : take_failure(checkpoint, &fault, error);
}
