/*
 * What files of certificates and keys say, looked at before they are used: gRPC takes what is no
 * certificate for none at all, and says of a key that is another's only that nothing works. Inside
 * proto/grpc/ only.
 *
 *     const psp_pem_t cert = {.path = "client.pem", .text = text}, key = {...};
 *     psp_certificate_check_pair(&cert, &key, error);          "... do not belong together"
 *     psp_certificate_age(&cert, now, 86400, words, sizeof words)         "... has expired on ..."
 */
#ifndef PROTO_GRPC_GRPC_CERTIFICATES_H
#define PROTO_GRPC_GRPC_CERTIFICATES_H

#include "common/status.h"

#include <openssl/x509.h>
#include <stddef.h>
#include <time.h>

/* A file in PEM. Both borrowed. */
typedef struct psp_pem {
    const char *path; /* for words */
    const char *text; /* what it holds; NULL: there is none */
} psp_pem_t;

/* All certificates of a file, at least one. Errors: INVALID_ARGUMENT (there is none, or one that
 * cannot be read), with its name. */
PSC_MUST_CHECK psc_status_t psp_certificate_check(const psp_pem_t *pem, psc_error_t *error);

/* The same, and that its first certificate is that of the key. Errors: INVALID_ARGUMENT (no key,
 * one with a pass phrase, another one's), with the names. */
PSC_MUST_CHECK psc_status_t psp_certificate_check_pair(const psp_pem_t *cert, const psp_pem_t *key,
                                                       psc_error_t *error);

/* The certificates of a text in their order, and its private key; NULL: there is none, or no
 * memory. Gives (sk_X509_pop_free, EVP_PKEY_free). */
STACK_OF(X509) * psp_certificates_read(const char *text);
EVP_PKEY *psp_private_key_read(const char *text);

typedef enum psp_age {
    PSP_AGE_FINE,
    PSP_AGE_LAST_DAYS, /* it expires within `ahead_s` */
    PSP_AGE_NOT_YET,
    PSP_AGE_EXPIRED,
} psp_age_t;

/* How the first certificate of a file stands at a time; words_out: "FILE has expired on 2026-11-30
 * 12:00:00 UTC" and the like, "" where it is fine or cannot be read. */
psp_age_t psp_certificate_age(const psp_pem_t *pem, time_t now, time_t ahead_s, char *words_out,
                              size_t size);

#define PSP_TIME_TEXT_BYTES 40u
/* "2026-11-30 12:00:00 UTC". text_out: [PSP_TIME_TEXT_BYTES] */
void psp_certificate_time(const ASN1_TIME *time, char *text_out);

#endif
