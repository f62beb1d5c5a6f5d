/*
 * Certificates of the door, from files that may be replaced while it is open. Inside proto/grpc/
 * only.
 */
#ifndef PROTO_GRPC_GRPC_TLS_H
#define PROTO_GRPC_GRPC_TLS_H

#include "proto/grpc/grpc_server.h"

#include <grpc/grpc_security.h>

typedef struct psp_grpc_tls psp_grpc_tls_t;

/* Copies the names in files. Errors: NOT_FOUND, IO, CORRUPT (too long): a file cannot be read;
 * INVALID_ARGUMENT: it is none, or the key is not the certificate's; NO_MEMORY. Gives. */
PSC_MUST_CHECK psc_status_t psp_grpc_tls_create(const psp_door_tls_t *files,
                                                psp_grpc_tls_t **tls_out, psc_error_t *error);
/* After the server that has its credentials. NULL is a no-op. */
void psp_grpc_tls_destroy(psp_grpc_tls_t *tls);

/* For grpc_server_add_http2_port. tls: borrowed for as long as the server lives. Gives
 * (grpc_server_credentials_release). */
grpc_server_credentials *psp_grpc_tls_credentials(psp_grpc_tls_t *tls);

#endif
