/*
 * The shard's part in a synchronous job: pushes are kept until all workers have ended their clock,
 * and then applied as sums over the workers (clock_sum.h).
 *
 * Invariants. All pushes that are kept are of one clock, shard->clock: nobody's push of the next
 * one is kept before that clock has been applied. Sums are applied one after another; `summed` is
 * the one under way, which waits for room or rows like the head of a session and counts as one that
 * waits. shard->clock moves when the last sum is applied, and with it the time of tables that grow
 * and all pulls that waited for it. Without kept pushes it is the least clock of the workers.
 * Threads: the owner's.
 */
#include "ps/table/shard_state.h"

#include "common/alloc.h"

void ps_shard_drop_deferred(ps_shard_t *shard, ps_session_t *session)
{
    ps_request_t *request;
    while ((request = ps_session_take_deferred(session)) != NULL) {
        ps_clock_sum_drop(&shard->sum, request);
        ps_request_destroy(&shard->requests, request);
    }
}

void ps_shard_end_sum(ps_shard_t *shard)
{
    if (!shard->summing)
        return;
    ps_shard_release(shard, &shard->summed);
    ps_request_trim(&shard->requests, &shard->summed);
    if (shard->starving == &shard->summed)
        shard->starving = NULL;
    for (size_t i = 0; i < shard->sum.n_requests; i++) {
        ps_clock_sum_drop(&shard->sum, shard->sum.requests[i]);
        ps_request_destroy(&shard->requests, shard->sum.requests[i]);
    }
    ps_clock_sum_end(&shard->sum);
    shard->summing = false;
    shard->n_waiting--;
}

psc_status_t ps_shard_defer(ps_shard_t *shard, ps_request_t *request, psc_error_t *error)
{
    const psp_push_t *push = &request->message.u.push;
    psc_status_t st = ps_request_keep(request, error);
    if (st == PSC_OK)
        st = ps_shard_locate(shard, request, push->ids, push->n, error);
    if (st == PSC_OK)
        st = ps_clock_sum_add(&shard->sum, request, shard->options.store, error);
    ps_request_trim(&shard->requests, request);
    if (st != PSC_OK)
        return st;
    shard->counters.pushes_deferred++;
    request->state = PS_REQUEST_DEFERRED;
    return PSC_OK;
}

/* All workers have ended the clock: begins to sum what they pushed in it. */
static psc_status_t begin_sum(ps_shard_t *shard, psc_error_t *error)
{
    size_t n = 0;
    ps_request_t **requests = psc_alloc_array(shard->sum.n_kept, sizeof(ps_request_t *));
    if (requests == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "out of memory to sum %zu pushes of a clock",
                             shard->sum.n_kept);
    for (uint32_t i = 0; i < shard->sessions.n; i++) {
        ps_request_t *request;
        while ((request = ps_session_take_deferred(&shard->sessions.all[i])) != NULL) {
            ps_account_apply(&shard->account, request->message.u.push.n);
            requests[n++] = request;
        }
    }
    PSC_BUG_ON(n != shard->sum.n_kept);
    shard->summed = (ps_request_t){.state = PS_REQUEST_DONE, .summed = true};
    shard->summing = true;
    shard->n_waiting++;
    shard->counters.clocks_summed++;
    return ps_clock_sum_begin(&shard->sum, requests, n, error);
}

/* Applies what is being summed until that has to wait or is done: then summing is false. */
static psc_status_t go_on_summing(ps_shard_t *shard, psc_error_t *error)
{
    ps_request_t *request = &shard->summed;
    for (;;) {
        if (request->state == PS_REQUEST_DONE) {
            bool more;
            ps_request_trim(&shard->requests, request);
            *request = (ps_request_t){
                .message = {.kind = PSP_PUSH, .request = {.clock = shard->clock}}, .summed = true};
            psc_status_t st = ps_clock_sum_next(&shard->sum, &request->message.u.push,
                                                &request->table, &more, error);
            if (st != PSC_OK)
                return st;
            if (!more)
                break;
        }
        psc_status_t st = shard->options.serve[PSP_PUSH](shard, NULL, request, error);
        if (st != PSC_OK || request->state != PS_REQUEST_DONE)
            return st;
    }
    ps_shard_end_sum(shard);
    ps_shard_others_moved(shard);
    return PSC_OK;
}

psc_status_t ps_shard_end_clock(ps_shard_t *shard, psc_error_t *error)
{
    psc_status_t st = PSC_OK;
    const bool held = shard->calls.holding && shard->clock >= shard->hold_clock;
    if (!shard->summing && !held && shard->sum.n_kept != 0 &&
        shard->sessions.min_clock > shard->clock)
        st = begin_sum(shard, error);
    return st == PSC_OK && shard->summing ? go_on_summing(shard, error) : st;
}
