/*
 * Signs of life: small messages that are sent again and again, whatever the program does. Inside
 * proto/grpc/ only.
 */
#ifndef PROTO_GRPC_GRPC_SIGNS_H
#define PROTO_GRPC_GRPC_SIGNS_H

#include "proto/grpc/grpc_layer.h"
#include "proto/grpc/grpc_secrets.h"

typedef struct psp_grpc_signs psp_grpc_signs_t;

/* Starts the thread that sends them. Borrows queue and secrets, whose token goes
 * with them and is read anew where its file has changed. Errors:
 * NO_MEMORY, IO (no thread). Gives. */
PSC_MUST_CHECK psc_status_t psp_grpc_signs_create(psp_grpc_queue_t *queue,
                                                  psp_grpc_secrets_t *secrets,
                                                  psp_grpc_signs_t **signs_out, psc_error_t *error);
/* Gives up what is under way. Before the channels and the queue. NULL is a no-op. */
void psp_grpc_signs_destroy(psp_grpc_signs_t *signs);

/* One more message, the first time after period_us. One that was not answered when the next is due
 * is waited for. Borrows channel, takes sign, also on error. Errors: NO_MEMORY. */
PSC_MUST_CHECK psc_status_t psp_grpc_signs_add(psp_grpc_signs_t *signs, grpc_channel *channel,
                                               psp_buffer_t *sign, uint64_t period_us,
                                               psc_error_t *error);

/* From now on the messages of one channel go over another, which is borrowed in its place. */
void psp_grpc_signs_move(psp_grpc_signs_t *signs, const grpc_channel *from, grpc_channel *to);

#endif
