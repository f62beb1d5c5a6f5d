/*
 * What a client shows and trusts: certificates, key and token, as read from its files. Inside
 * proto/grpc/ only.
 */
#ifndef PROTO_GRPC_GRPC_SECRETS_H
#define PROTO_GRPC_GRPC_SECRETS_H

#include "proto/grpc/grpc_client.h"

#include <grpc/grpc.h>
#include <grpc/grpc_security.h>

typedef struct psp_grpc_secrets psp_grpc_secrets_t;

/* Reads the files. gRPC's library must be open. Errors: NOT_FOUND, IO, CORRUPT (too long): a file
 * cannot be read; INVALID_ARGUMENT (a file that is something else, a token that others can read,
 * options that do not go together); NO_MEMORY. Gives. */
PSC_MUST_CHECK psc_status_t psp_grpc_secrets_create(const psp_grpc_security_t *files,
                                                    psp_grpc_secrets_t **secrets_out,
                                                    psc_error_t *error);
/* After the calls that carry its token. NULL is a no-op. */
void psp_grpc_secrets_destroy(psp_grpc_secrets_t *secrets);

/* May the client speak to this address? Errors: INVALID_ARGUMENT: a token would go to another
 * machine in plain text. */
PSC_MUST_CHECK psc_status_t psp_grpc_secrets_check(const psp_grpc_secrets_t *secrets,
                                                   const char *address, psc_error_t *error);

/* Whether it speaks TLS. */
bool psp_grpc_secrets_has_tls(const psp_grpc_secrets_t *secrets);
/* Whether it shows a certificate. */
bool psp_grpc_secrets_has_certificate(const psp_grpc_secrets_t *secrets);

/* For grpc_channel_create. Gives (grpc_channel_credentials_release). */
grpc_channel_credentials *psp_grpc_secrets_credentials(const psp_grpc_secrets_t *secrets);

/* What each call carries; NULL: nothing. Borrowed. */
grpc_metadata *psp_grpc_secrets_token(psp_grpc_secrets_t *secrets);

#endif
