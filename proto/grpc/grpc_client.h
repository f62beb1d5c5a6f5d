/*
 * The client's side of the door as a transport: its peers are servers, known by address.
 *
 *     const psp_grpc_client_options_t options = {.addresses = addresses, .n_servers = 3, ...};
 *     st = psp_grpc_client_create(&options, &transport, error);
 *
 * A message that is sent is a call until it is answered: when the call fails because the connection
 * is gone, or because the server asks to come back later, it is made again (proto/outbox.h), over a
 * new connection if need be, for as long as the transport lives. So sends never fail because of the
 * network; whoever waits for an answer decides how long. Of the promise of psp_transport_t, that
 * messages of one peer arrive in the order in which they were sent, the server keeps its part: it
 * serves them in the order of their sequences. Replies come in any order. A message, or its
 * answer, has at most 4 MiB.
 *
 * Fork: a transport is of the process that made it. In a child sends and polls fail with
 * UNSUPPORTED, and destroy leaves everything to the end of the process.
 */
#ifndef PROTO_GRPC_GRPC_CLIENT_H
#define PROTO_GRPC_GRPC_CLIENT_H

#include "proto/transport.h"

/*
 * What the client trusts and shows: names of files. They may be replaced at any time: the token is
 * read anew when a call is not let in, and before signs of life; the others when a connection
 * cannot be made. What is wrong then changes nothing.
 */
typedef struct psp_grpc_security {
    /* PEM: who must have signed the servers' certificates, which must also name the hosts of their
     * addresses. NULL: plain text */
    const char *tls_ca;
    const char *tls_cert, *tls_key; /* PEM: the client's own; NULL: none */
    const char *token_file;         /* a token, for metadata "authorization: Bearer"; NULL: none */
    bool plain_text;                /* the token may go to other machines without TLS */
} psp_grpc_security_t;

typedef struct psp_grpc_client_options {
    const char *const *addresses; /* [n_servers] "HOST:PORT", "[IPV6]:PORT" or "unix:PATH" */
    uint32_t n_servers;
    psp_pool_t *pool;             /* borrowed; gRPC may hold buffers for a moment after destroy */
    uint64_t seed;                /* of the jitter between attempts */
    psp_grpc_security_t security; /* borrowed until create returns */
} psp_grpc_client_options_t;

/* Errors: NO_MEMORY, IO (no thread), INVALID_ARGUMENT (an address that cannot be one, or where the
 * token must not go; files that are something else), NOT_FOUND (a file), UNSUPPORTED (a child after
 * a fork, as psp_grpc_queue_create says). Connects to nobody as yet. Gives. */
PSC_MUST_CHECK psc_status_t psp_grpc_client_create(const psp_grpc_client_options_t *options,
                                                   psp_transport_t **transport_out,
                                                   psc_error_t *error);

/* Whether text has the form of an address. Errors: INVALID_ARGUMENT, saying what is wrong. */
PSC_MUST_CHECK psc_status_t psp_grpc_check_address(const char *text, psc_error_t *error);

/* Why calls to a server fail at the moment: "" when the last one did not. Borrowed until the next
 * call with this transport. */
const char *psp_grpc_client_trouble(const psp_transport_t *transport, uint32_t peer);

/* What looking at a server's port has told. */
typedef enum psp_grpc_look {
    PSP_GRPC_LOOK_NOTHING, /* no more than its trouble */
    PSP_GRPC_LOOK_GUESS,   /* what may be wrong */
    PSP_GRPC_LOOK_FAULT,   /* what is wrong, and will be until somebody mends it */
} psp_grpc_look_t;

/* For a server with which there is trouble: looks at its port, which may take some seconds.
 * words_out: "the server at ADDRESS ..." and what to do, "" with NOTHING. */
psp_grpc_look_t psp_grpc_client_look(const psp_transport_t *transport, uint32_t peer,
                                     char *words_out, size_t size);

/*
 * From now on sends a copy of `sign` to its peer every period_us, from a thread of the transport,
 * so that a session does not end while the program does something else. What is answered does not
 * matter. Once for each peer. Takes sign, also on error. Errors: NO_MEMORY, IO (no thread).
 */
PSC_MUST_CHECK psc_status_t psp_grpc_client_keep_session(psp_transport_t *transport,
                                                         psp_buffer_t *sign, uint64_t period_us,
                                                         psc_error_t *error);

#endif
