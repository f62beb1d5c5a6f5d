/*
 * Certificates and keys in PEM, by OpenSSL, which gRPC uses too.
 *
 * Texts come from files of a user, and errors name those files and what to do. OpenSSL would ask on
 * the terminal for the pass phrase of a key: here the answer is that there is none, since a server
 * that starts again at night has nobody to ask. Nothing of a key becomes part of an error, and what
 * was parsed is wiped by OpenSSL when it is freed.
 *
 * OpenSSL's queue of errors is the thread's, maybe shared with the program: it is left as it was
 * found. Threads: any; no state.
 */
#include "proto/grpc/grpc_certificates.h"

#include <limits.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static int no_pass_phrase(char *place, int size, int writing, void *context)
{
    (void)place;
    (void)size;
    (void)writing;
    (void)context;
    return -1;
}

static BIO *open_text(const char *text)
{
    const size_t size = strlen(text);
    return size <= INT_MAX ? BIO_new_mem_buf(text, (int)size) : NULL;
}

STACK_OF(X509) * psp_certificates_read(const char *text)
{
    (void)ERR_set_mark();
    BIO *bytes = open_text(text);
    STACK_OF(X509) *all = sk_X509_new_null();
    X509 *one = NULL;
    while (bytes != NULL && all != NULL &&
           (one = PEM_read_bio_X509(bytes, NULL, no_pass_phrase, NULL)) != NULL) {
        if (sk_X509_push(all, one) <= 0) {
            X509_free(one);
            break;
        }
    }
    /* It ends with "no start line", or with a certificate that is none. */
    const unsigned long last = ERR_peek_last_error();
    const bool whole =
        ERR_GET_LIB(last) == ERR_LIB_PEM && ERR_GET_REASON(last) == PEM_R_NO_START_LINE;
    BIO_free(bytes);
    (void)ERR_pop_to_mark();
    if (all != NULL && whole && sk_X509_num(all) > 0)
        return all;
    sk_X509_pop_free(all, X509_free);
    return NULL;
}

EVP_PKEY *psp_private_key_read(const char *text)
{
    (void)ERR_set_mark();
    BIO *bytes = open_text(text);
    EVP_PKEY *key =
        bytes != NULL ? PEM_read_bio_PrivateKey(bytes, NULL, no_pass_phrase, NULL) : NULL;
    BIO_free(bytes);
    (void)ERR_pop_to_mark();
    return key;
}

static psc_status_t read_certificates(const psp_pem_t *pem, STACK_OF(X509) * *all_out,
                                      psc_error_t *error)
{
    *all_out = psp_certificates_read(pem->text);
    return *all_out != NULL
               ? PSC_OK
               : psc_error_set(error, PSC_INVALID_ARGUMENT,
                               "%s has no certificate in PEM, or one that is damaged", pem->path);
}

psc_status_t psp_certificate_check(const psp_pem_t *pem, psc_error_t *error)
{
    STACK_OF(X509) * all;
    psc_status_t st = read_certificates(pem, &all, error);
    if (st == PSC_OK)
        sk_X509_pop_free(all, X509_free);
    return st;
}

static psc_status_t read_key(const psp_pem_t *pem, EVP_PKEY **key_out, psc_error_t *error)
{
    *key_out = psp_private_key_read(pem->text);
    if (*key_out != NULL)
        return PSC_OK;
    if (strstr(pem->text, "ENCRYPTED") != NULL)
        return psc_error_set(error, PSC_INVALID_ARGUMENT,
                             "the private key in %s has a pass phrase: take it off (openssl pkey)",
                             pem->path);
    return psc_error_set(error, PSC_INVALID_ARGUMENT,
                         "%s has no private key in PEM, or one that is damaged", pem->path);
}

psc_status_t psp_certificate_check_pair(const psp_pem_t *cert, const psp_pem_t *key,
                                        psc_error_t *error)
{
    STACK_OF(X509) * all;
    EVP_PKEY *private = NULL;
    psc_status_t st = read_certificates(cert, &all, error);
    if (st != PSC_OK)
        return st;
    st = read_key(key, &private, error);
    (void)ERR_set_mark();
    if (st == PSC_OK && X509_check_private_key(sk_X509_value(all, 0), private) != 1)
        st = psc_error_set(error, PSC_INVALID_ARGUMENT,
                           "certificate and key do not belong together: the key in %s is not that "
                           "of the first certificate in %s",
                           key->path, cert->path);
    (void)ERR_pop_to_mark();
    EVP_PKEY_free(private);
    sk_X509_pop_free(all, X509_free);
    return st;
}

void psp_certificate_time(const ASN1_TIME *time, char *text_out)
{
    struct tm tm;
    if (ASN1_TIME_to_tm(time, &tm) != 1 ||
        strftime(text_out, PSP_TIME_TEXT_BYTES, "%Y-%m-%d %H:%M:%S UTC", &tm) == 0)
        (void)snprintf(text_out, PSP_TIME_TEXT_BYTES, "a date that cannot be read");
}

psp_age_t psp_certificate_age(const psp_pem_t *pem, time_t now, time_t ahead_s, char *words_out,
                              size_t size)
{
    psp_age_t age = PSP_AGE_FINE;
    time_t later = now + ahead_s;
    char date[PSP_TIME_TEXT_BYTES];
    STACK_OF(X509) *all = psp_certificates_read(pem->text);
    const X509 *first = all != NULL ? sk_X509_value(all, 0) : NULL;
    words_out[0] = '\0';
    if (first == NULL)
        return age;
    const ASN1_TIME *begin = X509_get0_notBefore(first), *end = X509_get0_notAfter(first);
    if (X509_cmp_time(begin, &now) > 0)
        age = PSP_AGE_NOT_YET;
    else if (X509_cmp_time(end, &now) < 0)
        age = PSP_AGE_EXPIRED;
    else if (X509_cmp_time(end, &later) < 0)
        age = PSP_AGE_LAST_DAYS;
    psp_certificate_time(age == PSP_AGE_NOT_YET ? begin : end, date);
    if (age != PSP_AGE_FINE)
        (void)snprintf(words_out, size, "the certificate in %s %s %s", pem->path,
                       age == PSP_AGE_NOT_YET   ? "is not valid before"
                       : age == PSP_AGE_EXPIRED ? "has expired on"
                                                : "expires on",
                       date);
    sk_X509_pop_free(all, X509_free);
    return age;
}
