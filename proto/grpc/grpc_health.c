/*
 * Health, answered by the door itself: who gets an answer knows that the port is open, the queue's
 * thread runs, and whether the owner has its rows. A server that is ending refuses calls; who
 * watches is told. The messages are two small fields, read and written here without generated code.
 * Threads: any.
 */
#include "proto/grpc/grpc_health.h"

#include "proto/wire_walk.h"

#include <string.h>

#define SERVICE_FIELD 1u
#define OWN_SERVICE "embps.v1.Embps"

enum { SERVING = 1, NOT_SERVING = 2, SERVICE_UNKNOWN = 3 };

/* OK: a service that is here; NOT_FOUND: another; INVALID_ARGUMENT: no such request. */
static grpc_status_code find_service(const uint8_t *data, size_t size)
{
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
    return GRPC_STATUS_OK;
}

/* A HealthCheckResponse: field 1, status. */
static grpc_byte_buffer *response(uint8_t status)
{
    const char bytes[] = {1 << 3, (char)status};
    grpc_slice slice = grpc_slice_from_copied_buffer(bytes, sizeof bytes);
    grpc_byte_buffer *made = grpc_raw_byte_buffer_create(&slice, 1);
    grpc_slice_unref(slice);
    return made;
}

grpc_status_code psp_grpc_check_health(const uint8_t *data, size_t size, bool serving,
                                       grpc_byte_buffer **reply_out)
{
    const grpc_status_code found = find_service(data, size);
    if (found == GRPC_STATUS_OK)
        *reply_out = response(serving ? SERVING : NOT_SERVING);
    return found;
}

grpc_status_code psp_grpc_watch_health(const uint8_t *data, size_t size,
                                       grpc_byte_buffer **reply_out, grpc_byte_buffer **at_end_out)
{
    const grpc_status_code found = find_service(data, size);
    if (found == GRPC_STATUS_INVALID_ARGUMENT)
        return found;
    *reply_out = response(found == GRPC_STATUS_OK ? SERVING : SERVICE_UNKNOWN);
    *at_end_out = found == GRPC_STATUS_OK ? response(NOT_SERVING) : NULL;
    return GRPC_STATUS_OK;
}
