/*
 * A ring of depth + 2 batches: the one that is due, the one before it, which the trainer still
 * holds, and those ahead. The builder is called in the same order as without, and what it makes
 * depends on nothing but the text and the seed, so the depth changes no bit of a training.
 *
 * Memory: a batch ahead costs its ids and windows, no rows. One thread.
 */
#include "worker/train/lookahead.h"

#include "common/alloc.h"

struct psw_lookahead {
    psw_builder_t *builder;
    psw_announce_fn announce;
    void *context;
    uint32_t depth, n_batches;
    uint64_t n_given, n_built;
    bool over; /* the builder has no more */
    psw_train_batch_t *batches[PSW_LOOKAHEAD_MAX + 2];
};

psc_status_t psw_lookahead_create(psw_builder_t *builder, uint32_t depth, psw_announce_fn announce,
                                  void *context, psw_lookahead_t **ahead_out, psc_error_t *error)
{
    psw_lookahead_t *ahead = psc_alloc_zeroed(1, sizeof *ahead);
    if (ahead == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "out of memory for batches");
    ahead->builder = builder;
    ahead->announce = announce;
    ahead->context = context;
    ahead->depth = depth < PSW_LOOKAHEAD_MAX ? depth : PSW_LOOKAHEAD_MAX;
    ahead->n_batches = ahead->depth + 2;
    psc_status_t st = PSC_OK;
    for (uint32_t i = 0; st == PSC_OK && i < ahead->n_batches; i++)
        st = psw_train_batch_create(builder, &ahead->batches[i], error);
    if (st != PSC_OK) {
        psw_lookahead_destroy(ahead);
        return st;
    }
    *ahead_out = ahead;
    return PSC_OK;
}

void psw_lookahead_destroy(psw_lookahead_t *ahead)
{
    for (uint32_t i = 0; ahead != NULL && i < ahead->n_batches; i++)
        psw_train_batch_destroy(ahead->batches[i]);
    psc_free(ahead);
}

psc_status_t psw_lookahead_next(psw_lookahead_t *ahead, psw_train_batch_t **batch_out,
                                bool *more_out, psc_error_t *error)
{
    while (!ahead->over && ahead->n_built <= ahead->n_given + ahead->depth) {
        psw_train_batch_t *batch = ahead->batches[ahead->n_built % ahead->n_batches];
        bool more;
        psc_status_t st = psw_builder_next(ahead->builder, batch, &more, error);
        uint32_t distance = (uint32_t)(ahead->n_built - ahead->n_given);
        if (st == PSC_OK && more && distance != 0)
            st = ahead->announce(ahead->context, batch, distance, error);
        if (st != PSC_OK)
            return st;
        ahead->over = !more;
        ahead->n_built += more;
    }
    *more_out = ahead->n_given < ahead->n_built;
    if (*more_out)
        *batch_out = ahead->batches[ahead->n_given++ % ahead->n_batches];
    return PSC_OK;
}

psc_status_t psw_lookahead_announce_again(psw_lookahead_t *ahead, psc_error_t *error)
{
    psc_status_t st = PSC_OK;
    for (uint64_t i = ahead->n_given + 1; st == PSC_OK && i < ahead->n_built; i++)
        st = ahead->announce(ahead->context, ahead->batches[i % ahead->n_batches],
                             (uint32_t)(i - ahead->n_given), error);
    return st;
}

const psw_train_batch_t *psw_lookahead_sample(const psw_lookahead_t *ahead)
{
    return ahead->batches[0];
}
