/*
 * Why a client and a port do not come together, to say so when a connection fails: gRPC only says
 * that it failed. Inside proto/grpc/ only.
 */
#ifndef PROTO_GRPC_GRPC_PROBE_H
#define PROTO_GRPC_GRPC_PROBE_H

#include "proto/grpc/grpc_handshake.h"

typedef enum psp_probe {
    PSP_PROBE_NOTHING, /* nobody is there, or nothing is wrong that can be seen */
    PSP_PROBE_GUESS,   /* words_out may be why */
    PSP_PROBE_FAULT,   /* words_out is why, and waiting does not mend it */
} psp_probe_t;

/* Connects, listens, shakes hands; takes some seconds at most. address: as in
 * psp_grpc_check_address. words_out: what goes on "the server at ADDRESS ", or "". May ask a name
 * server. Clears OpenSSL's queue of errors. Any thread. */
psp_probe_t psp_grpc_probe(const char *address, const psp_shown_t *shown, char *words_out,
                           size_t size);

#endif
