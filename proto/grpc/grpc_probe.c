/*
 * A server of HTTP/2 in plain text speaks first, with its settings; one of TLS waits for the
 * client's greeting. So: connect and listen; where nothing comes soon, shake hands in TLS, with
 * what the client trusts and shows, and hear what comes of it. What else a port may be stays
 * unknown. Nothing secret is sent.
 *
 * Source: RFC 9113, sections 3.4 and 4.1 (frames). Threads: any; no state.
 */
#include "proto/grpc/grpc_probe.h"

#include "common/clock.h"
#include "proto/grpc/listen_address.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define LISTEN_US UINT64_C(300000)  /* for settings */
#define ANSWER_US UINT64_C(3000000) /* for a connection, for an answer */
#define FRAME_HEADER_BYTES 9
#define FRAME_TYPE_AT 3
#define FRAME_SETTINGS 4

static bool wait_for(int fd, short what, uint64_t timeout_us)
{
    struct pollfd wait = {.fd = fd, .events = what};
    int n;
    do
        n = poll(&wait, 1, (int)(timeout_us / 1000));
    while (n < 0 && errno == EINTR);
    return n == 1;
}

/* Returns a connected descriptor; -1: there is nobody. */
static int connect_to(const struct sockaddr *where, socklen_t size, uint64_t timeout_us)
{
    int fd = socket(where->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    int failed = connect(fd, where, size) == 0 ? 0 : errno;
    socklen_t length = sizeof failed;
    if (failed == EINPROGRESS && (!wait_for(fd, POLLOUT, timeout_us) ||
                                  getsockopt(fd, SOL_SOCKET, SO_ERROR, &failed, &length) != 0))
        failed = ETIMEDOUT;
    if (failed == 0)
        return fd;
    (void)close(fd);
    return -1;
}

static int open_connection(const char *address, uint64_t timeout_us)
{
    struct sockaddr_un local = {.sun_family = AF_UNIX};
    char host[PSP_ADDRESS_MAX + 1];
    const char *port;
    if (strncmp(address, "unix:", 5) == 0) {
        if (strlen(address + 5) >= sizeof local.sun_path)
            return -1;
        memcpy(local.sun_path, address + 5, strlen(address + 5));
        return connect_to((const struct sockaddr *)&local, sizeof local, timeout_us);
    }
    struct addrinfo *found;
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    if (!psp_address_split(address, host, sizeof host, &port) ||
        getaddrinfo(host, port, &hints, &found) != 0)
        return -1;
    int fd = -1;
    for (const struct addrinfo *next = found; next != NULL && fd < 0; next = next->ai_next)
        fd = connect_to(next->ai_addr, next->ai_addrlen, timeout_us);
    freeaddrinfo(found);
    return fd;
}

/* Whether the first bytes are HTTP/2's. */
static bool speaks_first(int fd)
{
    uint8_t heard[FRAME_HEADER_BYTES];
    return wait_for(fd, POLLIN, LISTEN_US) &&
           recv(fd, heard, sizeof heard, 0) == FRAME_HEADER_BYTES &&
           heard[FRAME_TYPE_AT] == FRAME_SETTINGS;
}

/* As gRPC has it: a socket's file has no name that a certificate could be for. */
static void host_of(const char *address, char *host, size_t size)
{
    const char *port;
    if (strncmp(address, "unix:", 5) == 0 || !psp_address_split(address, host, size, &port))
        (void)snprintf(host, size, "localhost");
}

psp_probe_t psp_grpc_probe(const char *address, const psp_shown_t *shown, char *words_out,
                           size_t size)
{
    const bool tls = shown->ca.text != NULL;
    char host[PSP_ADDRESS_MAX + 1];
    psp_handshake_t hands = PSP_HANDSHAKE_SILENT;
    words_out[0] = '\0';
    int fd = open_connection(address, ANSWER_US);
    if (fd < 0)
        return PSP_PROBE_NOTHING;
    const bool plain = speaks_first(fd);
    host_of(address, host, sizeof host);
    if (!plain)
        hands = psp_grpc_shake_hands(fd, host, shown, psc_clock_us() + ANSWER_US, words_out, size);
    (void)close(fd);
    if (plain && tls)
        (void)snprintf(words_out, size,
                       "speaks plain text and no TLS: connect without tls_ca, or start it with "
                       "--tls-cert");
    else if (!plain && !tls && hands != PSP_HANDSHAKE_SILENT)
        (void)snprintf(words_out, size,
                       "speaks TLS: give the authority that signs its certificate (tls_ca)");
    else if (hands == PSP_HANDSHAKE_CUT)
        (void)snprintf(words_out, size,
                       shown->cert.text != NULL
                           ? "speaks TLS, and may not take this client's certificate"
                           : "speaks TLS, and may want a certificate of this client (tls_cert)");
    if (words_out[0] == '\0')
        return PSP_PROBE_NOTHING;
    return tls && hands == PSP_HANDSHAKE_CUT ? PSP_PROBE_GUESS : PSP_PROBE_FAULT;
}
