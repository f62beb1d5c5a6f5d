/*
 * Held are pushes that count at once, and imports: one that is the oldest of its session stays
 * there (WAIT_CUT, or waiting for the store as it was), and all behind it with it. Synchronous
 * pushes are not, since they only count when their clock ends; instead no clock is begun to be
 * summed beyond the furthest that any server is at. Pulls that nothing is ahead of go on.
 *
 * Targets move while parts of others are told: then heads are tried again (others_changed).
 */
#include "ps/table/shard_hold.h"

#include "ps/table/shard_state.h"

/* The clock that a shard has, once it is not in the middle of one. */
static uint64_t clock_of(const ps_shard_t *shard)
{
    return shard->summing ? shard->sessions.min_clock : shard->clock;
}

void ps_shard_hold(ps_shard_t *shard, uint64_t *clock_out)
{
    ps_calls_hold(&shard->calls);
    *clock_out = clock_of(shard);
    if (*clock_out > shard->hold_clock)
        shard->hold_clock = *clock_out;
}

size_t ps_shard_hold_tell(const ps_shard_t *shard, uint32_t server, uint32_t *seat_io,
                          ps_call_part_t *parts_out, size_t most)
{
    return ps_calls_tell(&shard->calls, server, seat_io, parts_out, most);
}

void ps_shard_hold_reach(ps_shard_t *shard, const ps_call_part_t *told, size_t n)
{
    for (size_t i = 0; i < n; i++)
        ps_calls_reach(&shard->calls, told[i]);
    shard->others_changed = true;
}

void ps_shard_hold_reach_clock(ps_shard_t *shard, uint64_t clock)
{
    if (clock > shard->hold_clock)
        shard->hold_clock = clock;
    shard->others_changed = true;
}

bool ps_shard_hold_whole(const ps_shard_t *shard, uint32_t *n_missing_out)
{
    *n_missing_out = ps_calls_missing(&shard->calls);
    return *n_missing_out == 0 && !shard->summing && shard->clock >= shard->hold_clock;
}

void ps_shard_hold_release(ps_shard_t *shard)
{
    ps_calls_release(&shard->calls);
    shard->hold_clock = 0;
    shard->others_changed = true;
    shard->room_changed = true;
}

bool ps_shard_holds(const ps_shard_t *shard, uint32_t peer, ps_request_t *request)
{
    const psp_message_t *message = &request->message;
    const bool counts_at_once =
        (message->kind == PSP_PUSH && !message->u.push.synchronous) || message->kind == PSP_IMPORT;
    const bool holds =
        counts_at_once && ps_calls_blocks(&shard->calls, peer, message->request.part);
    if (holds && request->state == PS_REQUEST_QUEUED)
        request->state = PS_REQUEST_WAIT_CUT;
    if (!holds && request->state == PS_REQUEST_WAIT_CUT)
        request->state = PS_REQUEST_QUEUED; /* it begins now */
    return holds;
}
