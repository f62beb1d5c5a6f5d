/*
 * One thread with poll() over pairs of sockets. It copies what comes from either side to the other
 * with blocking writes, which is enough for tests whose two ends both read. A cut closes both
 * sockets of every pair with linger 0, so that both ends see a reset. Wishes of the test's thread
 * (stop, cut, refuse) are atomics; a pipe ends poll early.
 */
#include "tests/support/tcp_proxy.h"

#include "tests/support/cmocka.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PAIRS = 128, CHUNK = 65536 };

struct tcp_proxy {
    pthread_t thread;
    int listener, pipe[2];
    uint16_t to_port;
    char address[32];
    int ends[PAIRS][2]; /* -1: none */
    atomic_bool stopping, cutting, refusing;
    atomic_uint n_connections;
    char chunk[CHUNK];
};

static void hang_up(int *ends)
{
    const struct linger at_once = {.l_onoff = 1, .l_linger = 0};
    for (int i = 0; i < 2; i++) {
        if (ends[i] < 0)
            continue;
        (void)setsockopt(ends[i], SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
        (void)close(ends[i]);
        ends[i] = -1;
    }
}

static void take_connection(tcp_proxy_t *proxy)
{
    const int one = 1;
    int ends[2] = {accept(proxy->listener, NULL, NULL), -1};
    size_t at = 0;
    if (ends[0] < 0)
        return;
    while (at < PAIRS && proxy->ends[at][0] >= 0)
        at++;
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons(proxy->to_port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    ends[1] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (at == PAIRS || atomic_load(&proxy->refusing) || ends[1] < 0 ||
        connect(ends[1], (const struct sockaddr *)(const void *)&to, sizeof to) != 0) {
        hang_up(ends);
        return;
    }
    for (int i = 0; i < 2; i++)
        (void)setsockopt(ends[i], IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    memcpy(proxy->ends[at], ends, sizeof ends);
    atomic_fetch_add(&proxy->n_connections, 1);
}

/* Forwards what one end of a pair has to say. */
static void forward(tcp_proxy_t *proxy, int *ends, int from)
{
    ssize_t n = read(ends[from], proxy->chunk, sizeof proxy->chunk);
    for (ssize_t at = 0; n > 0 && at < n;) {
        ssize_t wrote = send(ends[1 - from], proxy->chunk + at, (size_t)(n - at), MSG_NOSIGNAL);
        if (wrote <= 0)
            n = 0;
        else
            at += wrote;
    }
    if (n <= 0)
        hang_up(ends);
}

static void *run(void *context)
{
    tcp_proxy_t *proxy = context;
    while (!atomic_load(&proxy->stopping)) {
        struct pollfd fds[2 + 2 * PAIRS];
        char wish;
        fds[0] = (struct pollfd){.fd = proxy->pipe[0], .events = POLLIN};
        fds[1] = (struct pollfd){.fd = proxy->listener, .events = POLLIN};
        for (size_t i = 0; i < (size_t)2 * PAIRS; i++)
            fds[2 + i] = (struct pollfd){.fd = proxy->ends[i / 2][i % 2], .events = POLLIN};
        (void)poll(fds, 2 + (nfds_t)2 * PAIRS, -1);
        if (fds[0].revents != 0 && read(proxy->pipe[0], &wish, 1) < 0)
            break;
        if (atomic_exchange(&proxy->cutting, false)) {
            for (size_t i = 0; i < PAIRS; i++)
                hang_up(proxy->ends[i]);
            continue;
        }
        for (size_t i = 0; i < (size_t)2 * PAIRS; i++) {
            if (fds[2 + i].revents != 0 && proxy->ends[i / 2][i % 2] == fds[2 + i].fd &&
                fds[2 + i].fd >= 0)
                forward(proxy, proxy->ends[i / 2], (int)(i % 2));
        }
        if (fds[1].revents != 0)
            take_connection(proxy);
    }
    for (size_t i = 0; i < PAIRS; i++)
        hang_up(proxy->ends[i]);
    return NULL;
}

tcp_proxy_t *tcp_proxy_start(uint16_t to_port)
{
    tcp_proxy_t *proxy = calloc(1, sizeof *proxy);
    assert_non_null(proxy);
    struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof own;
    memset(proxy->ends, 0xff, sizeof proxy->ends); /* -1 */
    proxy->to_port = to_port;
    proxy->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_not_equal(proxy->listener, -1);
    assert_int_equal(bind(proxy->listener, (const struct sockaddr *)(const void *)&own, length), 0);
    assert_int_equal(listen(proxy->listener, PAIRS), 0);
    assert_int_equal(getsockname(proxy->listener, (struct sockaddr *)(void *)&own, &length), 0);
    (void)snprintf(proxy->address, sizeof proxy->address, "127.0.0.1:%u",
                   (unsigned)ntohs(own.sin_port));
    assert_int_equal(pipe(proxy->pipe), 0);
    assert_int_equal(pthread_create(&proxy->thread, NULL, run, proxy), 0);
    return proxy;
}

static void wish(tcp_proxy_t *proxy)
{
    assert_int_equal(write(proxy->pipe[1], "w", 1), 1);
}

void tcp_proxy_stop(tcp_proxy_t *proxy)
{
    atomic_store(&proxy->stopping, true);
    wish(proxy);
    assert_int_equal(pthread_join(proxy->thread, NULL), 0);
    (void)close(proxy->listener);
    (void)close(proxy->pipe[0]);
    (void)close(proxy->pipe[1]);
    free(proxy);
}

const char *tcp_proxy_address(const tcp_proxy_t *proxy)
{
    return proxy->address;
}

void tcp_proxy_cut(tcp_proxy_t *proxy)
{
    atomic_store(&proxy->cutting, true);
    wish(proxy);
}

void tcp_proxy_refuse(tcp_proxy_t *proxy, int refuse)
{
    atomic_store(&proxy->refusing, refuse != 0);
}

unsigned tcp_proxy_connections(const tcp_proxy_t *proxy)
{
    return atomic_load(&proxy->n_connections);
}
