/*
 * Addresses to listen on, by getaddrinfo.
 *
 * A name that stands for several addresses is the first of them: gRPC would take what it gets of
 * all, and a port that is free on one and in use on another would be half open. Why a port cannot
 * be had gRPC does not say; binding a socket of one's own does. Threads: none.
 */
#include "proto/grpc/listen_address.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

bool psp_address_split(const char *text, char *host, size_t size, const char **port_out)
{
    const char *colon = strrchr(text, ':');
    if (colon == NULL || colon == text)
        return false;
    const char *begin = text, *end = colon;
    if (*begin == '[') {
        if (end[-1] != ']')
            return false;
        begin++;
        end--;
    } else if (memchr(begin, ':', (size_t)(end - begin)) != NULL) {
        return false;
    }
    if (end <= begin || (size_t)(end - begin) >= size)
        return false;
    memcpy(host, begin, (size_t)(end - begin));
    host[end - begin] = '\0';
    *port_out = colon + 1;
    return true;
}

static bool read_port(const char *text, uint32_t *port_out)
{
    uint32_t port = 0;
    size_t n = 0;
    for (; text[n] >= '0' && text[n] <= '9' && n < 6; n++)
        port = port * 10 + (uint32_t)(text[n] - '0');
    *port_out = port;
    return n != 0 && text[n] == '\0' && port <= 65535;
}

bool psp_address_parse(const char *text, char *host, size_t size, uint32_t *port_out)
{
    const char *port;
    return psp_address_split(text, host, size, &port) && read_port(port, port_out);
}

/* What getaddrinfo found. */
static void read_found(const struct addrinfo *found, psp_listen_address_t *address)
{
    address->is_ipv6 = found->ai_family == AF_INET6;
    if (address->is_ipv6) {
        struct sockaddr_in6 in;
        memcpy(&in, found->ai_addr, sizeof in);
        address->is_loopback = IN6_IS_ADDR_LOOPBACK(&in.sin6_addr) != 0;
        address->is_any = IN6_IS_ADDR_UNSPECIFIED(&in.sin6_addr) != 0;
    } else {
        struct sockaddr_in in;
        memcpy(&in, found->ai_addr, sizeof in);
        address->is_loopback = (ntohl(in.sin_addr.s_addr) >> 24) == 127;
        address->is_any = in.sin_addr.s_addr == htonl(INADDR_ANY);
    }
}

static int look_up(const char *host, struct addrinfo **found_out)
{
    const struct addrinfo hints = {.ai_flags = AI_PASSIVE, .ai_socktype = SOCK_STREAM};
    return getaddrinfo(host, NULL, &hints, found_out);
}

psc_status_t psp_listen_address_parse(const char *text, psp_listen_address_t *address_out,
                                      psc_error_t *error)
{
    psp_listen_address_t address = {.port = 0};
    if (strncmp(text, "unix:", 5) == 0)
        return psc_error_set(error, PSC_INVALID_ARGUMENT,
                             "\"%.200s\": servers listen on HOST:PORT alone, as in 127.0.0.1:50051 "
                             "or [::1]:0; unix: is for clients whose way to a server is a socket",
                             text);
    if (!psp_address_parse(text, address.host, sizeof address.host, &address.port))
        return psc_error_set(error, PSC_INVALID_ARGUMENT,
                             "\"%.200s\" is not HOST:PORT, as in 127.0.0.1:50051 or [::1]:0", text);
    struct addrinfo *found = NULL;
    int failed = look_up(address.host, &found);
    if (failed == 0) {
        read_found(found, &address);
        failed = getnameinfo(found->ai_addr, found->ai_addrlen, address.numeric,
                             sizeof address.numeric, NULL, 0, NI_NUMERICHOST);
        freeaddrinfo(found);
    }
    if (failed != 0)
        return psc_error_set(error, PSC_INVALID_ARGUMENT, "host %.200s: %s", address.host,
                             gai_strerror(failed));
    *address_out = address;
    return PSC_OK;
}

static void join(const char *host, bool brackets, uint32_t port, char *text_out, size_t size)
{
    (void)snprintf(text_out, size, brackets ? "[%s]:%u" : "%s:%u", host, port);
}

void psp_listen_address_text(const psp_listen_address_t *address, uint32_t port, char *text_out,
                             size_t size)
{
    join(address->numeric, address->is_ipv6, port, text_out, size);
}

void psp_listen_address_told(const psp_listen_address_t *address, uint32_t port, char *text_out,
                             size_t size)
{
    char name[PSP_ADDRESS_MAX + 1] = "";
    if (address->is_any && gethostname(name, sizeof name - 1) == 0 && name[0] != '\0')
        join(name, false, port, text_out, size);
    else
        psp_listen_address_text(address, port, text_out, size);
}

psc_status_t psp_listen_address_try(const psp_listen_address_t *address, psc_error_t *error)
{
    char text[80];
    struct addrinfo *found = NULL;
    psp_listen_address_text(address, address->port, text, sizeof text);
    if (look_up(address->numeric, &found) != 0)
        return psc_error_set(error, PSC_INVALID_ARGUMENT, "host %s is gone", address->host);
    struct sockaddr_storage where;
    const socklen_t length = found->ai_addrlen;
    memcpy(&where, found->ai_addr, length);
    freeaddrinfo(found);
    const in_port_t port = htons((in_port_t)address->port);
    if (address->is_ipv6)
        ((struct sockaddr_in6 *)&where)->sin6_port = port;
    else
        ((struct sockaddr_in *)&where)->sin_port = port;
    int fd = socket(where.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int on = 1;
    int failed = fd < 0 ? errno : 0;
    if (failed == 0) {
        (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on); /* as gRPC does */
        if (bind(fd, (const struct sockaddr *)&where, length) != 0 || listen(fd, 1) != 0)
            failed = errno;
        (void)close(fd);
    }
    if (failed == EADDRINUSE)
        return psc_error_set(error, PSC_IN_USE,
                             "%s is in use by another process: choose another port, or 0 for a "
                             "free one",
                             text);
    if (failed == EADDRNOTAVAIL)
        return psc_error_set(error, PSC_INVALID_ARGUMENT, "%s is no address of this machine", text);
    return failed != 0 ? psc_error_set_errno(error, failed, "cannot listen on %s", text) : PSC_OK;
}
