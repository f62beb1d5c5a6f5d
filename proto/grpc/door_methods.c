/*
 * Messages of embps go to the owner of the transport, which is the server. What is about the door
 * itself, health, it answers here, so that a probe gets its answer while the owner is busy. One
 * more service is one more line in `own`.
 */
#include "proto/grpc/door_methods.h"

#include "proto/grpc/door_calls.h"
#include "proto/grpc/grpc_health.h"

static void answer_health(psp_door_call_t *call, psp_buffer_t *message)
{
    const grpc_status_code status =
        psp_grpc_check_health(message->data, message->size, &call->reply);
    psp_buffer_put(message);
    psp_door_end_call(call, status, status == GRPC_STATUS_OK ? "" : "no such service here");
}

static const struct own_method {
    const char *path;
    psp_door_answer_fn answer;
} own[] = {
    {"/grpc.health.v1.Health/Check", answer_health},
};

bool psp_door_method_find(grpc_slice path, psp_door_method_t *method_out)
{
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++) {
        if (grpc_slice_str_cmp(path, own[i].path) == 0) {
            *method_out = (psp_door_method_t){0, own[i].answer};
            return true;
        }
    }
    const uint32_t kind = psp_grpc_kind(path);
    *method_out = (psp_door_method_t){kind, psp_door_hand_over};
    return kind != 0;
}
