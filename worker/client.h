/*
 * The client behind embps.h, for programs of this tree that need more than the public calls.
 */
#ifndef WORKER_CLIENT_H
#define WORKER_CLIENT_H

#include "common/status.h"
#include "embps.h"
#include "proto/message.h"
#include "proto/mpi/mpi_transport.h"

/*
 * A client over a job that the caller created and keeps (embps_connect_mpi makes its own). The
 * caller has already agreed with all ranks (psp_mpi_job_agree_all). Errors: as embps_connect_mpi.
 */
PSC_MUST_CHECK psc_status_t psw_client_connect_job(psp_mpi_job_t *job, embps_client_t **client_out,
                                                   psc_error_t *error);

/* Where a server of this process makes checkpoints and goes on from them, as embps-server has it.
 * Borrowed for the call. */
typedef struct psw_local_checkpoints {
    const char *folder; /* NULL: none are made, and the rest counts for nothing */
    const char *resume; /* "auto", "none" or the name of one */
    uint64_t keep;      /* 0: all */
} psw_local_checkpoints_t;

/* embps_connect_local_many with checkpoints. Errors: those, and what embps-server says of a folder
 * that it cannot go on from. */
PSC_MUST_CHECK psc_status_t psw_client_connect_local(const embps_local_options_t *options,
                                                     const psw_local_checkpoints_t *checkpoints,
                                                     embps_client_t **clients_out,
                                                     psc_error_t *error);

/* psc_error_t and embps_error_t are the same plain data; copied at the border. */
int psw_error_export(const psc_error_t *from, embps_error_t *to);

/* embps_barrier that also tells who is still there. */
PSC_MUST_CHECK psc_status_t psw_client_barrier(embps_client_t *client,
                                               psp_barrier_reply_t *reply_out, psc_error_t *error);

/* PSC_OK, or what ended the client (error filled): no later call can do anything. */
psc_status_t psw_client_state(const embps_client_t *client, psc_error_t *error);

/* The checkpoint that the servers have gone on from, "": none. Borrowed. */
const char *psw_client_resumed(const embps_client_t *client);

/* The least rank of the workers that are still there, as servers said when this client's last clock
 * ended, 0 before; n_lost_out: how many were lost by then, or NULL. */
uint32_t psw_client_first(const embps_client_t *client, uint32_t *n_lost_out);

/* Pushes of the table are counted from n on: the random bits that round what is pushed, in formats
 * other than float32, follow that count. */
void psw_table_count_pushes(embps_table_t *table, uint64_t n);

/*
 * embps_clock in two parts: the clock ends at the start, behind all that was issued before; how far
 * all workers are is known at the finish, which may come any time later. At staleness 0 the start
 * waits for what was issued before. The start gives, the finish takes request. Errors: those of
 * embps_clock.
 */
PSC_MUST_CHECK psc_status_t psw_client_clock_start(embps_client_t *client, uint64_t progress,
                                                   embps_request_t **request_out,
                                                   psc_error_t *error);
PSC_MUST_CHECK psc_status_t psw_client_clock_finish(embps_client_t *client,
                                                    embps_request_t *request,
                                                    uint64_t *total_progress_out,
                                                    psc_error_t *error);

/*
 * A push whose rows the caller writes straight into the messages, without a copy of its own: for
 * i in [0, n) fill(context, i, row) is called once, in order of servers, with row [dim] to write.
 * ids must be distinct (not checked) and the values finite (not checked).
 */
typedef void (*psw_fill_fn)(void *context, size_t i, float *row);
PSC_MUST_CHECK psc_status_t psw_push_fill_start(embps_table_t *table, embps_push_kind_t kind,
                                                const uint64_t *ids, size_t n, psw_fill_fn fill,
                                                void *context, float learning_rate,
                                                embps_request_t **request_out, psc_error_t *error);

/*
 * A pull of distinct ids into rows_out with a row stride of stride_floats >= dim (floats past dim
 * are left alone).
 */
PSC_MUST_CHECK psc_status_t psw_pull_strided_start(embps_table_t *table, const uint64_t *ids,
                                                   size_t n, float *rows_out, size_t stride_floats,
                                                   embps_request_t **request_out,
                                                   psc_error_t *error);

/* embps_prefetch; distinct: the caller knows that the ids are distinct. */
PSC_MUST_CHECK psc_status_t psw_prefetch(embps_table_t *table, const uint64_t *ids, size_t n,
                                         uint64_t clock, bool distinct, psc_error_t *error);

/*
 * Between the last push of a clock and its end: deltas that the cache has to send before the clock
 * ends are issued now, so that ending it does not wait for them. Errors: those of embps_push.
 */
PSC_MUST_CHECK psc_status_t psw_flush_due(embps_client_t *client, psc_error_t *error);

#endif
