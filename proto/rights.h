/*
 * Who may do what with which tables: tokens and their rights, as a text file says.
 *
 *     # token or its digest       rights        tables
 *     sha256:9f86d081...           read          *
 *     sha256:60303ae2...           read,write    words  ngrams-*
 *     G7pUo2v0cWYxS1zN             admin         *
 *
 *     psp_rights_parse(text, size, "tokens", &rights, error);
 *     const psp_grant_t *grant = psp_rights_find(rights, token, length);      NULL: unknown
 *     psp_grant_allows(grant, "words", PSP_RIGHT_READ)
 *     psp_rights_put(rights);                                  its grants end with it
 *
 * Empty lines and what follows a # at the beginning of a word are ignored. A token is 16 to 256
 * characters of RFC 6750's: letters, digits, - . _ ~ + / and = at its end. In a pattern * is any
 * number of characters. A token may have several lines; it has the rights of all of them.
 */
#ifndef PROTO_RIGHTS_H
#define PROTO_RIGHTS_H

#include "common/status.h"

#include <stdbool.h>
#include <stddef.h>

#define PSP_TOKEN_MIN 16u
#define PSP_TOKEN_MAX 256u

/* admin has all of them. */
enum {
    PSP_RIGHT_READ = 1,  /* pulls */
    PSP_RIGHT_WRITE = 2, /* pushes */
    PSP_RIGHT_ADMIN = 4, /* creating it */
    PSP_RIGHT_ANY = 7,   /* one of them */
};

/* What a file says; never changes. Counts its owners. */
typedef struct psp_rights psp_rights_t;
/* The rights of one token. */
typedef struct psp_grant psp_grant_t;

/*
 * text: [size], borrowed; name: of the file, for errors. Errors: INVALID_ARGUMENT, naming file and
 * line and nothing that the file says (it might be a token in the wrong place); NO_MEMORY. Gives.
 */
PSC_MUST_CHECK psc_status_t psp_rights_parse(const char *text, size_t size, const char *name,
                                             psp_rights_t **rights_out, psc_error_t *error);
/* One more owner. Any thread. */
void psp_rights_share(psp_rights_t *rights);
/* Any thread. Takes; NULL is a no-op. */
void psp_rights_put(psp_rights_t *rights);

/* The rights of a token; NULL: it is unknown. Takes as long for any token of this length: all of
 * them are compared, whole. Borrowed from rights. */
const psp_grant_t *psp_rights_find(const psp_rights_t *rights, const char *token, size_t length);

/* Has it this right (or one of these) for a table of this name? grant NULL: nobody asked for
 * tokens, all is allowed. Any thread. */
bool psp_grant_allows(const psp_grant_t *grant, const char *table, unsigned right);
/* For every table there can be? */
bool psp_grant_allows_all(const psp_grant_t *grant, unsigned right);

/* By which tokens are told apart, also after the file was read anew: never 0. Of NULL: 0. Says
 * nothing of the token. */
uint64_t psp_grant_id(const psp_grant_t *grant);

/* By which grants are told apart that allow different things: the same for tokens that have the
 * same rights for the same tables, in any order of their lines. Of NULL: 0. */
uint64_t psp_grant_rights_id(const psp_grant_t *grant);

/* "read", "write" or "admin". Static. */
const char *psp_right_name(unsigned right);

/* Has it the form of a token? */
bool psp_token_is_one(const char *token, size_t length);

#endif
