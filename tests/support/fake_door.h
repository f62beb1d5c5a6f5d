/*
 * A gRPC server that does what a test tells it: takes any unary call and answers, refuses or keeps
 * it. Ends the test when it cannot work.
 */
#ifndef TESTS_SUPPORT_FAKE_DOOR_H
#define TESTS_SUPPORT_FAKE_DOOR_H

#include "proto/buffer.h"

#include <grpc/status.h>

typedef struct fake_door fake_door_t;

/* Decides on a call, on a thread of the door: returns the status. With GRPC_STATUS_OK and
 * *reply_out set (takes it) that is the answer; with NULL the call is kept for ever. request: kind
 * and bytes; borrowed. */
typedef grpc_status_code (*fake_door_fn)(void *context, const psp_buffer_t *request,
                                         psp_buffer_t **reply_out);

/* Listens on 127.0.0.1, port 0: one that the system chooses. Gives. */
fake_door_t *fake_door_start(uint16_t port, fake_door_fn decide, void *context);
/* Cancels all calls and closes. */
void fake_door_stop(fake_door_t *door);
uint16_t fake_door_port(const fake_door_t *door);

#endif
