/* The transport that delays: around the local one, with a clock of the test's own. */
#include "common/alloc.h"
#include "proto/delay_transport.h"
#include "proto/local/local_transport.h"

#include "tests/support/cmocka.h"
#include "tests/support/test_seed.h"

#include <stdlib.h>
#include <string.h>

enum { WORKERS = 3, DELAY_US = 2000 };

typedef struct fixture {
    psp_pool_t *pool;
    psp_transport_t *server;
    psp_transport_t *clients[WORKERS];
    uint64_t now_us;
    psc_error_t error;
} fixture_t;

static uint64_t read_clock(void *context)
{
    return ((const fixture_t *)context)->now_us;
}

static int setup(void **state)
{
    fixture_t *f = calloc(1, sizeof *f);
    assert_non_null(f);
    f->now_us = 5000;
    psp_transport_t *inner;
    psp_transport_t *ends[WORKERS];
    assert_int_equal(psp_pool_create(1 << 20, &f->pool, &f->error), PSC_OK);
    assert_int_equal(psp_local_create(WORKERS, f->pool, &inner, ends, &f->error), PSC_OK);
    assert_int_equal(psp_delay_create(inner, DELAY_US, read_clock, f, &f->server, &f->error),
                     PSC_OK);
    for (size_t w = 0; w < WORKERS; w++)
        assert_int_equal(
            psp_delay_create(ends[w], DELAY_US, read_clock, f, &f->clients[w], &f->error), PSC_OK);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    fixture_t *f = *state;
    psp_transport_destroy(f->server);
    for (size_t w = 0; w < WORKERS; w++)
        psp_transport_destroy(f->clients[w]);
    assert_int_equal(psp_pool_bytes_out(f->pool), 0);
    psp_pool_destroy(f->pool);
    free(f);
    return 0;
}

/* Sends size bytes that all follow from number. */
static void send_bytes(fixture_t *f, psp_transport_t *from, uint32_t peer, uint8_t number,
                       size_t size)
{
    psp_buffer_t *buffer = NULL;
    assert_int_equal(psp_buffer_get(f->pool, size, &buffer, &f->error), PSC_OK);
    memset(buffer->data, number, size);
    buffer->size = size;
    buffer->kind = number;
    assert_int_equal(psp_transport_send(from, peer, buffer, &f->error), PSC_OK);
}

/* The number of the next message that is due; -1: none is. */
static int receive(fixture_t *f, psp_transport_t *at, uint32_t *peer_out, size_t *size_out)
{
    psp_buffer_t *buffer = NULL;
    assert_int_equal(psp_transport_poll(at, &buffer, &f->error), PSC_OK);
    if (buffer == NULL)
        return -1;
    int number = (int)buffer->kind;
    for (size_t i = 0; i < buffer->size; i++)
        assert_int_equal(buffer->data[i], number);
    if (peer_out != NULL)
        *peer_out = buffer->peer;
    if (size_out != NULL)
        *size_out = buffer->size;
    psp_buffer_put(buffer);
    return number;
}

static void a_message_comes_when_its_delay_is_over_and_not_before(void **state)
{
    fixture_t *f = *state;
    send_bytes(f, f->clients[1], 0, 7, 40);
    assert_int_equal(receive(f, f->server, NULL, NULL), -1);
    f->now_us += DELAY_US - 1;
    assert_int_equal(receive(f, f->server, NULL, NULL), -1);
    f->now_us += 1;
    uint32_t peer = 0;
    size_t size = 0;
    assert_int_equal(receive(f, f->server, &peer, &size), 7);
    assert_int_equal(peer, 1);
    assert_int_equal(size, 40);
    assert_int_equal(receive(f, f->server, NULL, NULL), -1);
}

static void who_looks_late_waits_no_longer(void **state)
{
    fixture_t *f = *state;
    send_bytes(f, f->server, 2, 9, 3);
    f->now_us += UINT64_C(10) * DELAY_US;
    assert_int_equal(receive(f, f->clients[2], NULL, NULL), 9);
}

static void endpoints_look_like_the_inner_ones_and_count_the_messages_alone(void **state)
{
    fixture_t *f = *state;
    assert_int_equal(f->server->n_peers, WORKERS);
    assert_int_equal(f->clients[1]->rank, 1);
    assert_int_equal(f->clients[1]->n_ranks, WORKERS);
    assert_ptr_equal(f->server->pool, f->pool);
    for (uint8_t i = 0; i < 10; i++)
        send_bytes(f, f->clients[0], 0, i, 100);
    f->now_us += DELAY_US;
    for (int i = 0; i < 10; i++)
        assert_int_equal(receive(f, f->server, NULL, NULL), i);
    assert_int_equal(f->clients[0]->bytes_sent, 1000);
    assert_int_equal(f->server->bytes_received, 1000);
    assert_int_equal(psp_transport_backlog(f->clients[0], 0), 0);
}

static void messages_of_every_size_arrive_whole(void **state)
{
    fixture_t *f = *state;
    /* 256 and 65,536: a buffer without room for anything behind the message. */
    const size_t sizes[] = {0, 1, 248, 249, 255, 256, 257, 65528, 65536};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        send_bytes(f, f->clients[0], 0, (uint8_t)(i + 1), sizes[i]);
        f->now_us += DELAY_US;
        size_t size = 1;
        assert_int_equal(receive(f, f->server, NULL, &size), (int)i + 1);
        assert_int_equal(size, sizes[i]);
    }
}

/* Random sends, looks and steps of the clock: each peer's messages in order, each as soon as it is
 * due, none earlier. The oracle is an array of sends. */
static void messages_keep_their_order_and_their_time(void **state)
{
    fixture_t *f = *state;
    enum { STEPS = 20000 };
    static struct {
        uint32_t peer;
        uint64_t due_us;
        bool taken;
    } sends[STEPS];
    size_t n_sends = 0;
    test_random_t random = test_random_start();
    for (size_t step = 0; step < STEPS; step++) {
        f->now_us += test_below(&random, 300);
        if (test_below(&random, 2) == 0) {
            uint32_t peer = (uint32_t)test_below(&random, WORKERS);
            send_bytes(f, f->clients[peer], 0, (uint8_t)n_sends, 1 + test_below(&random, 300));
            sends[n_sends].peer = peer;
            sends[n_sends++].due_us = f->now_us + DELAY_US;
            continue;
        }
        uint32_t peer = 0;
        int number = receive(f, f->server, &peer, NULL);
        size_t due = 0;
        while (due < n_sends && (sends[due].taken || sends[due].due_us > f->now_us))
            due++;
        if (number < 0) {
            assert_int_equal(due, n_sends);
            continue;
        }
        while (due < n_sends && (sends[due].taken || sends[due].peer != peer))
            due++;
        assert_true(due < n_sends);
        assert_true(sends[due].due_us <= f->now_us);
        assert_int_equal(number, (uint8_t)due);
        sends[due].taken = true;
    }
}

static void a_wait_ends_when_the_next_message_is_due(void **state)
{
    fixture_t *f = *state;
    send_bytes(f, f->clients[0], 0, 1, 8);
    assert_int_equal(receive(f, f->server, NULL, NULL), -1);
    psp_transport_wait(f->server, UINT64_MAX); /* 2 ms at most, though no clock of ours moves */
    f->now_us += DELAY_US;
    psp_transport_wait(f->server, UINT64_MAX);
    assert_int_equal(receive(f, f->server, NULL, NULL), 1);
    psp_transport_wake(f->server);
    psp_transport_wait(f->server, UINT64_MAX);
}

static void a_flush_ends_when_what_was_sent_is_due(void **state)
{
    fixture_t *f = *state;
    assert_int_equal(psp_transport_flush(f->server, 0, &f->error), PSC_OK);
    send_bytes(f, f->server, 0, 1, 8);
    assert_int_equal(psp_transport_flush(f->server, 0, &f->error), PSC_TIMEOUT);
    f->now_us += DELAY_US;
    assert_int_equal(psp_transport_flush(f->server, 0, &f->error), PSC_OK);
    assert_int_equal(receive(f, f->clients[0], NULL, NULL), 1);
}

static void an_endpoint_may_end_with_messages_under_way(void **state)
{
    fixture_t *f = *state;
    for (uint8_t i = 0; i < 20; i++)
        send_bytes(f, f->clients[i % WORKERS], 0, i, 1000);
    assert_int_equal(receive(f, f->server, NULL, NULL), -1);
}

static void a_message_without_a_time_is_refused(void **state)
{
    fixture_t *f = *state;
    psp_transport_t *server;
    psp_transport_t *client;
    psp_transport_t *plain;
    assert_int_equal(psp_local_create(1, f->pool, &plain, &client, &f->error), PSC_OK);
    assert_int_equal(psp_delay_create(plain, DELAY_US, read_clock, f, &server, &f->error), PSC_OK);
    const size_t sizes[] = {0, 7, 8, 100};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        psp_buffer_t *buffer = NULL;
        send_bytes(f, client, 0, 200, sizes[i]); /* read as a time: far in the future */
        assert_int_equal(psp_transport_poll(server, &buffer, &f->error), PSC_PROTOCOL);
        assert_null(buffer);
    }
    psp_transport_destroy(server);
    psp_transport_destroy(client);
}

static void failed_allocations_lose_a_message_at_most(void **state)
{
    fixture_t *f = *state;
    psp_buffer_t *buffer = NULL;
    assert_int_equal(psp_buffer_get(f->pool, 256, &buffer, &f->error), PSC_OK);
    buffer->size = 256;
    psc_alloc_fail_at(1);
    psc_status_t st = psp_transport_send(f->clients[0], 0, buffer, &f->error);
    psc_alloc_fail_at(0);
    assert_int_equal(st, PSC_NO_MEMORY);
    send_bytes(f, f->clients[0], 0, 3, 8);
    psc_alloc_fail_at(1);
    st = psp_transport_poll(f->server, &buffer, &f->error);
    psc_alloc_fail_at(0);
    assert_int_equal(st, PSC_NO_MEMORY);
    send_bytes(f, f->clients[0], 0, 4, 8);
    f->now_us += DELAY_US;
    assert_int_equal(receive(f, f->server, NULL, NULL), 4);
}

static void delays_that_make_no_sense_are_refused(void **state)
{
    fixture_t *f = *state;
    psp_transport_t *outer = NULL;
    assert_int_equal(psp_delay_create(f->server, 0, NULL, NULL, &outer, &f->error),
                     PSC_INVALID_ARGUMENT);
    assert_int_equal(psp_delay_create(f->server, 60000001, NULL, NULL, &outer, &f->error),
                     PSC_INVALID_ARGUMENT);
    assert_null(outer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_message_comes_when_its_delay_is_over_and_not_before,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(who_looks_late_waits_no_longer, setup, teardown),
        cmocka_unit_test_setup_teardown(
            endpoints_look_like_the_inner_ones_and_count_the_messages_alone, setup, teardown),
        cmocka_unit_test_setup_teardown(messages_of_every_size_arrive_whole, setup, teardown),
        cmocka_unit_test_setup_teardown(messages_keep_their_order_and_their_time, setup, teardown),
        cmocka_unit_test_setup_teardown(a_wait_ends_when_the_next_message_is_due, setup, teardown),
        cmocka_unit_test_setup_teardown(a_flush_ends_when_what_was_sent_is_due, setup, teardown),
        cmocka_unit_test_setup_teardown(an_endpoint_may_end_with_messages_under_way, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_message_without_a_time_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(failed_allocations_lose_a_message_at_most, setup, teardown),
        cmocka_unit_test_setup_teardown(delays_that_make_no_sense_are_refused, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
