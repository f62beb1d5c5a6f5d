/*
 * A server of HTTP/2 in plain text speaks first, with its settings; one of TLS waits for the
 * client's greeting and answers it, with a greeting of its own or with an alert. So: connect and
 * listen; where nothing comes soon, greet in TLS 1.2 and look at the first bytes of the answer.
 * What else a port may be stays unknown. Nothing secret is sent.
 *
 * Source: RFC 9113, sections 3.4 and 4.1 (frames); RFC 5246, sections 6.2.1 and 7.4.1.2 (records,
 * ClientHello). Threads: any; no state.
 */
#include "proto/grpc/grpc_probe.h"

#include "proto/grpc/listen_address.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define LISTEN_US UINT64_C(300000)  /* for settings */
#define ANSWER_US UINT64_C(3000000) /* for a connection, for an answer */
#define FRAME_HEADER_BYTES 9
#define FRAME_TYPE_AT 3
#define FRAME_SETTINGS 4
#define RECORD_ALERT 0x15
#define RECORD_HANDSHAKE 0x16

/* ClientHello: TLS 1.2, six suites with ECDHE, ALPN h2. What would be random is not. */
static const char greeting[] =
    "\x16\x03\x01\x00\x60"                                     /* record of 96 bytes */
    "\x01\x00\x00\x5c\x03\x03"                                 /* ClientHello of 92 */
    "embps embps embps embps embps em"                         /* random */
    "\x00"                                                     /* no session */
    "\x00\x0c\xc0\x2b\xc0\x2f\xc0\x2c\xc0\x30\xcc\xa9\xcc\xa8" /* suites */
    "\x01\x00"                                                 /* no compression */
    "\x00\x27"                                                 /* extensions: */
    "\x00\x0a\x00\x06\x00\x04\x00\x1d\x00\x17"                 /* x25519, P-256 */
    "\x00\x0b\x00\x02\x01\x00"                                 /* plain points */
    "\x00\x0d\x00\x0a\x00\x08\x04\x03\x08\x04\x04\x01\x05\x03" /* signatures */
    "\x00\x10\x00\x05\x00\x03\x02h2";                          /* ALPN */
#define GREETING_BYTES (sizeof greeting - 1)
_Static_assert(GREETING_BYTES == 5 + 96, "the lengths within say the same");

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

/* What the first bytes of an answer tell. */
static psp_speech_t listen_to(int fd)
{
    uint8_t heard[FRAME_HEADER_BYTES];
    const ssize_t n = recv(fd, heard, sizeof heard, 0);
    if (n == FRAME_HEADER_BYTES && heard[FRAME_TYPE_AT] == FRAME_SETTINGS)
        return PSP_SPEECH_PLAIN;
    if (n >= 1 && (heard[0] == RECORD_HANDSHAKE || heard[0] == RECORD_ALERT))
        return PSP_SPEECH_TLS;
    return PSP_SPEECH_UNKNOWN;
}

psp_speech_t psp_grpc_probe(const char *address)
{
    psp_speech_t speech = PSP_SPEECH_UNKNOWN;
    int fd = open_connection(address, ANSWER_US);
    if (fd < 0)
        return speech;
    if (wait_for(fd, POLLIN, LISTEN_US) ||
        (send(fd, greeting, GREETING_BYTES, MSG_NOSIGNAL) == (ssize_t)GREETING_BYTES &&
         wait_for(fd, POLLIN, ANSWER_US)))
        speech = listen_to(fd);
    (void)close(fd);
    return speech;
}
