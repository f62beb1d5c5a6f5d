/*
 * The thread that writes checkpoints: does the jobs of ps/table/saver.h with files.
 *
 * Threads: the owner's for everything here; the writer has one of its own.
 */
#ifndef PS_CHECKPOINT_WRITER_H
#define PS_CHECKPOINT_WRITER_H

#include "ps/checkpoint/keeper.h"
#include "ps/table/saver.h"

typedef struct ps_writer ps_writer_t;

typedef struct ps_writer_options {
    ps_keeper_t *keeper; /* borrowed; the writer's alone while it runs */
    uint32_t rank;
    const char *staging; /* copies */
    ps_wake_fn wake;     /* from the writer's thread, when a job is finished */
    void *wake_context;
} ps_writer_options_t;

/* Errors: NO_MEMORY, IO. Gives. */
PSC_MUST_CHECK psc_status_t ps_writer_start(const ps_writer_options_t *options,
                                            ps_writer_t **writer_out, psc_error_t *error);

/* Ends the thread after the jobs that it has; what they wrote and did not commit goes with the next
 * start. NULL is a no-op. */
void ps_writer_stop(ps_writer_t *writer);

/* What a shard is given. Borrowed from writer. */
const ps_save_writer_t *ps_writer_interface(const ps_writer_t *writer);

#endif
