/*
 * The standard health service, grpc.health.v1: whether a server answers, for probes that know
 * nothing of embps. Check alone; who calls Watch is told that there is none, as the protocol has
 * it. Inside proto/grpc/ only.
 *
 * Source: https://github.com/grpc/grpc/blob/v1.51.0/doc/health-checking.md
 */
#ifndef PROTO_GRPC_GRPC_HEALTH_H
#define PROTO_GRPC_GRPC_HEALTH_H

#include <grpc/grpc.h>
#include <stdint.h>

/*
 * Answers a HealthCheckRequest: SERVING for "" and for embps.v1.Embps. *reply_out: for
 * grpc_byte_buffer_destroy, or NULL with a status other than OK: NOT_FOUND (another service),
 * INVALID_ARGUMENT. Any bytes are safe.
 */
grpc_status_code psp_grpc_check_health(const uint8_t *data, size_t size,
                                       grpc_byte_buffer **reply_out);

#endif
