/*
 * For tests of messages: a pool, scratch memory, and a message written by hand, field by field, so
 * that a test of unpacking does not rest on the packer.
 */
#ifndef TESTS_SUPPORT_MESSAGE_FIXTURE_H
#define TESTS_SUPPORT_MESSAGE_FIXTURE_H

#include "proto/message.h"

#define MESSAGE_SCRATCH ((size_t)1 << 20)
#define MESSAGE_ROOM ((size_t)2 << 20)

typedef struct message_fixture {
    psp_pool_t *pool;
    psp_scratch_t *scratch;
    psp_message_t message; /* what was unpacked last */
    psc_error_t error;
    uint8_t *bytes; /* a message written by hand, MESSAGE_ROOM at most */
    size_t size;
    uint8_t *exact; /* the copy that message borrows from */
} message_fixture_t;

/* Headers in which every field has a value of its own, and checks that a message has them. */
extern const psp_request_header_t some_request;
extern const psp_reply_header_t some_reply;
void assert_request_header(const psp_request_header_t *h);
void assert_reply_ok(const psp_reply_header_t *h);

int message_setup(void **state);
int message_teardown(void **state);
/* Appending to the bytes: raw, or as a field of a wire type. */
void put_byte(message_fixture_t *f, uint8_t byte);
void put_varint(message_fixture_t *f, uint64_t value);
void put_tag(message_fixture_t *f, uint32_t number, uint32_t type);
void put_number(message_fixture_t *f, uint32_t number, uint64_t value);
void put_raw(message_fixture_t *f, const void *bytes, size_t size);
void put_bytes(message_fixture_t *f, uint32_t number, const void *bytes, size_t size);
void put_fixed64(message_fixture_t *f, uint32_t number, uint64_t value);
/* Protocol 1. */
void put_request_header(message_fixture_t *f);
/* Request 7, no error. */
void put_reply_header(message_fixture_t *f);
/* Unpacks the bytes from memory of exactly their size, so that a sanitizer sees a read past it. */
psc_status_t unpack_bytes(message_fixture_t *f, uint32_t kind);
/* Unpacks into f->message and fails the test when that is refused. */
void expect_ok(message_fixture_t *f, uint32_t kind);
/* Refused as PROTOCOL, in words that name the kind and hold text. */
void expect_refused(message_fixture_t *f, uint32_t kind, const char *text);

#define MESSAGE_TEST(name) cmocka_unit_test_setup_teardown(name, message_setup, message_teardown)

#endif
