/*
 * Server reflection, grpc.reflection.v1 and v1alpha, which differ in name alone: what services
 * there are and what their messages look like, for tools that were not made from the schema.
 * Inside proto/grpc/ only.
 *
 * Source: https://github.com/grpc/grpc/blob/v1.51.0/doc/server-reflection.md
 */
#ifndef PROTO_GRPC_GRPC_REFLECTION_H
#define PROTO_GRPC_GRPC_REFLECTION_H

#include <grpc/grpc.h>
#include <stdint.h>

#define PSP_REFLECTION_MAX_BYTES 4096u /* of a question */

/*
 * Answers a ServerReflectionRequest. What is not there is an answer too (its error_response says
 * NOT_FOUND). *reply_out: for grpc_byte_buffer_destroy, or NULL with a status other than OK:
 * INVALID_ARGUMENT (no such message), RESOURCE_EXHAUSTED (longer than the limit). *text_out: why
 * (static). Any bytes are safe.
 */
grpc_status_code psp_grpc_reflect(const uint8_t *data, size_t size, grpc_byte_buffer **reply_out,
                                  const char **text_out);

#endif
