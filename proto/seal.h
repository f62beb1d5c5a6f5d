/*
 * The seal of a message: a checksum of its bytes that the receiver looks at.
 *
 * It is the first field of a message, of a number that no schema has, so that whoever does not know
 * it skips it, and a message without one is not checked:
 *
 *     2 bytes   tag of field 2047, length-delimited: fa 7f
 *     1 byte    length: 21
 *     5 bytes   9e c5 3b d1 76
 *     8 bytes   XXH3 (64 bits, seed 0) of all bytes behind it, exclusive-or the kind of the message
 *               times 0x9e3779b97f4a7c15; never 0. 0: room for a seal, but none
 *     4 bytes   number of the message between two ranks (checked_transport.h); 0 over gRPC
 *     4 bytes   the next number that its sender expects; the same
 *
 * Numbers are little-endian. Threads: any; a buffer is one thread's.
 */
#ifndef PROTO_SEAL_H
#define PROTO_SEAL_H

#include "proto/buffer.h"

#include <stdbool.h>

#define PSP_SEAL_BYTES ((size_t)24)

typedef enum psp_seal {
    PSP_SEAL_NONE,   /* it has none: nothing is known */
    PSP_SEAL_GOOD,   /* it is as it was sent */
    PSP_SEAL_BROKEN, /* it is not */
} psp_seal_t;

/* Makes room for a seal at the beginning of a message: PSP_SEAL_BYTES. */
void psp_seal_leave_room(uint8_t *out);

/* Whether the message in buffer begins with such room, or with a seal. */
bool psp_seal_has_room(const psp_buffer_t *buffer);

/* Seals a message whose bytes and kind are final. Without room for it nothing is done. One that is
 * shared may be sealed again with the same numbers: its bytes stay as they are. */
void psp_seal_put(psp_buffer_t *buffer, uint32_t number, uint32_t expected);

/*
 * What the seal of a message says, which came as one of this kind. A seal whose first eight bytes
 * are damaged is BROKEN as long as any four of them are right.
 */
psp_seal_t psp_seal_look(uint32_t kind, const uint8_t *data, size_t size);

/*
 * Of calls (gRPC). A client seals its Hello; where the answer is sealed, all that follows is, both
 * ways. Without that a Hello, or its answer, is not checked whose first eight bytes are destroyed.
 *
 * Server: a request has come. False: it is damaged. wanted: clients that can are to seal their
 * messages. Sets request->sealed: its answer is to be sealed.
 */
bool psp_seal_take_request(psp_buffer_t *request, bool wanted);
/* Client: the answer to a request of this kind has this seal. False: it is damaged, and the request
 * is to be sent again. *seals: that client and server seal; set by the answer to a Hello. */
bool psp_seal_take_reply(uint32_t request_kind, psp_seal_t seal, bool *seals);

/* The numbers of one that is GOOD. */
uint32_t psp_seal_number(const psp_buffer_t *buffer);
uint32_t psp_seal_expected(const psp_buffer_t *buffer);

#endif
