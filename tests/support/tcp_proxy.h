/* A TCP proxy on a thread of the test, whose connections can be cut. Ends the test when it cannot
 * work. */
#ifndef TESTS_SUPPORT_TCP_PROXY_H
#define TESTS_SUPPORT_TCP_PROXY_H

#include <stdint.h>

typedef struct tcp_proxy tcp_proxy_t;

/* Listens on 127.0.0.1, on a port that the system chooses, and forwards to to_port there. Gives. */
tcp_proxy_t *tcp_proxy_start(uint16_t to_port);
void tcp_proxy_stop(tcp_proxy_t *proxy);

/* "127.0.0.1:PORT" of the proxy. Borrowed. */
const char *tcp_proxy_address(const tcp_proxy_t *proxy);

/* Resets all connections, with what is on its way in them, before the next byte is forwarded. */
void tcp_proxy_cut(tcp_proxy_t *proxy);

/* From now on new connections are refused (reset), or taken again. */
void tcp_proxy_refuse(tcp_proxy_t *proxy, int refuse);

/* Connections taken so far. */
unsigned tcp_proxy_connections(const tcp_proxy_t *proxy);

#endif
