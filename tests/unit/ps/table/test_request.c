/* Requests around messages that another process has lent. */
#include "ps/table/request.h"

#include "tests/support/cmocka.h"

#include <string.h>

enum { N = 300, D = 5 };

typedef struct fixture {
    psp_pool_t *pool;
    psp_scratch_t *scratch;
    ps_request_pool_t requests;
    psp_buffer_t *message, *lent; /* lent shows the bytes of message */
    uint8_t flag;                 /* 1: it has not come back */
    psc_error_t error;
} fixture_t;

static void start(fixture_t *f)
{
    *f = (fixture_t){.error = PSC_ERROR_INIT};
    assert_int_equal(psp_pool_create(1 << 20, &f->pool, &f->error), PSC_OK);
    assert_int_equal(psp_scratch_create(1 << 16, &f->scratch, &f->error), PSC_OK);
}

static void finish(fixture_t *f)
{
    psp_buffer_put(f->message);
    assert_int_equal(psp_pool_bytes_out(f->pool), 0);
    ps_request_pool_clear(&f->requests);
    psp_scratch_destroy(f->scratch);
    psp_pool_destroy(f->pool);
}

static void lend(fixture_t *f)
{
    assert_int_equal(psp_buffer_get(f->pool, 0, &f->lent, &f->error), PSC_OK);
    f->lent->data = f->message->data;
    f->lent->size = f->message->size;
    f->lent->kind = f->message->kind;
    f->lent->lender = &f->flag;
    f->flag = 1;
}

static ps_request_t *request_of(fixture_t *f)
{
    psp_message_t message;
    ps_request_t *request;
    assert_int_equal(psp_message_unpack(f->scratch, f->lent->kind, f->lent->data, f->lent->size,
                                        &message, &f->error),
                     PSC_OK);
    assert_int_equal(ps_request_create(&f->requests, f->lent, &message, &request, &f->error),
                     PSC_OK);
    return request;
}

static void a_push_that_is_kept_needs_no_lent_memory(void **state)
{
    (void)state;
    for (uint32_t format = 0; format < PSP_FORMATS; format++) {
        fixture_t f;
        uint8_t *ids, *rows;
        start(&f);
        const psp_request_header_t header = {.protocol = PSP_PROTOCOL_VERSION, .cluster = 1};
        const psp_push_t push = {.dim = D, .format = (psp_format_t)format, .n = N};
        const size_t row_bytes = N * psp_row_bytes(push.format, D);
        assert_int_equal(psp_push_begin(f.pool, &header, &push, &f.message, &ids, &rows, &f.error),
                         PSC_OK);
        memset(ids, 1, N * sizeof(uint64_t));
        memset(rows, 2, row_bytes);
        lend(&f);
        ps_request_t *request = request_of(&f);
        assert_int_equal(ps_request_bytes(request), f.lent->capacity);
        assert_int_equal(f.flag, 1);
        assert_int_equal(ps_request_keep(request, &f.error), PSC_OK);
        assert_int_equal(f.flag, 0);
        memset(f.message->data, 0xFF, f.message->size);
        const psp_push_t *kept = &request->message.u.push;
        assert_int_equal(kept->ids[0], 1);
        assert_int_equal(kept->ids[N * sizeof(uint64_t) - 1], 1);
        assert_int_equal(kept->rows[0], 2);
        assert_int_equal(kept->rows[row_bytes - 1], 2);
        assert_true(ps_request_bytes(request) >= N * sizeof(uint64_t) + row_bytes);
        assert_int_equal(ps_request_keep(request, &f.error), PSC_OK); /* nothing more to do */
        ps_request_destroy(&f.requests, request);
        finish(&f);
    }
}

static void an_announcement_that_is_kept_needs_no_lent_memory(void **state)
{
    (void)state;
    fixture_t f;
    uint8_t *ids;
    start(&f);
    const psp_request_header_t header = {.protocol = PSP_PROTOCOL_VERSION, .cluster = 1};
    const psp_prefetch_t prefetch = {.n = N};
    assert_int_equal(psp_prefetch_begin(f.pool, &header, &prefetch, &f.message, &ids, &f.error),
                     PSC_OK);
    memset(ids, 3, N * sizeof(uint64_t));
    lend(&f);
    ps_request_t *request = request_of(&f);
    assert_int_equal(ps_request_keep(request, &f.error), PSC_OK);
    assert_int_equal(f.flag, 0);
    memset(f.message->data, 0xFF, f.message->size);
    assert_int_equal(request->message.u.prefetch.ids[N * sizeof(uint64_t) - 1], 3);
    assert_true(ps_request_bytes(request) >= N * sizeof(uint64_t));
    ps_request_destroy(&f.requests, request);
    finish(&f);
}

static void a_request_that_is_answered_gives_its_message_back(void **state)
{
    (void)state;
    fixture_t f;
    uint8_t *ids;
    start(&f);
    const psp_request_header_t header = {.protocol = PSP_PROTOCOL_VERSION, .cluster = 1};
    const psp_pull_t pull = {.n = N};
    assert_int_equal(psp_pull_begin(f.pool, &header, &pull, &f.message, &ids, &f.error), PSC_OK);
    memset(ids, 4, N * sizeof(uint64_t));
    lend(&f);
    ps_request_t *request = request_of(&f);
    assert_ptr_equal(request->message.u.pull.ids, ids); /* read where they lie */
    ps_request_destroy(&f.requests, request);
    assert_int_equal(f.flag, 0);
    finish(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_push_that_is_kept_needs_no_lent_memory),
        cmocka_unit_test(an_announcement_that_is_kept_needs_no_lent_memory),
        cmocka_unit_test(a_request_that_is_answered_gives_its_message_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
