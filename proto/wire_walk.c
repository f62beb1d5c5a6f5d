/*
 * The walker over protobuf's wire format.
 *
 * Purpose: bulk fields are found here and used where they lie, and whatever protobuf-c would accept
 * silently or fail on without a word is refused with the reason: cut-off fields, groups, a field of
 * the wrong wire type, a NUL inside a string (protobuf-c hands out C strings). No memory is taken.
 *
 * The schema is two levels deep; the check recurses by the schema, not by the bytes, so that its
 * depth is bounded by the schema (no message contains itself).
 *
 * Cost: a few instructions a field, plus one pass over strings.
 */
#include "proto/wire_walk.h"

#include <string.h>

#define MAX_FIELD_NUMBER ((1u << 29) - 1)

/* False when the varint is cut off or longer than ten bytes. */
static bool read_varint(psp_wire_t *wire, uint64_t *value_out)
{
    uint64_t value = 0;
    for (unsigned int shift = 0; shift < 70; shift += 7) {
        if (wire->next == wire->end)
            return false;
        uint8_t byte = *wire->next++;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if ((byte & 0x80) == 0) {
            *value_out = value;
            return true;
        }
    }
    return false;
}

/* Sets payload and size, and steps over them. */
static const char *read_payload(psp_wire_t *wire, psp_field_t *field)
{
    uint64_t size = 0;
    field->payload = wire->next;
    switch (field->type) {
    case PSP_WIRE_VARINT: {
        uint64_t ignored;
        if (!read_varint(wire, &ignored))
            return "a number is cut off";
        field->size = (size_t)(wire->next - field->payload);
        return NULL;
    }
    case PSP_WIRE_64:
        size = 8;
        break;
    case PSP_WIRE_32:
        size = 4;
        break;
    case PSP_WIRE_BYTES:
        if (!read_varint(wire, &size))
            return "a length is cut off";
        field->payload = wire->next;
        break;
    }
    if (size > (uint64_t)(wire->end - wire->next))
        return "a field is longer than what holds it";
    field->size = (size_t)size;
    wire->next += field->size;
    return NULL;
}

const char *psp_wire_next(psp_wire_t *wire, psp_field_t *field_out)
{
    *field_out = (psp_field_t){.start = wire->next};
    if (wire->next == wire->end)
        return NULL;
    uint64_t tag;
    if (!read_varint(wire, &tag))
        return "a field's tag is cut off";
    if (tag >> 3 == 0 || tag >> 3 > MAX_FIELD_NUMBER)
        return "a field number is out of range";
    switch (tag & 7) {
    case 0:
        field_out->type = PSP_WIRE_VARINT;
        break;
    case 1:
        field_out->type = PSP_WIRE_64;
        break;
    case 2:
        field_out->type = PSP_WIRE_BYTES;
        break;
    case 5:
        field_out->type = PSP_WIRE_32;
        break;
    case 3:
    case 4:
        return "it holds a group, which this format does not have";
    default:
        return "a field has a wire type that does not exist";
    }
    const char *fault = read_payload(wire, field_out);
    if (fault == NULL)
        field_out->number = (uint32_t)(tag >> 3);
    return fault;
}

static psp_wire_type_t wire_type_of(ProtobufCType type)
{
    switch (type) {
    case PROTOBUF_C_TYPE_SFIXED32:
    case PROTOBUF_C_TYPE_FIXED32:
    case PROTOBUF_C_TYPE_FLOAT:
        return PSP_WIRE_32;
    case PROTOBUF_C_TYPE_SFIXED64:
    case PROTOBUF_C_TYPE_FIXED64:
    case PROTOBUF_C_TYPE_DOUBLE:
        return PSP_WIRE_64;
    case PROTOBUF_C_TYPE_STRING:
    case PROTOBUF_C_TYPE_BYTES:
    case PROTOBUF_C_TYPE_MESSAGE:
        return PSP_WIRE_BYTES;
    case PROTOBUF_C_TYPE_INT32:
    case PROTOBUF_C_TYPE_SINT32:
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_UINT32:
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_BOOL:
    case PROTOBUF_C_TYPE_ENUM:
        break;
    }
    return PSP_WIRE_VARINT;
}

/* A packed run of fixed-size numbers is a whole number of them. */
static const char *check_packed(psp_wire_type_t type, size_t size)
{
    if ((type == PSP_WIRE_64 && size % 8 != 0) || (type == PSP_WIRE_32 && size % 4 != 0))
        return "a packed field ends within a number";
    return NULL;
}

static const char *check_submessage(const ProtobufCMessageDescriptor *descriptor,
                                    const psp_field_t *field, const char **name_out)
{
    psp_wire_t wire = {.next = field->payload, .end = field->payload + field->size};
    for (;;) {
        psp_field_t inner;
        const char *fault = psp_wire_next(&wire, &inner);
        if (fault != NULL || inner.number == 0)
            return fault;
        const ProtobufCFieldDescriptor *known =
            protobuf_c_message_descriptor_get_field(descriptor, inner.number);
        fault = known != NULL ? psp_wire_check(known, &inner, name_out) : NULL;
        if (fault != NULL)
            return fault;
    }
}

const char *psp_wire_check(const ProtobufCFieldDescriptor *descriptor, const psp_field_t *field,
                           const char **name_out)
{
    *name_out = descriptor->name;
    psp_wire_type_t type = wire_type_of(descriptor->type);
    bool packed = descriptor->label == PROTOBUF_C_LABEL_REPEATED && type != PSP_WIRE_BYTES &&
                  field->type == PSP_WIRE_BYTES;
    if (packed)
        return check_packed(type, field->size);
    if (field->type != type)
        return "it has the wrong wire type";
    if (descriptor->type == PROTOBUF_C_TYPE_STRING && field->size != 0 &&
        memchr(field->payload, 0, field->size) != NULL)
        return "a text holds a NUL byte";
    if (descriptor->type == PROTOBUF_C_TYPE_MESSAGE) {
        const char *fault = check_submessage(descriptor->descriptor, field, name_out);
        return fault;
    }
    return NULL;
}

size_t psp_varint_size(uint64_t value)
{
    return (70u - (unsigned int)__builtin_clzll(value | 1)) / 7;
}

uint8_t *psp_varint_write(uint8_t *out, uint64_t value)
{
    while (value >= 0x80) {
        *out++ = (uint8_t)(value | 0x80);
        value >>= 7;
    }
    *out++ = (uint8_t)value;
    return out;
}
