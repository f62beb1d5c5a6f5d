/*
 * Scratch memory of unpacking: a bump allocator with a limit, and its face towards protobuf-c.
 *
 * Inside proto/ only. The handle's functions for others are in proto/message.h.
 */
#ifndef PROTO_UNPACK_MEMORY_H
#define PROTO_UNPACK_MEMORY_H

#include "proto/message.h"

#include <protobuf-c/protobuf-c.h>

/* Forgets all that was allocated. */
void psp_scratch_reset(psp_scratch_t *scratch);

/* size bytes at a 16-byte boundary, valid until the next reset; NULL when the limit is reached. */
void *psp_scratch_alloc(psp_scratch_t *scratch, size_t size);

/* True when an allocation was refused since the last reset. */
bool psp_scratch_exhausted(const psp_scratch_t *scratch);

size_t psp_scratch_limit(const psp_scratch_t *scratch);

/* For protobuf-c; its free does nothing. Borrowed from scratch. */
ProtobufCAllocator *psp_scratch_allocator(psp_scratch_t *scratch);

#endif
