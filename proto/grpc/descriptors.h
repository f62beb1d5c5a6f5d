/*
 * The schema of the door's services, as protoc made it when embps was built, and what is where in
 * it. Inside proto/grpc/ only.
 *
 *     psp_text_t file = psp_descriptors_file_with(symbol);      file.data NULL: no such symbol
 *     psp_descriptors_services(take, context);                  take("embps.v1.Embps") ...
 *
 * Source: descriptor.proto of protobuf, https://protobuf.dev/reference/protobuf/google.protobuf
 */
#ifndef PROTO_GRPC_DESCRIPTORS_H
#define PROTO_GRPC_DESCRIPTORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A FileDescriptorSet. Made by descriptors.cmake. */
extern const uint8_t psp_descriptor_bytes[];
extern const size_t psp_descriptor_size;

/* Bytes that lie elsewhere; borrowed. */
typedef struct psp_text {
    const uint8_t *data;
    size_t size;
} psp_text_t;

/* The FileDescriptorProto of this name, or the one that defines this symbol: a service, method,
 * message, field, enum, or value of an enum, with its package. data NULL: none. Any bytes are safe.
 * Static. */
psp_text_t psp_descriptors_file(psp_text_t name);
psp_text_t psp_descriptors_file_with(psp_text_t symbol);
/* The same for a message alone. */
psp_text_t psp_descriptors_file_with_message(psp_text_t symbol);

/* Calls take for every service, in the order of the files. package and name: static. */
typedef void (*psp_take_service_fn)(void *context, psp_text_t package, psp_text_t name);
void psp_descriptors_services(psp_take_service_fn take, void *context);

#endif
