/*
 * Fuzzing of the door's own services: any bytes as a question of health or reflection are answered
 * or refused with a status, and what is answered is a message of protobuf.
 */
#include "proto/grpc/grpc_health.h"
#include "proto/grpc/grpc_reflection.h"
#include "proto/wire_walk.h"

#include <grpc/byte_buffer.h>
#include <grpc/byte_buffer_reader.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Takes reply. */
static void check(grpc_status_code status, grpc_byte_buffer *reply)
{
    if ((status == GRPC_STATUS_OK) != (reply != NULL))
        abort();
    if (reply == NULL)
        return;
    grpc_byte_buffer_reader reader;
    if (!grpc_byte_buffer_reader_init(&reader, reply))
        abort();
    grpc_slice all = grpc_byte_buffer_reader_readall(&reader);
    const uint8_t *bytes = GRPC_SLICE_START_PTR(all);
    psp_wire_t wire = {.next = bytes, .end = bytes + GRPC_SLICE_LENGTH(all)};
    psp_field_t field;
    do {
        if (psp_wire_next(&wire, &field) != NULL)
            abort();
    } while (field.number != 0);
    grpc_slice_unref(all);
    grpc_byte_buffer_reader_destroy(&reader);
    grpc_byte_buffer_destroy(reply);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    grpc_byte_buffer *reply = NULL, *at_end = NULL;
    const char *text;
    grpc_status_code status;
    for (int serving = 0; serving < 2; serving++) {
        status = psp_grpc_check_health(data, size, serving != 0, &reply);
        check(status, reply);
        reply = NULL;
    }
    status = psp_grpc_watch_health(data, size, &reply, &at_end);
    check(status, reply);
    if (at_end != NULL)
        check(status, at_end);
    reply = NULL;
    status = psp_grpc_reflect(data, size, &reply, &text);
    check(status, reply);
    return 0;
}
