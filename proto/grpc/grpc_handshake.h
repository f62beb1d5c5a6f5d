/*
 * A TLS handshake of one's own over a connection, to learn in words why one comes to nothing: gRPC
 * tells little of that. Inside proto/grpc/ only.
 */
#ifndef PROTO_GRPC_GRPC_HANDSHAKE_H
#define PROTO_GRPC_GRPC_HANDSHAKE_H

#include "proto/grpc/grpc_certificates.h"

#include <stdint.h>

/* What a client trusts and shows. Borrowed. */
typedef struct psp_shown {
    psp_pem_t ca;        /* text NULL: it speaks plain text */
    psp_pem_t cert, key; /* text NULL: it shows none */
} psp_shown_t;

typedef enum psp_handshake {
    PSP_HANDSHAKE_SILENT,  /* no answer in TLS */
    PSP_HANDSHAKE_FINE,    /* both sides are content */
    PSP_HANDSHAKE_CUT,     /* the other side went away without a word */
    PSP_HANDSHAKE_REFUSED, /* one side refuses the other: words_out */
} psp_handshake_t;

/*
 * Shakes hands over fd, which is connected and does not block, until until_us (psc_clock_us) at the
 * latest. host: whom the certificate must name. Without an authority no certificate is looked at.
 * words_out, with REFUSED: what goes on "the server at HOST:PORT ", else "". Clears OpenSSL's queue
 * of errors. Any thread.
 */
psp_handshake_t psp_grpc_shake_hands(int fd, const char *host, const psp_shown_t *shown,
                                     uint64_t until_us, char *words_out, size_t size);

#endif
