/*
 * A port that stays a test's own between two servers: the socket that holds it is bound and does
 * not listen, so that whoever connects is refused, nobody else is given the port, and gRPC's core,
 * which asks for SO_REUSEADDR, may listen there. Ends the test when there is none.
 *
 *     uint16_t port;
 *     const int holder = held_port(&port);
 *     ... servers on that port, one after another ...
 *     close(holder);
 */
#ifndef TESTS_SUPPORT_HELD_PORT_H
#define TESTS_SUPPORT_HELD_PORT_H

#include <stdint.h>

/* Of 127.0.0.1. Returns the descriptor that holds it, which the caller closes. */
int held_port(uint16_t *port_out);

#endif
