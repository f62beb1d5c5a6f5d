/*
 * The server's end of the door: calls of guests as messages of a transport.
 *
 *     psp_door_options_t options = PSP_DOOR_OPTIONS_DEFAULT;
 *     options.listen = "127.0.0.1:0";
 *     psp_door_open(&options, pool, &transport, error);
 *     psp_door_address(transport)                  "127.0.0.1:40123"
 *     ... poll gives messages of PSP_PEER_GUEST; send answers the call that is in buffer->call ...
 *     psp_transport_stop, psp_transport_flush, psp_transport_destroy
 *
 * Each message is one unary call, and answered by exactly one send; those that never are end as
 * UNAVAILABLE when the transport is destroyed.
 */
#ifndef PROTO_GRPC_GRPC_SERVER_H
#define PROTO_GRPC_GRPC_SERVER_H

#include "proto/transport.h"

/* Files in PEM; they may be replaced while the door is open. */
typedef struct psp_door_tls {
    const char *cert; /* the server's certificate and those that it rests on; NULL: plain text */
    const char *key;  /* its private key */
    const char
        *client_ca; /* who signs the certificates that clients must have; NULL: they need none */
} psp_door_tls_t;

typedef struct psp_door_options {
    const char *listen;       /* HOST:PORT; port 0: a free one. Borrowed until open returns */
    size_t max_message_bytes; /* of a request; longer ones are refused as RESOURCE_EXHAUSTED */
    size_t quota_bytes;       /* of requests and answers here; beyond it no request is read */
    uint32_t max_calls;       /* under way; more are refused as RESOURCE_EXHAUSTED */
    uint32_t max_streams;     /* of them, streams; the same */
    uint64_t patience_us;     /* for a request to come in whole, for an answer to be taken */
    psp_door_tls_t tls;       /* borrowed until open returns */
    const char *tokens;  /* a file (proto/rights.h); NULL: none are asked for. Borrowed until open
                         * returns; may be replaced while the door is open */
    const char *not_yet; /* why calls are refused (UNAVAILABLE) and health says NOT_SERVING until
                          * psp_door_serve; NULL: they are taken at once. Static */
    bool checksums;      /* clients that can are to seal their messages (seal.h) */
    psp_transport_t *wake_also; /* woken too when a message arrives; borrowed; NULL: none */
} psp_door_options_t;

#define PSP_DOOR_OPTIONS_DEFAULT                                                                   \
    {                                                                                              \
        .max_message_bytes = (size_t)1 << 20, .quota_bytes = (size_t)24 << 20, .max_calls = 1024,  \
        .max_streams = 128, .patience_us = 30000000                                                \
    }

/*
 * Opens the port; calls are taken from now on, or refused as options->not_yet says. Not shared: a
 * port in use is an error. wake and destroy aside, one thread uses the transport. pool must outlive
 * it. Errors: INVALID_ARGUMENT (no
 * such address; certificate and key do not fit; a file of tokens that is wrong), IN_USE, NOT_FOUND,
 * UNSUPPORTED (a child after a fork, by a process that had used gRPC), IO, NO_MEMORY. Gives.
 */
PSC_MUST_CHECK psc_status_t psp_door_open(const psp_door_options_t *options, psp_pool_t *pool,
                                          psp_transport_t **transport_out, psc_error_t *error);

/* Takes calls from now on. Any thread. */
void psp_door_serve(psp_transport_t *transport);

/* Where it listens, as others are told. Borrowed from the transport. */
const char *psp_door_address(const psp_transport_t *transport);

#endif
