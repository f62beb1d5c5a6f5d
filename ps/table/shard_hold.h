/*
 * A shard on the way to a cut that several servers make together: what does not belong to the cut
 * waits, what does is applied. Threads: the owner's. How that goes: ps/table/calls.h.
 */
#ifndef PS_TABLE_SHARD_HOLD_H
#define PS_TABLE_SHARD_HOLD_H

#include "ps/table/calls.h"
#include "ps/table/shard.h"

/* Begins. *clock_out: the clock that the other servers are to reach; what they tell is told back by
 * the two functions below. */
void ps_shard_hold(ps_shard_t *shard, uint64_t *clock_out);
size_t ps_shard_hold_tell(const ps_shard_t *shard, uint32_t server, uint32_t *seat_io,
                          ps_call_part_t *parts_out, size_t most);
void ps_shard_hold_reach(ps_shard_t *shard, const ps_call_part_t *told, size_t n);
void ps_shard_hold_reach_clock(ps_shard_t *shard, uint64_t clock);

/* Whether all is applied that belongs to the cut, as far as it is known. *n_missing_out: clients of
 * whose calls something is missing. */
bool ps_shard_hold_whole(const ps_shard_t *shard, uint32_t *n_missing_out);

/* The cut is made, or given up: what waited goes on at the next poll. */
void ps_shard_hold_release(ps_shard_t *shard);

#endif
