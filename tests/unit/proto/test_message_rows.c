/*
 * Messages with rows: written in place, in every format, at a multiple of 64 bytes, and as many as
 * a message may hold.
 */
#include "proto/message.h"

#include "tests/support/cmocka.h"
#include "tests/support/message_fixture.h"

#include <stdlib.h>

static void push_is_written_in_place(void **state)
{
    message_fixture_t *f = *state;
    const size_t shapes[][2] = {{0, 1}, {1, 1}, {1, PSP_DIM_MAX}, {7, 3}, {1000, 100}};
    const size_t n_shapes = sizeof shapes / sizeof shapes[0];
    for (size_t c = 0; c < n_shapes * PSP_FORMATS; c++) {
        size_t n = shapes[c % n_shapes][0];
        size_t d = shapes[c % n_shapes][1];
        psp_format_t format = (psp_format_t)(c / n_shapes);
        psp_push_t push = {.table = 4,
                           .table_epoch = 5,
                           .kind = (psp_push_kind_t)(c % 3),
                           .learning_rate = 0.1f,
                           .step = UINT64_MAX - c,
                           .synchronous = c % 2 == 0,
                           .format = format,
                           .dim = (uint32_t)d,
                           .want_rows = c % 2 == 1,
                           .n = n};
        psp_buffer_t *buffer = NULL;
        uint8_t *ids = NULL;
        uint8_t *rows = NULL;
        assert_int_equal(
            psp_push_begin(f->pool, &some_request, &push, &buffer, &ids, &rows, &f->error), PSC_OK);
        for (size_t i = 0; i < 8 * n; i++)
            ids[i] = (uint8_t)(i * 3);
        for (size_t i = 0; i < n * psp_row_bytes(format, d); i++)
            rows[i] = (uint8_t)(i * 5);
        assert_int_equal(psp_message_unpack(f->scratch, PSP_PUSH, buffer->data, buffer->size,
                                            &f->message, &f->error),
                         PSC_OK);
        const psp_push_t *p = &f->message.u.push;
        assert_request_header(&f->message.request);
        assert_int_equal(p->table, 4);
        assert_int_equal(p->table_epoch, 5);
        assert_int_equal(p->kind, c % 3);
        assert_true(p->learning_rate == 0.1f);
        assert_true(p->step == UINT64_MAX - c);
        assert_int_equal(p->synchronous, c % 2 == 0);
        assert_int_equal(p->dim, d);
        assert_int_equal(p->want_rows, c % 2 == 1);
        assert_int_equal(p->format, format);
        assert_int_equal(p->n, n);
        if (n != 0) {
            assert_ptr_equal(p->ids, ids);
            assert_ptr_equal(p->rows, rows);
        }
        for (size_t i = 0; i < 8 * n; i++)
            assert_int_equal(p->ids[i], (uint8_t)(i * 3));
        for (size_t i = 0; i < n * psp_row_bytes(format, d); i++)
            assert_int_equal(p->rows[i], (uint8_t)(i * 5));
        psp_buffer_put(buffer);
    }
}

/* Whatever stands before them, and after a round trip too. */
static void rows_begin_at_a_multiple_of_64_bytes(void **state)
{
    message_fixture_t *f = *state;
    psp_request_header_t header = some_request;
    for (unsigned int k = 1; k < 200; k++) {
        header.clock = UINT64_C(1) << k % 64; /* small fields of many sizes */
        header.deadline_ms = k;
        psp_push_t push = {.table = k, .dim = k % 7 + 1, .step = k, .n = k};
        psp_buffer_t *buffer;
        uint8_t *ids, *rows;
        assert_int_equal(psp_push_begin(f->pool, &header, &push, &buffer, &ids, &rows, &f->error),
                         PSC_OK);
        assert_int_equal((uintptr_t)rows % 64, 0);
        memset(ids, 1, k * sizeof(uint64_t));
        memset(rows, 0, k * push.dim * sizeof(float));
        assert_int_equal(psp_message_unpack(f->scratch, buffer->kind, buffer->data, buffer->size,
                                            &f->message, &f->error),
                         PSC_OK);
        assert_ptr_equal(f->message.u.push.ids, ids);
        assert_ptr_equal(f->message.u.push.rows, rows);
        assert_int_equal(f->message.u.push.n, k);
        psp_buffer_put(buffer);

        uint8_t states[200] = {0};
        const psp_pull_reply_t reply = {.dim = 3,
                                        .format = (psp_format_t)(k / 2 % PSP_FORMATS),
                                        .n = k,
                                        .states = k % 2 == 0 ? states : NULL};
        assert_int_equal(
            psp_pull_reply_begin(f->pool, &some_reply, &reply, &buffer, &rows, &f->error), PSC_OK);
        assert_int_equal((uintptr_t)rows % 64, 0);
        psp_buffer_put(buffer);
    }
}

static void pull_reply_carries_rows_versions_and_states(void **state)
{
    message_fixture_t *f = *state;
    enum { N = 300, D = 7 };
    uint32_t versions[N];
    uint32_t places[N + 1] = {[N] = 77};
    uint8_t states[N];
    size_t n_values = 0;
    for (uint32_t i = 0; i < N; i++) {
        versions[i] = UINT32_MAX - i;
        places[i] = i * 3;
        states[i] = (uint8_t)(i % PSP_ROW_STATES);
        n_values += states[i] != PSP_ROW_CURRENT && states[i] != PSP_ROW_LATE;
    }
    for (uint32_t with = 0; with < 8 * PSP_FORMATS; with++) {
        psp_buffer_t *buffer = NULL;
        uint8_t *rows = NULL;
        const psp_pull_reply_t reply = {.dim = D,
                                        .format = (psp_format_t)(with / 8),
                                        .n = N,
                                        .versions = (with & 1) != 0 ? (uint8_t *)versions : NULL,
                                        .states = (with & 2) != 0 ? states : NULL,
                                        .places = (with & 4) != 0 ? (uint8_t *)places : NULL};
        assert_int_equal(
            psp_pull_reply_begin(f->pool, &some_reply, &reply, &buffer, &rows, &f->error), PSC_OK);
        size_t n_sent = (with & 2) != 0 ? n_values : N;
        const size_t bytes = n_sent * psp_row_bytes(reply.format, D);
        for (size_t i = 0; i < bytes; i++)
            rows[i] = (uint8_t)i;
        assert_ptr_equal(rows + bytes, buffer->data + buffer->size);
        assert_int_equal(psp_message_unpack(f->scratch, PSP_PULL_REPLY, buffer->data, buffer->size,
                                            &f->message, &f->error),
                         PSC_OK);
        const psp_pull_reply_t *r = &f->message.u.pull_reply;
        assert_reply_ok(&f->message.reply);
        assert_int_equal(r->dim, D);
        assert_int_equal(r->format, reply.format);
        assert_int_equal(r->n, N);
        assert_int_equal(r->n_values, n_sent);
        assert_ptr_equal(r->rows, rows);
        for (size_t i = 0; i < bytes; i++)
            assert_int_equal(r->rows[i], (uint8_t)i);
        assert_int_equal(r->versions != NULL, with & 1);
        assert_int_equal(r->states != NULL, (with & 2) >> 1);
        assert_int_equal(r->places != NULL, (with & 4) >> 2);
        if (r->places != NULL)
            assert_memory_equal(r->places, places, sizeof places);
        if (r->versions != NULL)
            assert_memory_equal(r->versions, versions, sizeof versions);
        if (r->states != NULL)
            assert_memory_equal(r->states, states, sizeof states);
        psp_buffer_put(buffer);
    }
}

static void rows_per_message_stay_within_the_limit(void **state)
{
    message_fixture_t *f = *state;
    const uint32_t dims[] = {1, 2, 3, 100, 4096, PSP_DIM_MAX};
    const size_t limits[] = {0, 1, 600, 4096, PSP_MAX_MESSAGE_BYTES};
    for (size_t i = 0; i < sizeof dims / sizeof dims[0]; i++) {
        for (size_t j = 0; j < sizeof limits / sizeof limits[0]; j++) {
            size_t n = psp_rows_per_message(dims[i], limits[j]);
            assert_true(n >= 1);
            if (n <= 1)
                continue;
            psp_push_t push = {.dim = dims[i],
                               .n = n,
                               .table = UINT32_MAX,
                               .table_epoch = UINT32_MAX,
                               .kind = PSP_PUSH_ASSIGN,
                               .learning_rate = 1,
                               .step = UINT64_MAX,
                               .synchronous = true};
            psp_buffer_t *buffer = NULL;
            uint8_t *ids = NULL;
            uint8_t *rows = NULL;
            for (uint32_t format = 0; format < PSP_FORMATS; format++) {
                push.format = (psp_format_t)format;
                assert_int_equal(
                    psp_push_begin(f->pool, &some_request, &push, &buffer, &ids, &rows, &f->error),
                    PSC_OK);
                assert_true(buffer->size <= limits[j]);
                psp_buffer_put(buffer);
            }
            uint32_t *versions = calloc(n, sizeof *versions);
            uint8_t *states = calloc(n, 1);
            psp_pull_reply_t reply = {
                .dim = dims[i], .n = n, .versions = (uint8_t *)versions, .states = states};
            for (uint32_t format = 0; format < PSP_FORMATS; format++) {
                reply.format = (psp_format_t)format;
                assert_int_equal(
                    psp_pull_reply_begin(f->pool, &some_reply, &reply, &buffer, &rows, &f->error),
                    PSC_OK);
                assert_true(buffer->size <= limits[j]);
                psp_buffer_put(buffer);
            }
            free(versions);
            free(states);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MESSAGE_TEST(push_is_written_in_place),
        MESSAGE_TEST(rows_begin_at_a_multiple_of_64_bytes),
        MESSAGE_TEST(pull_reply_carries_rows_versions_and_states),
        MESSAGE_TEST(rows_per_message_stay_within_the_limit),
    };
    return cmocka_run_group_tests_name("message_rows", tests, NULL, NULL);
}
