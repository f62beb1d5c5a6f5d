/*
 * What a client shows and trusts: certificates, key and token, as its files have them, which may be
 * replaced at any time. Inside proto/grpc/ only.
 *
 *     psp_grpc_token_t token = psp_grpc_secrets_token(secrets);     for one call
 *     ... the call is UNAUTHENTICATED ...
 *     if (psp_grpc_secrets_has_newer_token(secrets, &token))        worth another call
 *     psp_grpc_token_put(&token);
 */
#ifndef PROTO_GRPC_GRPC_SECRETS_H
#define PROTO_GRPC_GRPC_SECRETS_H

#include "proto/grpc/grpc_client.h"
#include "proto/grpc/grpc_handshake.h"

#include <grpc/grpc.h>
#include <grpc/grpc_security.h>

typedef struct psp_grpc_secrets psp_grpc_secrets_t;

/* Reads the files and looks at what they say. gRPC's library must be open. Errors: NOT_FOUND, IO,
 * CORRUPT (too long): a file cannot be read; INVALID_ARGUMENT (a file that is something else, a key
 * that is not the certificate's, a certificate that is not valid now, a token that others can read,
 * options that do not go together); NO_MEMORY. Gives. */
PSC_MUST_CHECK psc_status_t psp_grpc_secrets_create(const psp_grpc_security_t *files,
                                                    psp_grpc_secrets_t **secrets_out,
                                                    psc_error_t *error);
/* NULL is a no-op. */
void psp_grpc_secrets_destroy(psp_grpc_secrets_t *secrets);

/* May the client speak to this address? Errors: INVALID_ARGUMENT: a token would go to another
 * machine in plain text. */
PSC_MUST_CHECK psc_status_t psp_grpc_secrets_check(const psp_grpc_secrets_t *secrets,
                                                   const char *address, psc_error_t *error);

/* What it trusts and shows. Borrowed until the certificates are renewed; the thread that does. */
psp_shown_t psp_grpc_secrets_shown(const psp_grpc_secrets_t *secrets);

/* Reads certificates and key anew where a file has changed. True: there are others now, for new
 * connections. What is wrong changes nothing. One thread at a time. */
bool psp_grpc_secrets_renew(psp_grpc_secrets_t *secrets);

/* For grpc_channel_create. Gives (grpc_channel_credentials_release). */
grpc_channel_credentials *psp_grpc_secrets_credentials(const psp_grpc_secrets_t *secrets);

/* What a call carries. */
typedef struct psp_grpc_token {
    grpc_metadata metadata; /* gRPC's value has an owner of its own */
    uint64_t number;        /* of the file's versions; 0: there is no token */
} psp_grpc_token_t;

/* The token as it was read last. Any thread. Gives. */
psp_grpc_token_t psp_grpc_secrets_token(psp_grpc_secrets_t *secrets);
void psp_grpc_token_put(psp_grpc_token_t *token);

/* Reads the token anew where its file has changed; true: it is not `token` any more. What is wrong
 * changes nothing. token: NULL is none of them. Any thread. */
bool psp_grpc_secrets_has_newer_token(psp_grpc_secrets_t *secrets, const psp_grpc_token_t *token);

#endif
