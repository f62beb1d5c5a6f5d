/* Messages written by hand; see the header. */
#include "tests/support/message_fixture.h"

#include "tests/support/cmocka.h"

#include <stdlib.h>

static const uint64_t some_parts[] = {0, 1, UINT64_MAX};

const psp_request_header_t some_request = {
    .protocol = PSP_PROTOCOL_VERSION,
    .cluster = UINT64_MAX,
    .map_epoch = 3,
    .session = UINT64_C(0x8000000000000001),
    .sequence = UINT64_MAX,
    .lowest_unacked = 77,
    .request = UINT64_C(1) << 63,
    .clock = 12,
    .deadline_ms = UINT32_MAX,
    .part = UINT64_MAX - 1,
    .parts = some_parts,
    .n_parts = sizeof some_parts / sizeof some_parts[0],
};

void assert_request_header(const psp_request_header_t *h)
{
    assert_int_equal(h->protocol, some_request.protocol);
    assert_true(h->cluster == some_request.cluster);
    assert_int_equal(h->map_epoch, some_request.map_epoch);
    assert_true(h->session == some_request.session);
    assert_true(h->sequence == some_request.sequence);
    assert_true(h->lowest_unacked == some_request.lowest_unacked);
    assert_true(h->request == some_request.request);
    assert_true(h->clock == some_request.clock);
    assert_true(h->deadline_ms == some_request.deadline_ms);
    assert_true(h->part == some_request.part);
    assert_int_equal(h->n_parts, some_request.n_parts);
    assert_memory_equal(h->parts, some_parts, sizeof some_parts);
}

const psp_reply_header_t some_reply = {
    .request = UINT64_MAX, .map_epoch = 9, .least_clock = 1000, .error = PSC_ERROR_INIT};

void assert_reply_ok(const psp_reply_header_t *h)
{
    assert_true(h->request == UINT64_MAX);
    assert_int_equal(h->map_epoch, 9);
    assert_int_equal(h->least_clock, 1000);
    assert_int_equal(h->error.code, PSC_OK);
    assert_int_equal(h->error.rank, -1);
}

int message_setup(void **state)
{
    message_fixture_t *f = calloc(1, sizeof *f);
    assert_non_null(f);
    assert_int_equal(psp_pool_create(1 << 20, &f->pool, &f->error), PSC_OK);
    assert_int_equal(psp_scratch_create(MESSAGE_SCRATCH, &f->scratch, &f->error), PSC_OK);
    f->bytes = malloc(MESSAGE_ROOM);
    assert_non_null(f->bytes);
    *state = f;
    return 0;
}

int message_teardown(void **state)
{
    message_fixture_t *f = *state;
    psp_scratch_destroy(f->scratch);
    psp_pool_destroy(f->pool);
    free(f->bytes);
    free(f->exact);
    free(f);
    return 0;
}

void put_byte(message_fixture_t *f, uint8_t byte)
{
    assert_true(f->size < MESSAGE_ROOM);
    f->bytes[f->size++] = byte;
}

void put_varint(message_fixture_t *f, uint64_t value)
{
    while (value >= 128) {
        put_byte(f, (uint8_t)(value % 128 + 128));
        value /= 128;
    }
    put_byte(f, (uint8_t)value);
}

void put_tag(message_fixture_t *f, uint32_t number, uint32_t type)
{
    put_varint(f, number * 8u + type);
}

void put_number(message_fixture_t *f, uint32_t number, uint64_t value)
{
    put_tag(f, number, 0);
    put_varint(f, value);
}

void put_raw(message_fixture_t *f, const void *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++)
        put_byte(f, ((const uint8_t *)bytes)[i]);
}

void put_bytes(message_fixture_t *f, uint32_t number, const void *bytes, size_t size)
{
    put_tag(f, number, 2);
    put_varint(f, size);
    put_raw(f, bytes, size);
}

void put_fixed64(message_fixture_t *f, uint32_t number, uint64_t value)
{
    put_tag(f, number, 1);
    for (int i = 0; i < 8; i++)
        put_byte(f, (uint8_t)(value >> (8 * i)));
}

void put_request_header(message_fixture_t *f)
{
    put_bytes(f, 1, "\x08\x01", 2); /* protocol 1 */
}

void put_reply_header(message_fixture_t *f)
{
    put_bytes(f, 1, "\x08\x07", 2); /* request 7 */
}

psc_status_t unpack_bytes(message_fixture_t *f, uint32_t kind)
{
    free(f->exact);
    f->exact = malloc(f->size != 0 ? f->size : 1);
    assert_non_null(f->exact);
    memcpy(f->exact, f->bytes, f->size);
    return psp_message_unpack(f->scratch, kind, f->exact, f->size, &f->message, &f->error);
}

void expect_ok(message_fixture_t *f, uint32_t kind)
{
    f->error = (psc_error_t)PSC_ERROR_INIT;
    psc_status_t st = unpack_bytes(f, kind);
    if (st != PSC_OK)
        fail_msg("refused: %s", f->error.message);
    assert_int_equal(f->message.kind, kind);
}

void expect_refused(message_fixture_t *f, uint32_t kind, const char *text)
{
    f->error = (psc_error_t)PSC_ERROR_INIT;
    assert_int_equal(unpack_bytes(f, kind), PSC_PROTOCOL);
    assert_int_equal(f->error.code, PSC_PROTOCOL);
    if (strstr(f->error.message, text) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", f->error.message, text);
    if (strstr(f->error.message, psp_kind_name(kind)) == NULL)
        fail_msg("\"%s\" does not name the kind", f->error.message);
}
