/*
 * Messages of embps go to the owner of the transport, which is the server. What is about the door
 * itself, health and reflection, it answers here, so that a probe gets its answer while the owner
 * is busy. Streams go to the owner frame by frame (door_frames). One more method is one more line
 * in `own`.
 */
#include "proto/grpc/door_methods.h"

#include "proto/grpc/door_calls.h"
#include "proto/grpc/door_frames.h"
#include "proto/grpc/door_streams.h"
#include "proto/grpc/grpc_health.h"
#include "proto/grpc/grpc_reflection.h"

static void check_health(psp_door_call_t *call, psp_buffer_t *message)
{
    const bool serving = psp_door_not_yet(call->door) == NULL;
    const grpc_status_code status =
        psp_grpc_check_health(message->data, message->size, serving, &call->reply);
    psp_buffer_put(message);
    psp_door_end_call(call, status, status == GRPC_STATUS_OK ? "" : "no such service here");
}

/* How it is now; then nothing happens until the door is closed. Before it serves, who watches is
 * told to come again, as health.proto has it. */
static void watch_health(psp_door_call_t *call, psp_buffer_t *message)
{
    grpc_byte_buffer *at_end = NULL;
    const char *not_yet = psp_door_not_yet(call->door);
    if (not_yet != NULL) {
        psp_buffer_put(message);
        psp_door_end_call(call, GRPC_STATUS_UNAVAILABLE, not_yet);
        return;
    }
    const grpc_status_code status =
        psp_grpc_watch_health(message->data, message->size, &call->reply, &at_end);
    psp_buffer_put(message);
    if (status == GRPC_STATUS_OK)
        psp_door_stream_rest(call, at_end);
    else
        psp_door_end_call(call, status, "malformed");
}

static void reflect(psp_door_call_t *call, psp_buffer_t *message)
{
    const char *text;
    const grpc_status_code status =
        psp_grpc_reflect(message->data, message->size, &call->reply, &text);
    psp_buffer_put(message);
    if (status == GRPC_STATUS_OK)
        psp_door_stream_answer(call);
    else
        psp_door_end_call(call, status, text);
}

static const struct own_method {
    const char *path;
    psp_door_method_t method;
} own[] = {
    {"/grpc.health.v1.Health/Check", {.answer = check_health}},
    {"/grpc.health.v1.Health/Watch", {.answer = watch_health, .is_stream = true}},
    {"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
     {.answer = reflect, .is_stream = true, .asks_again = true}},
    {"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
     {.answer = reflect, .is_stream = true, .asks_again = true}},
    {"/embps.v1.Embps/Export",
     {.kind = PSP_EXPORT,
      .answer = psp_door_frames_begin,
      .is_stream = true,
      .reply = psp_door_frames_write,
      .sent = psp_door_frames_go_on}},
    {"/embps.v1.Embps/Watch",
     {.kind = PSP_WATCH,
      .answer = psp_door_frames_begin,
      .is_stream = true,
      .reply = psp_door_frames_write,
      .sent = psp_door_frames_go_on}},
    {"/embps.v1.Embps/Import",
     {.kind = PSP_IMPORT,
      .answer = psp_door_hand_over,
      .is_stream = true,
      .asks_again = true,
      .reply = psp_door_frames_ask,
      .finish = psp_door_frames_sum_up}},
};

bool psp_door_method_find(grpc_slice path, psp_door_method_t *method_out)
{
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++) {
        if (grpc_slice_str_cmp(path, own[i].path) == 0) {
            *method_out = own[i].method;
            return true;
        }
    }
    const uint32_t kind = psp_grpc_kind(path);
    *method_out = (psp_door_method_t){.kind = kind, .answer = psp_door_hand_over};
    return kind != 0;
}
