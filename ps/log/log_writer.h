/*
 * The thread that writes a log: all that has come since the last write goes in one go.
 *
 * Threads: the owner's for everything here; the writer has one of its own.
 */
#ifndef PS_LOG_LOG_WRITER_H
#define PS_LOG_LOG_WRITER_H

#include "ps/log/log_file.h"
#include "ps/store/io.h"

typedef struct ps_log_writer ps_log_writer_t;

typedef struct ps_log_writer_options {
    const char *checkpoints; /* their folder; copied */
    const char *folder;      /* this server's; copied */
    ps_log_head_t head;      /* of the segment to begin with, which ps_log_make made */
    bool records;            /* what changes the shard is logged */
    bool sync;               /* what is written is on the disk, and not with the system alone */
    uint64_t sync_bytes;     /* without sync it is brought there every so many; 0: 1 GiB */
    ps_wake_fn wake; /* from the writer's thread, when more is written, or nothing more is */
    void *wake_context;
} ps_log_writer_options_t;

/* Errors: NO_MEMORY, IO. Gives. */
PSC_MUST_CHECK psc_status_t ps_log_writer_start(const ps_log_writer_options_t *options,
                                                ps_log_writer_t **writer_out, psc_error_t *error);

/* Ends the thread after the entries that it has. They stay the shard's. NULL is a no-op. */
void ps_log_writer_stop(ps_log_writer_t *writer);
/* Frees what is left. NULL is a no-op. */
void ps_log_writer_destroy(ps_log_writer_t *writer);

/* What a shard is given. Borrowed from writer. */
const ps_log_sink_t *ps_log_writer_sink(const ps_log_writer_t *writer);

#endif
