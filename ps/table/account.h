/*
 * The account of workers' pushes: how many they say they have sent here, and how many were applied,
 * over all runs of a training that goes on from checkpoints. A checkpoint has both as they are at
 * its cut, so what came after it, and was lost or is pushed anew, is in neither.
 *
 * Where both are the same, each push was applied once. Workers tell with their clocks: what one has
 * pushed since, or without any clock, is only among what was applied. Guests are in neither.
 * Threads: the owner's.
 */
#ifndef PS_TABLE_ACCOUNT_H
#define PS_TABLE_ACCOUNT_H

#include "ps/table/session.h"

/* As counters of Stats, which a checkpoint has. */
#define PS_ACCOUNT_PUSHES "workers.pushes"
#define PS_ACCOUNT_ROWS "workers.rows"
#define PS_ACCOUNT_PUSHES_APPLIED "workers.pushes_applied"
#define PS_ACCOUNT_ROWS_APPLIED "workers.rows_applied"

typedef struct ps_account {
    psp_tally_t before;  /* what workers of the runs before had told */
    psp_tally_t applied; /* then and now */
} ps_account_t;

/* A worker ends a clock, behind so many pushes. The last word counts: pushes that a client took
 * back before it sent them, as after a time-out, are in it no more. */
void ps_account_hear(ps_session_t *session, psp_tally_t pushed);

/* A push of a worker is applied, or begins to be as part of the sum of its clock. */
void ps_account_apply(ps_account_t *account, size_t n_rows);

/*
 * What all workers have told, then and now. clock: the shard's; pushes that are kept until it ends
 * count when it has, and are not in it before, whether they were told or not.
 */
psp_tally_t ps_account_told(const ps_account_t *account, const ps_sessions_t *sessions,
                            uint64_t clock);

/* A counter of a server of the run before. Others than those above are left out. */
void ps_account_add_saved(ps_account_t *account, const char *name, uint64_t value);

#endif
