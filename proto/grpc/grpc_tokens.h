/*
 * Tokens of the door's clients, from a file that may be replaced while it is open, and the refusals
 * that come of them. Inside proto/grpc/ only.
 */
#ifndef PROTO_GRPC_GRPC_TOKENS_H
#define PROTO_GRPC_GRPC_TOKENS_H

#include "proto/buffer.h"
#include "proto/rights.h"

#include <grpc/grpc.h>

typedef struct psp_grpc_tokens psp_grpc_tokens_t;

/* Copies path. Errors: NOT_FOUND, IO, CORRUPT (too long): it cannot be read; INVALID_ARGUMENT
 * (others can read it, or a line is wrong, which is named); NO_MEMORY. Gives. */
PSC_MUST_CHECK psc_status_t psp_grpc_tokens_create(const char *path, psp_grpc_tokens_t **tokens_out,
                                                   psc_error_t *error);
/* NULL is a no-op. */
void psp_grpc_tokens_destroy(psp_grpc_tokens_t *tokens);

/*
 * The rights of a call with this metadata: of the file as it is now, or as it was last when it was
 * fine. *rights_out: gives (psp_rights_put); *grant_out lives as long. Errors, in words for the
 * client: DENIED (no token, or none that is known). One thread at a time.
 */
PSC_MUST_CHECK psc_status_t psp_grpc_tokens_check(psp_grpc_tokens_t *tokens,
                                                  const grpc_metadata_array *metadata,
                                                  psp_rights_t **rights_out,
                                                  const psp_grant_t **grant_out,
                                                  psc_error_t *error);

/* Does an answer say DENIED? Then why, in text_out, cut where it does not fit. */
bool psp_grpc_denies(const psp_buffer_t *answer, char *text_out, size_t size);

#endif
