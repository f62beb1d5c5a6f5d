/*
 * Reading protobuf's wire format field by field, without taking memory.
 *
 *     psp_wire_t wire = {.next = data, .end = data + size};
 *     psp_field_t field;
 *     while ((fault = psp_wire_next(&wire, &field)) == NULL && field.number != 0)
 *         ...
 *
 * Inside proto/ only. Source: protobuf's encoding guide,
 * https://protobuf.dev/programming-guides/encoding/
 */
#ifndef PROTO_WIRE_WALK_H
#define PROTO_WIRE_WALK_H

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum psp_wire_type {
    PSP_WIRE_VARINT = 0,
    PSP_WIRE_64 = 1,
    PSP_WIRE_BYTES = 2,
    PSP_WIRE_32 = 5,
} psp_wire_type_t;

typedef struct psp_wire {
    const uint8_t *next;
    const uint8_t *end;
} psp_wire_t;

typedef struct psp_field {
    uint32_t number; /* 0: the end was reached */
    psp_wire_type_t type;
    const uint8_t *start;   /* of the tag */
    const uint8_t *payload; /* what follows tag and length */
    size_t size;            /* of the payload */
} psp_field_t;

/* The next field. Returns NULL, or in words what is wrong (static). */
const char *psp_wire_next(psp_wire_t *wire, psp_field_t *field_out);

/*
 * Does the field's type on the wire fit what the schema says (packed or not)? And, for a string: no
 * NUL within; for a submessage: its fields, all the way down. Returns NULL or what is wrong
 * (static); *name_out is then the name of the field it concerns.
 */
const char *psp_wire_check(const ProtobufCFieldDescriptor *descriptor, const psp_field_t *field,
                           const char **name_out);

/* Bytes of value as a varint: 1 to 10. */
size_t psp_varint_size(uint64_t value);

/* Writes it; returns its end. */
uint8_t *psp_varint_write(uint8_t *out, uint64_t value);

#endif
