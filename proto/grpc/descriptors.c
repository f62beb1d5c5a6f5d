/*
 * Descriptors are read where they lie, anew for each question: they are a few KiB, and questions
 * come when a person tries something.
 *
 * What a descriptor holds is one table: which field of it holds descriptors of what. Names are
 * found by going down as many levels as the symbol has parts; a value of an enum stands beside the
 * enum in protobuf's name space, not within it. The bytes are our own build's, so that what cannot
 * be read there is a bug; symbols come from anybody.
 *
 * Threads: any.
 */
#include "proto/grpc/descriptors.h"

#include "common/log.h"
#include "proto/wire_walk.h"

#include <string.h>

#define FILE_FIELD 1u /* of a FileDescriptorSet */
#define NAME_FIELD 1u /* of everything else */
#define PACKAGE_FIELD 2u
#define SERVICE_FIELD 6u

typedef enum element { FILE_OF_IT, MESSAGE, ENUM, SERVICE, LEAF, N_ELEMENTS } element_t;

/* Field -> what it describes; LEAF: fields, methods and values. 0 ends, which is no element within
 * another. */
#define WITHIN_MAX 5
static const struct within {
    uint32_t field;
    element_t element;
} within[N_ELEMENTS][WITHIN_MAX] = {
    [FILE_OF_IT] = {{4, MESSAGE}, {5, ENUM}, {6, SERVICE}, {7, LEAF}},
    [MESSAGE] = {{2, LEAF}, {3, MESSAGE}, {4, ENUM}, {8, LEAF}},
    [ENUM] = {{2, LEAF}},
    [SERVICE] = {{2, LEAF}},
};

static element_t element_within(element_t outer, uint32_t field)
{
    for (size_t i = 0; i < WITHIN_MAX && within[outer][i].field != 0; i++) {
        if (within[outer][i].field == field)
            return within[outer][i].element;
    }
    return FILE_OF_IT;
}

/* The next field of a descriptor; false: the end. */
static bool next(psp_wire_t *wire, psp_field_t *field)
{
    PSC_BUG_ON(psp_wire_next(wire, field) != NULL);
    return field->number != 0;
}

static psp_wire_t wire_of(psp_text_t bytes)
{
    return (psp_wire_t){.next = bytes.data, .end = bytes.data + bytes.size};
}

/* The first field of this number; empty: none. */
static psp_text_t field_of(psp_text_t descriptor, uint32_t number)
{
    psp_wire_t wire = wire_of(descriptor);
    psp_field_t field;
    while (next(&wire, &field)) {
        if (field.number == number)
            return (psp_text_t){field.payload, field.size};
    }
    return (psp_text_t){NULL, 0};
}

static bool same(psp_text_t a, psp_text_t b)
{
    return a.size == b.size && (a.size == 0 || memcmp(a.data, b.data, a.size) == 0);
}

/* Takes "name" or "name." off the start of symbol. */
static bool take_name(psp_text_t *symbol, psp_text_t name)
{
    if (symbol->size < name.size || !same((psp_text_t){symbol->data, name.size}, name))
        return false;
    if (symbol->size > name.size && symbol->data[name.size] != '.')
        return false;
    /* "name." alone names nothing: one byte is left, which no name is. */
    const size_t dot = symbol->size > name.size + 1 ? 1 : 0;
    symbol->data += name.size + dot;
    symbol->size -= name.size + dot;
    return true;
}

/* Is a symbol, relative to descriptor, defined there? wanted: what it is to be; LEAF: anything. */
static bool defines(psp_text_t descriptor, element_t outer, psp_text_t symbol, element_t wanted)
{
    psp_wire_t wire = wire_of(descriptor);
    psp_field_t field;
    while (next(&wire, &field)) {
        const element_t inner = element_within(outer, field.number);
        const psp_text_t bytes = {field.payload, field.size};
        psp_text_t rest = symbol;
        if (inner == FILE_OF_IT)
            continue;
        if (inner == ENUM && defines(bytes, ENUM, symbol, wanted))
            return true;
        if (!take_name(&rest, field_of(bytes, NAME_FIELD)))
            continue;
        if (rest.size == 0 && (wanted == LEAF || wanted == inner))
            return true;
        if (rest.size != 0 && inner != ENUM && defines(bytes, inner, rest, wanted))
            return true;
    }
    return false;
}

static bool is_file(psp_text_t file, psp_text_t name, element_t wanted)
{
    (void)wanted;
    return same(field_of(file, NAME_FIELD), name);
}

static bool defines_symbol(psp_text_t file, psp_text_t symbol, element_t wanted)
{
    return take_name(&symbol, field_of(file, PACKAGE_FIELD)) &&
           defines(file, FILE_OF_IT, symbol, wanted);
}

static psp_text_t find_file(bool (*is_it)(psp_text_t file, psp_text_t text, element_t wanted),
                            psp_text_t text, element_t wanted)
{
    psp_wire_t wire = wire_of((psp_text_t){psp_descriptor_bytes, psp_descriptor_size});
    psp_field_t field;
    while (next(&wire, &field)) {
        const psp_text_t file = {field.payload, field.size};
        if (field.number == FILE_FIELD && is_it(file, text, wanted))
            return file;
    }
    return (psp_text_t){NULL, 0};
}

psp_text_t psp_descriptors_file(psp_text_t name)
{
    return find_file(is_file, name, LEAF);
}

psp_text_t psp_descriptors_file_with(psp_text_t symbol)
{
    return find_file(defines_symbol, symbol, LEAF);
}

psp_text_t psp_descriptors_file_with_message(psp_text_t symbol)
{
    return find_file(defines_symbol, symbol, MESSAGE);
}

void psp_descriptors_services(psp_take_service_fn take, void *context)
{
    psp_wire_t files = wire_of((psp_text_t){psp_descriptor_bytes, psp_descriptor_size});
    psp_field_t field;
    while (next(&files, &field)) {
        const psp_text_t file = {field.payload, field.size};
        const psp_text_t package = field_of(file, PACKAGE_FIELD);
        psp_wire_t wire = wire_of(file);
        psp_field_t inner;
        while (next(&wire, &inner)) {
            if (inner.number == SERVICE_FIELD)
                take(context, package,
                     field_of((psp_text_t){inner.payload, inner.size}, NAME_FIELD));
        }
    }
}
