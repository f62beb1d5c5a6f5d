/*
 * What the files of a restore share (restore.c, restore_rows.c, restore_shard.c). Inside
 * ps/checkpoint only.
 */
#ifndef PS_CHECKPOINT_RESTORE_INSIDE_H
#define PS_CHECKPOINT_RESTORE_INSIDE_H

#include "common/slots.h"
#include "ps/checkpoint/restore.h"
#include "ps/table/account.h"
#include "ps/table/schema.h"

/* A table of the checkpoint, as all its servers have it. */
typedef struct ps_restore_table {
    ps_table_t table;                    /* as its options define it, its number and epoch set */
    ps_table_t was;                      /* the same in the checkpoint */
    bool renewed;                        /* of rows only the weights are taken */
    uint64_t created, companion_created; /* that this server goes on with */
    uint32_t expiry_clock;               /* the furthest of all servers */
} ps_restore_table_t;

struct ps_restore {
    char *folder;
    uint32_t rank, n_servers; /* of this run */
    bool client;              /* state and vocabulary are needed, too */
    psp_saved_t *manifest;
    psc_slot_map_t before; /* the checkpoint's */
    psc_slot_map_t map;    /* of this run */
    bool same;             /* both are alike: each server has all of the part with its number */
    bool renews;           /* some table is renewed: so rows are read, and no files linked */
    bool weights;          /* all are, and nothing but rows is taken */
    ps_restore_table_t *tables; /* [n_tables], by number */
    size_t n_tables;
    uint64_t time, clock, sessions_given; /* the furthest of all servers */
    ps_account_t account;                 /* that this server goes on with */
};

/* Part N of the checkpoint, looked at again. Errors: as psp_saved_open_part. Gives. */
PSC_MUST_CHECK psc_status_t ps_restore_open_part(const ps_restore_t *restore, uint32_t server,
                                                 psp_saved_t **saved_out, psc_error_t *error);

/* Calls fn with each table that a part has, in the order of their numbers, until it fails. Errors:
 * CORRUPT; those of fn. */
typedef psc_status_t (*ps_restore_table_fn)(void *context, const psp_saved_table_t *from,
                                            const psp_open_table_t *options, psc_error_t *error);
PSC_MUST_CHECK psc_status_t ps_restore_each_table(const ps_restore_t *restore,
                                                  const psp_saved_part_t *part,
                                                  ps_restore_table_fn fn, void *context,
                                                  psc_error_t *error);

/* Whether this server has slots that server N had. */
bool ps_restore_needs(const ps_restore_t *restore, uint32_t server);

/* Whether this server has a slot, and server N had it. */
static inline bool ps_restore_takes(const ps_restore_t *restore, uint32_t server, uint32_t slot)
{
    return restore->before.owner[slot] == server && restore->map.owner[slot] == restore->rank;
}

/* Path of a file of server N. Gives; NULL: out of memory. */
char *ps_restore_path(const ps_restore_t *restore, uint32_t server, const char *file);

/* Sets error and returns: what of server N's part is not as it should be. */
psc_status_t ps_restore_damaged(const ps_restore_t *restore, uint32_t server, const char *what,
                                psc_error_t *error);

#endif
