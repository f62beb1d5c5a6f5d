/*
 * What the files of a server share (server.c, server_open.c). Inside ps/ only.
 */
#ifndef PS_SERVER_INSIDE_H
#define PS_SERVER_INSIDE_H

#include "ps/checkpoint/restore.h"
#include "ps/checkpoint/writer.h"
#include "ps/data_dir.h"
#include "ps/server.h"
#include "ps/server_log.h"
#include "ps/server_rounds.h"
#include "ps/store/store.h"
#include "ps/table/shard.h"

#include <pthread.h>
#include <stdatomic.h>

#define PS_SERVER_HOST_BYTES 256

typedef struct held {
    psc_queue_node_t *head, *tail;
} held_t;

struct ps_server {
    ps_server_options_t options;
    ps_data_dir_t *dir;
    ps_store_t *store;
    ps_shard_t *shard;
    held_t *held; /* by peer */
    size_t n_held;
    uint32_t worst_status, n_lost;
    ps_watch_t *watch; /* NULL: workers cannot be lost */
    uint64_t looked_us;
    char host[PS_SERVER_HOST_BYTES];
    pthread_mutex_t lock;
    psp_transport_t *transport; /* guarded by lock for wake; NULL outside of run */
    atomic_bool stopped;
    ps_keeper_t *keeper; /* NULL: no checkpoints are made */
    ps_writer_t *writer;
    ps_restore_t *restore;              /* the checkpoint that it went on from; NULL: none */
    ps_server_log_t *log;               /* NULL: none is written, and there is none */
    ps_server_rounds_t *rounds;         /* NULL: it makes none by itself */
    char saved[PSP_SAVED_NAME_MAX + 1]; /* the last checkpoint of all; "": it was not made */
    psc_error_t save_fault;             /* why not */
};

/* Ends the owner's wait. context: the server. Any thread. */
void ps_server_wake(void *context);

/* Of ps_reply_fn; context: the server. */
void ps_server_send_reply(void *context, uint32_t peer, psp_buffer_t *buffer);

/* Makes all that a server consists of, out of its options. On error what was made so far stays, for
 * ps_server_close. Errors: as ps_server_open. */
PSC_MUST_CHECK psc_status_t ps_server_open_parts(ps_server_t *server, psc_error_t *error);

#endif
