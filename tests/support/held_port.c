/*
 * Linux gives a port that is bound, even with SO_REUSEADDR, to nobody who asks for any port, and to
 * no connection as its source; it may be bound again by who names it and sets SO_REUSEADDR too, as
 * long as nobody listens.
 */
#include "tests/support/held_port.h"

#include "tests/support/cmocka.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

int held_port(uint16_t *port_out)
{
    const int one = 1;
    struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof own;
    const int holder = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_not_equal(holder, -1);
    assert_int_equal(setsockopt(holder, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one), 0);
    assert_int_equal(bind(holder, (const struct sockaddr *)(const void *)&own, length), 0);
    assert_int_equal(getsockname(holder, (struct sockaddr *)(void *)&own, &length), 0);
    *port_out = ntohs(own.sin_port);
    return holder;
}
