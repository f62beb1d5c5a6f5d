/*
 * The transport that checks: over one that damages what it carries, as a seed says; messages both
 * ways between a server and three clients come whole, once and in order all the same.
 */
#include "proto/checked_transport.h"

#include "common/alloc.h"
#include "common/log.h"
#include "proto/local/local_transport.h"
#include "proto/seal.h"
#include "tests/support/cmocka.h"
#include "tests/support/test_seed.h"

#include <stdlib.h>
#include <string.h>

enum { CLIENTS = 3, MESSAGES = 300, KIND = 5, MAX_SIZE = 5000 };

/* Around another transport: one in `one_in` of what comes is damaged. */
typedef struct damaging {
    psp_transport_t base; /* first */
    psp_transport_t *inner;
    test_random_t *random;
    uint32_t one_in; /* 0: nothing is */
    uint64_t n_damaged;
} damaging_t;

typedef struct end {
    psp_transport_t *transport; /* checked */
    damaging_t *way;
} end_t;

typedef struct fixture {
    psp_pool_t *pool;
    end_t server, clients[CLIENTS];
    test_random_t random;
    uint64_t now_us;
    psc_error_t error;
} fixture_t;

static damaging_t *damaging_of(psp_transport_t *transport)
{
    return (damaging_t *)(void *)transport; /* base is the first member */
}

static uint32_t any(damaging_t *d, uint32_t below)
{
    return (uint32_t)test_below(d->random, below);
}

static psc_status_t damaging_send(psp_transport_t *transport, uint32_t peer, psp_buffer_t *buffer,
                                  psc_error_t *error)
{
    return psp_transport_send(damaging_of(transport)->inner, peer, buffer, error);
}

/* The sender still has the buffer: a copy is damaged. */
static psp_buffer_t *damage(damaging_t *d, psp_buffer_t *buffer)
{
    psp_buffer_t *copy = NULL;
    assert_int_equal(psp_buffer_get(buffer->pool, buffer->size, &copy, NULL), PSC_OK);
    memcpy(copy->data, buffer->data, buffer->size);
    copy->size = buffer->size;
    copy->kind = buffer->kind;
    copy->peer = buffer->peer;
    psp_buffer_put(buffer);
    d->n_damaged++;
    switch (any(d, 4)) {
    case 0:
        copy->data[any(d, (uint32_t)copy->size)] ^= (uint8_t)(1u << any(d, 8));
        break;
    case 1: /* all from some byte on */
        for (uint32_t i = any(d, (uint32_t)copy->size); i < copy->size; i++)
            copy->data[i] = (uint8_t)(copy->data[i] + 1 + any(d, 255));
        break;
    case 2:
        copy->size = any(d, (uint32_t)copy->size);
        break;
    default:
        copy->kind ^= 1u << any(d, 5);
        break;
    }
    return copy;
}

static psc_status_t damaging_poll(psp_transport_t *transport, psp_buffer_t **buffer_out,
                                  psc_error_t *error)
{
    damaging_t *d = damaging_of(transport);
    psc_status_t st = psp_transport_poll(d->inner, buffer_out, error);
    if (st == PSC_OK && *buffer_out != NULL && d->one_in != 0 && any(d, d->one_in) == 0)
        *buffer_out = damage(d, *buffer_out);
    return st;
}

static void damaging_wait(psp_transport_t *transport, uint64_t timeout_us)
{
    psp_transport_wait(damaging_of(transport)->inner, timeout_us);
}

static void damaging_forget(psp_transport_t *transport, uint32_t peer)
{
    psp_transport_forget(damaging_of(transport)->inner, peer);
}

static void damaging_destroy(psp_transport_t *transport)
{
    psp_transport_destroy(damaging_of(transport)->inner);
    free(damaging_of(transport));
}

static const psp_transport_ops_t damaging_ops = {
    .name = "damaging",
    .send = damaging_send,
    .poll = damaging_poll,
    .wait = damaging_wait,
    .forget = damaging_forget,
    .destroy = damaging_destroy,
};

static uint64_t read_clock(void *context)
{
    return ((const fixture_t *)context)->now_us;
}

static end_t wrap(fixture_t *f, psp_transport_t *inner)
{
    end_t end = {.way = calloc(1, sizeof *end.way)};
    assert_non_null(end.way);
    end.way->base = *inner;
    end.way->base.ops = &damaging_ops;
    end.way->inner = inner;
    end.way->random = &f->random;
    assert_int_equal(psp_checked_create(&end.way->base, read_clock, f, &end.transport, &f->error),
                     PSC_OK);
    return end;
}

static int setup(void **state)
{
    fixture_t *f = calloc(1, sizeof *f);
    assert_non_null(f);
    psp_transport_t *server, *clients[CLIENTS];
    f->random = test_random_start();
    assert_int_equal(psp_pool_create(1 << 20, &f->pool, &f->error), PSC_OK);
    assert_int_equal(psp_local_create(CLIENTS, f->pool, &server, clients, &f->error), PSC_OK);
    f->server = wrap(f, server);
    for (size_t w = 0; w < CLIENTS; w++)
        f->clients[w] = wrap(f, clients[w]);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    fixture_t *f = *state;
    psp_transport_destroy(f->server.transport);
    for (size_t w = 0; w < CLIENTS; w++)
        psp_transport_destroy(f->clients[w].transport);
    assert_int_equal(psp_pool_bytes_out(f->pool), 0);
    psp_pool_destroy(f->pool);
    free(f);
    return 0;
}

static void damage_all(fixture_t *f, uint32_t one_in)
{
    f->server.way->one_in = one_in;
    for (size_t w = 0; w < CLIENTS; w++)
        f->clients[w].way->one_in = one_in;
}

/* Message n of a way: its length and bytes follow from both; every third has room for a seal. */
static void send_one(fixture_t *f, psp_transport_t *from, uint32_t peer, uint32_t n, uint32_t way)
{
    psp_buffer_t *buffer = NULL;
    const size_t room = n % 3 == 0 ? PSP_SEAL_BYTES : 0;
    const size_t size = 8 + (n * 977 + way) % (MAX_SIZE - 8);
    const uint32_t head[2] = {n, way};
    assert_int_equal(psp_buffer_get(f->pool, room + size, &buffer, &f->error), PSC_OK);
    if (room != 0)
        psp_seal_leave_room(buffer->data);
    memcpy(buffer->data + room, head, sizeof head);
    for (size_t i = sizeof head; i < size; i++)
        buffer->data[room + i] = (uint8_t)(i * 13 + n + way);
    buffer->size = room + size;
    buffer->kind = KIND;
    assert_int_equal(psp_transport_send(from, peer, buffer, &f->error), PSC_OK);
}

/* Takes what is there, each message being the next one of its way. */
static void take_all(fixture_t *f, psp_transport_t *at, uint32_t *next, uint32_t first_way)
{
    for (;;) {
        psp_buffer_t *buffer = NULL;
        const psc_status_t st = psp_transport_poll(at, &buffer, &f->error);
        if (st != PSC_OK)
            fail_msg("%s", f->error.message);
        if (buffer == NULL)
            return;
        const uint32_t way = first_way + buffer->peer, n = next[buffer->peer]++;
        const uint32_t head[2] = {n, way};
        const uint8_t *bytes = buffer->data + PSP_SEAL_BYTES;
        assert_int_equal(buffer->kind, KIND);
        assert_int_equal(buffer->size, PSP_SEAL_BYTES + 8 + (n * 977 + way) % (MAX_SIZE - 8));
        assert_memory_equal(bytes, head, sizeof head);
        for (size_t i = sizeof head; i < buffer->size - PSP_SEAL_BYTES; i++)
            assert_int_equal(bytes[i], (uint8_t)(i * 13 + n + way));
        psp_buffer_put(buffer);
    }
}

/* MESSAGES each way; then all is said until nothing is missing. */
static void exchange(fixture_t *f)
{
    uint32_t to_server[CLIENTS] = {0}, to_client[CLIENTS] = {0}, done = 0;
    damaging_t *d = f->server.way;
    for (uint32_t round = 0, sent = 0; done < CLIENTS; round++) {
        assert_true(round < 100000);
        for (uint32_t burst = any(d, 8); burst != 0 && sent < MESSAGES; burst--, sent++) {
            for (uint32_t w = 0; w < CLIENTS; w++) {
                send_one(f, f->clients[w].transport, 0, sent, w);
                send_one(f, f->server.transport, w, sent, 10 + w);
            }
        }
        take_all(f, f->server.transport, to_server, 0);
        done = 0;
        for (uint32_t w = 0; w < CLIENTS; w++) {
            take_all(f, f->clients[w].transport, &to_client[w], 10 + w);
            done += to_server[w] == MESSAGES && to_client[w] == MESSAGES;
        }
        f->now_us += 1000;
    }
}

static void what_is_not_damaged_is_sent_once(void **state)
{
    fixture_t *f = *state;
    exchange(f);
    assert_int_equal(f->server.transport->damaged, 0);
    assert_int_equal(f->server.transport->retries, 0);
    for (size_t w = 0; w < CLIENTS; w++)
        assert_int_equal(f->clients[w].transport->retries, 0);
}

static void what_is_damaged_comes_again_and_in_order(void **state)
{
    fixture_t *f = *state;
    uint64_t n_damaged, n_noticed;
    damage_all(f, 5);
    exchange(f);
    n_damaged = f->server.way->n_damaged;
    n_noticed = f->server.transport->damaged;
    for (size_t w = 0; w < CLIENTS; w++) {
        n_damaged += f->clients[w].way->n_damaged;
        n_noticed += f->clients[w].transport->damaged;
    }
    assert_true(n_damaged > MESSAGES / 10);
    assert_int_equal(n_noticed, n_damaged); /* each one, and nothing else */
}

static void where_all_is_damaged_that_is_said(void **state)
{
    fixture_t *f = *state;
    psp_buffer_t *buffer = NULL;
    psc_status_t st = PSC_OK;
    f->server.way->one_in = 1;
    send_one(f, f->clients[1].transport, 0, 0, 1);
    for (uint32_t i = 0; i < 1000000 && st == PSC_OK; i++) {
        uint32_t none = 0;
        f->now_us += 1000;
        take_all(f, f->clients[1].transport, &none, 11);
        st = psp_transport_poll(f->server.transport, &buffer, &f->error);
        assert_null(buffer);
    }
    assert_int_equal(st, PSC_CORRUPT);
    assert_non_null(strstr(f->error.message, "peer 1"));
    assert_non_null(strstr(f->error.message, "bytes"));
    assert_true(f->server.transport->damaged >= PSP_CHECKED_ATTEMPTS);
    /* It was asked with rests between, not all the time. */
    assert_true(f->now_us > PSP_CHECKED_ATTEMPTS / 2 * PSP_CHECKED_LONGEST_REST_US);
}

/* A peer that is gone is not asked, and nothing is kept for it. */
static void who_is_forgotten_costs_nothing(void **state)
{
    fixture_t *f = *state;
    uint32_t next[CLIENTS] = {0};
    f->server.way->one_in = 1;
    for (uint32_t n = 0; n < 20; n++) {
        send_one(f, f->clients[2].transport, 0, n, 2);
        send_one(f, f->server.transport, 2, n, 12);
    }
    take_all(f, f->server.transport, next, 0);
    assert_int_equal(next[2], 0);
    psp_transport_forget(f->server.transport, 2);
    psp_transport_destroy(f->clients[2].transport);
    f->now_us += 10 * PSP_CHECKED_LONGEST_REST_US;
    take_all(f, f->server.transport, next, 0); /* would fail to ask it */
    assert_int_equal(next[2], 0);
    psp_transport_t *server, *clients[1];
    assert_int_equal(psp_local_create(1, f->pool, &server, clients, &f->error), PSC_OK);
    psp_transport_destroy(server);
    f->clients[2] = wrap(f, clients[0]); /* for the teardown */
}

/* Where nothing goes back, what was taken is told by itself, so that little is kept. */
static void what_was_heard_is_not_kept(void **state)
{
    fixture_t *f = *state;
    uint32_t next[CLIENTS] = {0}, none = 0;
    size_t most = 0;
    for (uint32_t n = 0; n < 2000; n++) {
        send_one(f, f->clients[0].transport, 0, n, 0);
        take_all(f, f->server.transport, next, 0);
        take_all(f, f->clients[0].transport, &none, 10);
        const size_t out = psp_pool_bytes_out(f->pool);
        most = out > most ? out : most;
    }
    assert_int_equal(next[0], 2000);
    assert_true(most < 64 * (size_t)2 * MAX_SIZE);
}

static void without_memory_nothing_is_left(void **state)
{
    fixture_t *f = *state;
    psp_transport_t *transport = NULL;
    for (size_t n = 1; n <= 2; n++) {
        psc_alloc_fail_at(n);
        assert_int_equal(psp_checked_create(f->server.transport, NULL, NULL, &transport, &f->error),
                         PSC_NO_MEMORY);
        psc_alloc_fail_at(0);
        assert_null(transport);
    }
}

#define CHECKED_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    psc_log_set_level(PSC_LOG_ERROR);
    const struct CMUnitTest tests[] = {
        CHECKED_TEST(what_is_not_damaged_is_sent_once),
        CHECKED_TEST(what_is_damaged_comes_again_and_in_order),
        CHECKED_TEST(where_all_is_damaged_that_is_said),
        CHECKED_TEST(who_is_forgotten_costs_nothing),
        CHECKED_TEST(what_was_heard_is_not_kept),
        CHECKED_TEST(without_memory_nothing_is_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
