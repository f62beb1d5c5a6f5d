/* Seals: messages of many kinds, with every bit and every byte of them damaged, and cut. */
#include "proto/seal.h"

#include "tests/support/cmocka.h"
#include "tests/support/message_fixture.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum { DIM = 5, ROWS = 3 };

static int sealed_setup(void **state)
{
    const int failed = message_setup(state);
    if (failed == 0)
        psp_pool_seal(((message_fixture_t *)*state)->pool);
    return failed;
}

#define SEAL_TEST(name) cmocka_unit_test_setup_teardown(name, sealed_setup, message_teardown)

static psp_buffer_t *a_hello(message_fixture_t *f)
{
    psp_buffer_t *buffer = NULL;
    const uint64_t former[] = {11, 12};
    const psp_message_t message = {
        .kind = PSP_HELLO, .request = some_request, .u.hello = {.n_former = 2, .former = former}};
    assert_int_equal(psp_message_pack(f->pool, &message, &buffer, &f->error), PSC_OK);
    return buffer;
}

static psp_buffer_t *a_pull(message_fixture_t *f)
{
    psp_buffer_t *buffer = NULL;
    uint8_t *ids = NULL;
    const psp_pull_t pull = {.table = 3, .table_epoch = 1, .n = ROWS};
    assert_int_equal(psp_pull_begin(f->pool, &some_request, &pull, &buffer, &ids, &f->error),
                     PSC_OK);
    for (size_t i = 0; i < ROWS * sizeof(uint64_t); i++)
        ids[i] = (uint8_t)(i * 7);
    return buffer;
}

static psp_buffer_t *a_pull_reply(message_fixture_t *f)
{
    psp_buffer_t *buffer = NULL;
    uint8_t *rows = NULL;
    const psp_pull_reply_t reply = {.dim = DIM, .n = ROWS};
    assert_int_equal(psp_pull_reply_begin(f->pool, &some_reply, &reply, &buffer, &rows, &f->error),
                     PSC_OK);
    assert_int_equal((uintptr_t)rows % 64, 0);
    for (size_t i = 0; i < ROWS * DIM * sizeof(float); i++)
        rows[i] = (uint8_t)(i * 31);
    return buffer;
}

static psp_buffer_t *a_push(message_fixture_t *f)
{
    psp_buffer_t *buffer = NULL;
    uint8_t *ids = NULL, *rows = NULL;
    const psp_push_t push = {.table = 3, .dim = DIM, .learning_rate = 0.5f, .n = ROWS};
    assert_int_equal(psp_push_begin(f->pool, &some_request, &push, &buffer, &ids, &rows, &f->error),
                     PSC_OK);
    assert_int_equal((uintptr_t)rows % 64, 0);
    memset(ids, 9, ROWS * sizeof(uint64_t));
    memset(rows, 0, ROWS * DIM * sizeof(float)); /* which a sum of bytes would not notice */
    return buffer;
}

static psp_buffer_t *a_bare_reply(message_fixture_t *f)
{
    psp_buffer_t *buffer = NULL;
    assert_int_equal(psp_reply_pack(f->pool, PSP_GOODBYE_REPLY, &some_reply, &buffer, &f->error),
                     PSC_OK);
    return buffer;
}

static psp_buffer_t *(*const make[])(message_fixture_t *) = {a_hello, a_pull, a_pull_reply, a_push,
                                                             a_bare_reply};
enum { N_MESSAGES = sizeof make / sizeof make[0] };

static psp_seal_t look(const psp_buffer_t *buffer)
{
    return psp_seal_look(buffer->kind, buffer->data, buffer->size);
}

static void every_bit_and_every_byte_counts(void **state)
{
    message_fixture_t *f = *state;
    for (size_t m = 0; m < N_MESSAGES; m++) {
        psp_buffer_t *buffer = make[m](f);
        psp_seal_put(buffer, 77, 78);
        assert_int_equal(look(buffer), PSP_SEAL_GOOD);
        for (size_t bit = 0; bit < buffer->size * 8; bit++) {
            buffer->data[bit / 8] ^= (uint8_t)(1u << bit % 8);
            assert_int_equal(look(buffer), PSP_SEAL_BROKEN);
            buffer->data[bit / 8] ^= (uint8_t)(1u << bit % 8);
        }
        for (size_t byte = 0; byte < buffer->size; byte++) {
            const uint8_t was = buffer->data[byte];
            for (unsigned int other = 0; other < 256; other++) {
                buffer->data[byte] = (uint8_t)other;
                assert_int_equal(look(buffer), other == was ? PSP_SEAL_GOOD : PSP_SEAL_BROKEN);
            }
            buffer->data[byte] = was;
        }
        assert_int_equal(look(buffer), PSP_SEAL_GOOD);
        psp_buffer_put(buffer);
    }
}

/* From four bytes of the mark on it is taken for a seal; with fewer it is a message without one. */
static void a_message_that_is_cut_or_has_another_kind_is_broken(void **state)
{
    message_fixture_t *f = *state;
    for (size_t m = 0; m < N_MESSAGES; m++) {
        psp_buffer_t *buffer = make[m](f);
        psp_seal_put(buffer, 0, 0);
        for (size_t size = 0; size < buffer->size; size++)
            assert_int_equal(psp_seal_look(buffer->kind, buffer->data, size),
                             size < 4 ? PSP_SEAL_NONE : PSP_SEAL_BROKEN);
        for (uint32_t kind = 0; kind < 200; kind++)
            assert_int_equal(psp_seal_look(kind, buffer->data, buffer->size),
                             kind == buffer->kind ? PSP_SEAL_GOOD : PSP_SEAL_BROKEN);
        psp_buffer_put(buffer);
    }
}

/* What the header says of the sum, by the library's streaming functions. */
static void the_sum_is_what_the_header_says(void **state)
{
    message_fixture_t *f = *state;
    psp_buffer_t *buffer = a_push(f);
    const uint8_t start[] = {0xfa, 0x7f, 21, 0x9e, 0xc5, 0x3b, 0xd1, 0x76};
    psp_seal_put(buffer, 5, 6);
    assert_memory_equal(buffer->data, start, sizeof start);
    XXH3_state_t *hash = XXH3_createState();
    assert_int_equal(XXH3_64bits_reset(hash), XXH_OK);
    for (size_t i = 16; i < buffer->size; i++)
        assert_int_equal(XXH3_64bits_update(hash, buffer->data + i, 1), XXH_OK);
    uint64_t told;
    memcpy(&told, buffer->data + 8, sizeof told);
    assert_true(told == (XXH3_64bits_digest(hash) ^ PSP_PUSH * UINT64_C(0x9e3779b97f4a7c15)));
    (void)XXH3_freeState(hash);
    assert_int_equal(psp_seal_number(buffer), 5);
    assert_int_equal(psp_seal_expected(buffer), 6);
    psp_buffer_put(buffer);
}

static void room_alone_is_no_seal_and_who_knows_none_skips_it(void **state)
{
    message_fixture_t *f = *state;
    psp_buffer_t *buffer = a_pull(f);
    assert_true(psp_seal_has_room(buffer));
    assert_int_equal(look(buffer), PSP_SEAL_NONE);
    for (int sealed = 0; sealed < 2; sealed++) {
        assert_int_equal(psp_message_unpack(f->scratch, buffer->kind, buffer->data, buffer->size,
                                            &f->message, &f->error),
                         PSC_OK);
        assert_request_header(&f->message.request);
        assert_int_equal(f->message.u.pull.n, ROWS);
        assert_int_equal(psp_id_at(f->message.u.pull.ids, 0) & 0xff, 0);
        psp_seal_put(buffer, 0, 0);
    }
    psp_buffer_put(buffer);
}

/* As programs of other languages send it, and as long as it likes. */
static void a_message_without_room_is_not_sealed_nor_checked(void **state)
{
    message_fixture_t *f = *state;
    psp_buffer_t *buffer = NULL;
    put_request_header(f);
    assert_int_equal(psp_buffer_get(f->pool, f->size + 100, &buffer, &f->error), PSC_OK);
    memcpy(buffer->data, f->bytes, f->size);
    memset(buffer->data + f->size, 1, 100);
    buffer->kind = PSP_STATS;
    for (buffer->size = 0; buffer->size < f->size + 100; buffer->size++) {
        assert_false(psp_seal_has_room(buffer));
        psp_seal_put(buffer, 0, 0);
        assert_int_equal(look(buffer), PSP_SEAL_NONE);
    }
    assert_memory_equal(buffer->data, f->bytes, f->size);
    psp_buffer_put(buffer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SEAL_TEST(every_bit_and_every_byte_counts),
        SEAL_TEST(a_message_that_is_cut_or_has_another_kind_is_broken),
        SEAL_TEST(the_sum_is_what_the_header_says),
        SEAL_TEST(room_alone_is_no_seal_and_who_knows_none_skips_it),
        SEAL_TEST(a_message_without_room_is_not_sealed_nor_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
