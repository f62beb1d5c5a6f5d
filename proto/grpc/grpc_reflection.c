/*
 * An answer repeats the question and adds what was asked for, or an error that says what is not
 * there. Answers are written here without generated code: each has a size that is found first, and
 * is then written into one slice. All numbers of fields are below 16, so that a tag is one byte.
 *
 * Files of ours import none and have no extensions, so a file is answered alone, and a message has
 * no numbers of extensions.
 */
#include "proto/grpc/grpc_reflection.h"

#include "common/log.h"
#include "proto/grpc/descriptors.h"
#include "proto/wire_walk.h"

#include <string.h>

/* Fields of a request. */
enum { HOST = 1, BY_FILENAME = 3, CONTAINING_SYMBOL, CONTAINING_EXTENSION, NUMBERS, LIST_SERVICES };
/* Fields of an answer. */
enum { VALID_HOST = 1, ORIGINAL, FILE_ANSWER = 4, NUMBERS_ANSWER, SERVICES_ANSWER, ERROR_ANSWER };

typedef struct question {
    psp_text_t whole, host;
    uint32_t asked; /* a field; 0: nothing */
    psp_text_t what;
} question_t;

/* A writer that counts as long as out is NULL. */
typedef struct writer {
    uint8_t *out;
    size_t size;
} writer_t;

static void put_number(writer_t *writer, uint64_t value)
{
    if (writer->out != NULL)
        (void)psp_varint_write(writer->out + writer->size, value);
    writer->size += psp_varint_size(value);
}

/* What stands before a field of n bytes. */
static void put_head(writer_t *writer, uint32_t field, size_t n)
{
    put_number(writer, (uint64_t)field << 3 | PSP_WIRE_BYTES);
    put_number(writer, n);
}

static void put_bytes(writer_t *writer, psp_text_t bytes)
{
    if (writer->out != NULL && bytes.size != 0)
        memcpy(writer->out + writer->size, bytes.data, bytes.size);
    writer->size += bytes.size;
}

static void put_field(writer_t *writer, uint32_t field, psp_text_t bytes)
{
    put_head(writer, field, bytes.size);
    put_bytes(writer, bytes);
}

static psp_text_t text_of(const char *text)
{
    return (psp_text_t){(const uint8_t *)text, strlen(text)};
}

/* ServiceResponse */
static void put_service(void *context, psp_text_t package, psp_text_t name)
{
    writer_t *writer = context;
    const size_t n = package.size + 1 + name.size;
    put_head(writer, 1, 1 + psp_varint_size(n) + n);
    put_head(writer, 1, n);
    put_bytes(writer, package);
    put_bytes(writer, text_of("."));
    put_bytes(writer, name);
}

static void put_error(writer_t *writer, grpc_status_code code, const char *text)
{
    put_number(writer, 1 << 3 | PSP_WIRE_VARINT);
    put_number(writer, (uint64_t)code);
    put_field(writer, 2, text_of(text));
}

/* The submessage that answers the question; returns which field it is. */
static uint32_t put_answer(writer_t *writer, const question_t *question)
{
    psp_text_t file;
    switch (question->asked) {
    case LIST_SERVICES:
        psp_descriptors_services(put_service, writer);
        return SERVICES_ANSWER;
    case BY_FILENAME:
    case CONTAINING_SYMBOL:
        file = question->asked == BY_FILENAME ? psp_descriptors_file(question->what)
                                              : psp_descriptors_file_with(question->what);
        if (file.data != NULL) {
            put_field(writer, 1, file);
            return FILE_ANSWER;
        }
        put_error(writer, GRPC_STATUS_NOT_FOUND,
                  question->asked == BY_FILENAME ? "no file of this name"
                                                 : "no file defines this symbol");
        return ERROR_ANSWER;
    case NUMBERS:
        if (psp_descriptors_file_with_message(question->what).data != NULL) {
            put_field(writer, 1, question->what);
            return NUMBERS_ANSWER;
        }
        put_error(writer, GRPC_STATUS_NOT_FOUND, "no message of this name");
        return ERROR_ANSWER;
    case CONTAINING_EXTENSION:
        put_error(writer, GRPC_STATUS_NOT_FOUND, "no message here has extensions");
        return ERROR_ANSWER;
    default:
        put_error(writer, GRPC_STATUS_INVALID_ARGUMENT, "a question that asks nothing known here");
        return ERROR_ANSWER;
    }
}

static void put_reply(writer_t *writer, const question_t *question)
{
    writer_t answer = {NULL, 0};
    const uint32_t field = put_answer(&answer, question);
    put_field(writer, VALID_HOST, question->host);
    put_field(writer, ORIGINAL, question->whole);
    put_head(writer, field, answer.size);
    (void)put_answer(writer, question);
}

/* Of a oneof the last one counts. Returns NULL or what is wrong. */
static const char *read_question(psp_text_t bytes, question_t *question_out)
{
    psp_wire_t wire = {.next = bytes.data, .end = bytes.data + bytes.size};
    psp_field_t field;
    *question_out = (question_t){.whole = bytes};
    for (;;) {
        const char *fault = psp_wire_next(&wire, &field);
        if (fault != NULL || field.number == 0)
            return fault;
        const psp_text_t value = {field.payload, field.size};
        const bool asks = field.number >= BY_FILENAME && field.number <= LIST_SERVICES;
        if ((field.number == HOST || asks) && field.type != PSP_WIRE_BYTES)
            return "a field has the wrong wire type";
        if (field.number == HOST)
            question_out->host = value;
        if (asks) {
            question_out->asked = field.number;
            question_out->what = value;
        }
    }
}

grpc_status_code psp_grpc_reflect(const uint8_t *data, size_t size, grpc_byte_buffer **reply_out,
                                  const char **text_out)
{
    question_t question;
    if (size > PSP_REFLECTION_MAX_BYTES) {
        *text_out = "a question may have 4096 bytes";
        return GRPC_STATUS_RESOURCE_EXHAUSTED;
    }
    if ((*text_out = read_question((psp_text_t){data, size}, &question)) != NULL)
        return GRPC_STATUS_INVALID_ARGUMENT;
    writer_t writer = {NULL, 0};
    put_reply(&writer, &question);
    const size_t total = writer.size;
    grpc_slice slice = grpc_slice_malloc(total);
    writer = (writer_t){GRPC_SLICE_START_PTR(slice), 0};
    put_reply(&writer, &question);
    PSC_BUG_ON(writer.size != total);
    *reply_out = grpc_raw_byte_buffer_create(&slice, 1);
    grpc_slice_unref(slice);
    *text_out = "";
    return GRPC_STATUS_OK;
}
