/*
 * The standard health service, grpc.health.v1: whether a server answers, for probes that know
 * nothing of embps. Inside proto/grpc/ only.
 *
 * Source: https://github.com/grpc/grpc/blob/v1.51.0/doc/health-checking.md
 */
#ifndef PROTO_GRPC_GRPC_HEALTH_H
#define PROTO_GRPC_GRPC_HEALTH_H

#include <grpc/grpc.h>
#include <stdbool.h>
#include <stdint.h>

/*
 * Answers a HealthCheckRequest: SERVING, or NOT_SERVING, for "" and for embps.v1.Embps.
 * *reply_out: for grpc_byte_buffer_destroy, or NULL with a status other than OK: NOT_FOUND (another
 * service), INVALID_ARGUMENT. Any bytes are safe.
 */
grpc_status_code psp_grpc_check_health(const uint8_t *data, size_t size, bool serving,
                                       grpc_byte_buffer **reply_out);

/*
 * The same for Watch: what is said now, and what when the server ends, NOT_SERVING. Of another
 * service SERVICE_UNKNOWN, and nothing at the end: *at_end_out is NULL. Errors: INVALID_ARGUMENT.
 */
grpc_status_code psp_grpc_watch_health(const uint8_t *data, size_t size,
                                       grpc_byte_buffer **reply_out, grpc_byte_buffer **at_end_out);

#endif
