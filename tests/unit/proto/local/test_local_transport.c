/* The local transport: order, peers, waits, and endpoints that end in any order. */
#include "common/alloc.h"
#include "proto/local/local_transport.h"

#include "tests/support/cmocka.h"

#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum { WORKERS = 3 };

typedef struct fixture {
    psp_pool_t *pool;
    psp_transport_t *server;
    psp_transport_t *clients[WORKERS];
    psc_error_t error;
} fixture_t;

static int setup(void **state)
{
    fixture_t *f = calloc(1, sizeof *f);
    assert_non_null(f);
    assert_int_equal(psp_pool_create(1 << 20, &f->pool, &f->error), PSC_OK);
    assert_int_equal(psp_local_create(WORKERS, f->pool, &f->server, f->clients, &f->error), PSC_OK);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    fixture_t *f = *state;
    psp_transport_destroy(f->server);
    for (size_t i = 0; i < WORKERS; i++)
        psp_transport_destroy(f->clients[i]);
    assert_int_equal(psp_pool_bytes_out(f->pool), 0);
    psp_pool_destroy(f->pool);
    free(f);
    return 0;
}

static psc_status_t send_number(fixture_t *f, psp_transport_t *from, uint32_t peer, uint32_t number)
{
    psp_buffer_t *buffer = NULL;
    assert_int_equal(psp_buffer_get(f->pool, sizeof number, &buffer, &f->error), PSC_OK);
    memcpy(buffer->data, &number, sizeof number);
    buffer->size = sizeof number;
    buffer->kind = 5;
    return psp_transport_send(from, peer, buffer, &f->error);
}

/* The next message's number and peer; false when there is none. */
static bool receive(fixture_t *f, psp_transport_t *at, uint32_t *number_out, uint32_t *peer_out)
{
    psp_buffer_t *buffer = NULL;
    assert_int_equal(psp_transport_poll(at, &buffer, &f->error), PSC_OK);
    if (buffer == NULL)
        return false;
    assert_int_equal(buffer->kind, 5);
    assert_int_equal(buffer->size, sizeof *number_out);
    memcpy(number_out, buffer->data, sizeof *number_out);
    *peer_out = buffer->peer;
    psp_buffer_put(buffer);
    return true;
}

static void endpoints_know_who_they_are(void **state)
{
    fixture_t *f = *state;
    assert_int_equal(f->server->n_peers, WORKERS);
    assert_int_equal(f->server->rank, 0);
    assert_int_equal(f->server->n_ranks, 1);
    for (uint32_t i = 0; i < WORKERS; i++) {
        assert_int_equal(f->clients[i]->n_peers, 1);
        assert_int_equal(f->clients[i]->rank, i);
        assert_int_equal(f->clients[i]->n_ranks, WORKERS);
    }
}

static void messages_arrive_in_order_with_their_peer(void **state)
{
    fixture_t *f = *state;
    for (uint32_t i = 0; i < 100; i++)
        for (uint32_t w = 0; w < WORKERS; w++)
            assert_int_equal(send_number(f, f->clients[w], 0, i), PSC_OK);
    uint32_t seen[WORKERS] = {0};
    uint32_t number = 0;
    uint32_t peer = 0;
    while (receive(f, f->server, &number, &peer)) {
        assert_true(peer < WORKERS);
        assert_int_equal(number, seen[peer]++);
        assert_int_equal(send_number(f, f->server, peer, number + 1000), PSC_OK);
    }
    for (uint32_t w = 0; w < WORKERS; w++) {
        assert_int_equal(seen[w], 100);
        for (uint32_t i = 0; i < 100; i++) {
            assert_true(receive(f, f->clients[w], &number, &peer));
            assert_int_equal(peer, 0);
            assert_int_equal(number, i + 1000);
        }
        assert_false(receive(f, f->clients[w], &number, &peer));
        assert_int_equal(f->clients[w]->bytes_sent, 400);
        assert_int_equal(f->clients[w]->bytes_received, 400);
        assert_int_equal(psp_transport_backlog(f->clients[w], 0), 0);
    }
    assert_int_equal(f->server->bytes_received, 1200);
    assert_int_equal(psp_transport_flush(f->server, 0, &f->error), PSC_OK);
}

static void a_wait_ends_by_a_message_a_wake_or_time(void **state)
{
    fixture_t *f = *state;
    psp_transport_wait(f->server, 1000);
    psp_transport_wake(f->server);
    psp_transport_wait(f->server, UINT64_MAX);
    assert_int_equal(send_number(f, f->clients[1], 0, 1), PSC_OK);
    psp_transport_wait(f->server, UINT64_MAX);
    uint32_t number = 0;
    uint32_t peer = 0;
    assert_true(receive(f, f->server, &number, &peer));
    assert_int_equal(peer, 1);
}

static void what_is_sent_to_the_destroyed_is_peer_gone(void **state)
{
    fixture_t *f = *state;
    assert_int_equal(send_number(f, f->server, 1, 7), PSC_OK); /* is in its mailbox */
    psp_transport_destroy(f->clients[1]);
    f->clients[1] = NULL;
    assert_int_equal(send_number(f, f->server, 1, 8), PSC_PEER_GONE);
    assert_int_equal(send_number(f, f->server, 0, 9), PSC_OK);
    psp_transport_destroy(f->server);
    f->server = NULL;
    psp_transport_wait(f->clients[2], UINT64_MAX); /* woken by the server's end */
    assert_int_equal(send_number(f, f->clients[0], 0, 10), PSC_PEER_GONE);
    uint32_t number = 0;
    uint32_t peer = 0;
    assert_true(receive(f, f->clients[0], &number, &peer)); /* what came before still arrives */
    assert_int_equal(number, 9);
}

static void needs_a_worker(void **state)
{
    fixture_t *f = *state;
    psp_transport_t *server = NULL;
    psp_transport_t *client = NULL;
    assert_int_equal(psp_local_create(0, f->pool, &server, &client, &f->error),
                     PSC_INVALID_ARGUMENT);
    assert_null(server);
}

static void every_failed_allocation_is_reported(void **state)
{
    fixture_t *f = *state;
    psc_status_t st = PSC_NO_MEMORY;
    unsigned long n = 1;
    for (; st != PSC_OK; n++) {
        psp_transport_t *server = NULL;
        psp_transport_t *clients[2] = {NULL, NULL};
        psc_alloc_fail_at(n);
        st = psp_local_create(2, f->pool, &server, clients, &f->error);
        psc_alloc_fail_at(0);
        assert_true(st == PSC_OK || st == PSC_NO_MEMORY);
        psp_transport_destroy(clients[0]);
        psp_transport_destroy(server);
        psp_transport_destroy(clients[1]);
    }
    assert_true(n > 4);
}

enum { N_ECHOES = 2000 };

/* Sends numbers and gets them back, by blocking waits alone. */
static void *echo_client(void *argument)
{
    psp_transport_t *client = argument;
    for (uint32_t i = 0; i < N_ECHOES; i++) {
        psp_buffer_t *buffer = NULL;
        psc_error_t error;
        if (psp_buffer_get(client->pool, sizeof i, &buffer, &error) != PSC_OK)
            return argument;
        memcpy(buffer->data, &i, sizeof i);
        buffer->size = sizeof i;
        if (psp_transport_send(client, 0, buffer, &error) != PSC_OK)
            return argument;
        buffer = NULL;
        while (buffer == NULL) {
            psp_transport_wait(client, UINT64_MAX);
            if (psp_transport_poll(client, &buffer, &error) != PSC_OK)
                return argument;
        }
        bool same = memcmp(buffer->data, &i, sizeof i) == 0;
        psp_buffer_put(buffer);
        if (!same)
            return argument;
    }
    psp_transport_destroy(client); /* while the server goes on */
    return NULL;
}

static void threads_talk_without_polling(void **state)
{
    fixture_t *f = *state;
    pthread_t threads[WORKERS];
    for (uint32_t w = 0; w < WORKERS; w++)
        assert_int_equal(pthread_create(&threads[w], NULL, echo_client, f->clients[w]), 0);
    for (uint32_t n = 0; n < WORKERS * N_ECHOES;) {
        psp_buffer_t *buffer = NULL;
        assert_int_equal(psp_transport_poll(f->server, &buffer, &f->error), PSC_OK);
        if (buffer == NULL) {
            psp_transport_wait(f->server, UINT64_MAX);
            continue;
        }
        assert_int_equal(psp_transport_send(f->server, buffer->peer, buffer, &f->error), PSC_OK);
        n++;
    }
    for (uint32_t w = 0; w < WORKERS; w++) {
        void *failed = NULL;
        assert_int_equal(pthread_join(threads[w], &failed), 0);
        assert_null(failed);
        f->clients[w] = NULL;
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(endpoints_know_who_they_are),
        TEST(messages_arrive_in_order_with_their_peer),
        TEST(a_wait_ends_by_a_message_a_wake_or_time),
        TEST(what_is_sent_to_the_destroyed_is_peer_gone),
        TEST(needs_a_worker),
        TEST(every_failed_allocation_is_reported),
        TEST(threads_talk_without_polling),
    };
    return cmocka_run_group_tests_name("local_transport", tests, NULL, NULL);
}
