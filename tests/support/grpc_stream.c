/* A bare client's stream: each step is a batch of its own, which is waited for. */
#include "tests/support/grpc_stream.h"

#include "tests/support/cmocka.h"

#include <grpc/byte_buffer_reader.h>
#include <stdlib.h>
#include <string.h>

#define PATIENCE_S 60

static gpr_timespec patience(void)
{
    return gpr_time_add(gpr_now(GPR_CLOCK_REALTIME),
                        gpr_time_from_seconds(PATIENCE_S, GPR_TIMESPAN));
}

static void begin(grpc_stream_t *stream, const grpc_op *op, void *tag)
{
    assert_int_equal(grpc_call_start_batch(stream->call, op, 1, tag, NULL), GRPC_CALL_OK);
}

/* Waits for the step of this tag. */
static bool await(grpc_stream_t *stream, void *tag)
{
    grpc_event event = grpc_completion_queue_pluck(stream->queue, tag, patience(), NULL);
    assert_int_equal(event.type, GRPC_OP_COMPLETE);
    return event.success != 0;
}

void grpc_stream_open(grpc_stream_t *stream, grpc_caller_t *caller, const char *method)
{
    *stream = (grpc_stream_t){.status = GRPC_STATUS_UNKNOWN};
    stream->queue = grpc_completion_queue_create_for_pluck(NULL);
    stream->call =
        grpc_channel_create_call(caller->channel, NULL, GRPC_PROPAGATE_DEFAULTS, stream->queue,
                                 grpc_slice_from_static_string(method), NULL, patience(), NULL);
    grpc_metadata_array_init(&stream->initial);
    grpc_metadata_array_init(&stream->trailing);
    grpc_op end = {.op = GRPC_OP_RECV_STATUS_ON_CLIENT};
    end.data.recv_status_on_client.trailing_metadata = &stream->trailing;
    end.data.recv_status_on_client.status = &stream->status;
    end.data.recv_status_on_client.status_details = &stream->details;
    begin(stream, &end, &stream->ended);
    const grpc_op send = {.op = GRPC_OP_SEND_INITIAL_METADATA};
    begin(stream, &send, stream);
    (void)await(stream, stream);
    grpc_op receive = {.op = GRPC_OP_RECV_INITIAL_METADATA};
    receive.data.recv_initial_metadata.recv_initial_metadata = &stream->initial;
    begin(stream, &receive, &stream->initial);
}

bool grpc_stream_say(grpc_stream_t *stream, const void *bytes, size_t size)
{
    grpc_slice slice = grpc_slice_from_copied_buffer(bytes, size);
    grpc_byte_buffer *message = grpc_raw_byte_buffer_create(&slice, 1);
    grpc_slice_unref(slice);
    grpc_op send = {.op = GRPC_OP_SEND_MESSAGE};
    send.data.send_message.send_message = message;
    begin(stream, &send, stream);
    const bool left = await(stream, stream);
    grpc_byte_buffer_destroy(message);
    return left;
}

void grpc_stream_said(grpc_stream_t *stream)
{
    const grpc_op send = {.op = GRPC_OP_SEND_CLOSE_FROM_CLIENT};
    begin(stream, &send, stream);
    (void)await(stream, stream);
}

bool grpc_stream_hear(grpc_stream_t *stream)
{
    grpc_byte_buffer *got = NULL;
    grpc_op receive = {.op = GRPC_OP_RECV_MESSAGE};
    receive.data.recv_message.recv_message = &got;
    begin(stream, &receive, stream);
    (void)await(stream, stream);
    if (got == NULL)
        return false;
    grpc_byte_buffer_reader reader;
    assert_true(grpc_byte_buffer_reader_init(&reader, got));
    grpc_slice all = grpc_byte_buffer_reader_readall(&reader);
    free(stream->heard);
    stream->heard_size = GRPC_SLICE_LENGTH(all);
    stream->heard = malloc(stream->heard_size + 1);
    assert_non_null(stream->heard);
    memcpy(stream->heard, GRPC_SLICE_START_PTR(all), stream->heard_size);
    grpc_slice_unref(all);
    grpc_byte_buffer_reader_destroy(&reader);
    grpc_byte_buffer_destroy(got);
    return true;
}

void grpc_stream_cancel(grpc_stream_t *stream)
{
    (void)grpc_call_cancel(stream->call, NULL);
}

grpc_status_code grpc_stream_end(grpc_stream_t *stream)
{
    (void)await(stream, &stream->ended);
    (void)await(stream, &stream->initial);
    size_t n = GRPC_SLICE_LENGTH(stream->details);
    n = n < sizeof stream->text - 1 ? n : sizeof stream->text - 1;
    memcpy(stream->text, GRPC_SLICE_START_PTR(stream->details), n);
    stream->text[n] = '\0';
    grpc_slice_unref(stream->details);
    grpc_metadata_array_destroy(&stream->initial);
    grpc_metadata_array_destroy(&stream->trailing);
    grpc_call_unref(stream->call);
    grpc_completion_queue_shutdown(stream->queue);
    grpc_completion_queue_destroy(stream->queue);
    free(stream->heard);
    stream->heard = NULL;
    return stream->status;
}
