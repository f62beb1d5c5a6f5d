/*
 * Health, answered by the door itself: who gets an answer knows that the port is open and the
 * queue's thread runs. A server that is ending refuses this call like any other. The messages are
 * two small fields, read and written here without generated code. Threads: any.
 */
#include "proto/grpc/grpc_health.h"

#include "proto/wire_walk.h"

#include <string.h>

#define SERVICE_FIELD 1u
#define OWN_SERVICE "embps.v1.Embps"

grpc_status_code psp_grpc_check_health(const uint8_t *data, size_t size,
                                       grpc_byte_buffer **reply_out)
{
    static const uint8_t serving[] = {1 << 3, 1}; /* field 1, status: SERVING */
    psp_wire_t wire = {.next = data, .end = data + size};
    psp_field_t field, service = {.number = 0};
    do {
        if (psp_wire_next(&wire, &field) != NULL)
            return GRPC_STATUS_INVALID_ARGUMENT;
        if (field.number == SERVICE_FIELD)
            service = field;
    } while (field.number != 0);
    if (service.number != 0 && service.type != PSP_WIRE_BYTES)
        return GRPC_STATUS_INVALID_ARGUMENT;
    if (service.size != 0 && (service.size != sizeof OWN_SERVICE - 1 ||
                              memcmp(service.payload, OWN_SERVICE, service.size) != 0))
        return GRPC_STATUS_NOT_FOUND;
    grpc_slice slice = grpc_slice_from_static_buffer(serving, sizeof serving);
    *reply_out = grpc_raw_byte_buffer_create(&slice, 1);
    return GRPC_STATUS_OK;
}
