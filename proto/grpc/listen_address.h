/*
 * Where a server listens: "HOST:PORT" in words, as an address of this machine, and as others are
 * told.
 *
 *     127.0.0.1:50051   localhost:0   [::1]:50051   0.0.0.0:50051   [::]:0
 */
#ifndef PROTO_GRPC_LISTEN_ADDRESS_H
#define PROTO_GRPC_LISTEN_ADDRESS_H

#include "common/status.h"

#include <stdbool.h>
#include <stddef.h>

#define PSP_ADDRESS_MAX 255u

typedef struct psp_listen_address {
    char host[PSP_ADDRESS_MAX + 1]; /* as it was written, without brackets */
    char numeric[64];               /* the first address that it stands for */
    uint32_t port;                  /* 0: a free one */
    bool is_ipv6;
    bool is_loopback;
    bool is_any; /* all addresses of this machine */
} psp_listen_address_t;

/* Splits HOST:PORT at the last colon; a host with colons has to stand in brackets. host: [size],
 * without brackets; *port_out points into text. False: it is none, or too long. */
bool psp_address_split(const char *text, char *host, size_t size, const char **port_out);

/* The same with the port as a number, 0 to 65,535. */
bool psp_address_parse(const char *text, char *host, size_t size, uint32_t *port_out);

/* Errors: INVALID_ARGUMENT (not HOST:PORT, or no such host). May ask a name server. */
PSC_MUST_CHECK psc_status_t psp_listen_address_parse(const char *text,
                                                     psp_listen_address_t *address_out,
                                                     psc_error_t *error);

/* The address with a port, numeric, as gRPC wants it. */
void psp_listen_address_text(const psp_listen_address_t *address, uint32_t port, char *text_out,
                             size_t size);

/* What others are told: the address with the port; of all addresses, this machine's name. */
void psp_listen_address_told(const psp_listen_address_t *address, uint32_t port, char *text_out,
                             size_t size);

/* Why one cannot listen there, in words and as a code: IN_USE, INVALID_ARGUMENT (no address of this
 * machine), IO. PSC_OK: one can. */
PSC_MUST_CHECK psc_status_t psp_listen_address_try(const psp_listen_address_t *address,
                                                   psc_error_t *error);

#endif
