/*
 * A handshake as gRPC's own (TLS 1.2 or 1.3, ALPN h2, the certificate's chain and host looked at),
 * and then one look at what comes: a server tells only after it, by an alert, that it does not take
 * a client's certificate.
 *
 * What is wrong with the server's certificate is noted where OpenSSL looks at it, since it is not
 * kept when the handshake fails. Bytes go through buffers in memory, and from there by send without
 * a signal: a library must not end its program because a server hangs up.
 *
 * Words are written to follow "the server at HOST:PORT": they name what to do, and options by their
 * names in embps.h, which those of the tool have too. Threads: any; no state.
 */
#include "proto/grpc/grpc_handshake.h"

#include "common/clock.h"

#include <arpa/inet.h>
#include <errno.h>
#include <limits.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#define PIECE_BYTES 4096
#define NAMES_BYTES 160u
#define US_PER_MS 1000

typedef struct talk {
    int fd;
    const char *host;
    const psp_shown_t *shown;
    uint64_t until_us;
    SSL *ssl;
    BIO *in, *out; /* the ssl's */
    char *words;
    size_t size;
} talk_t;

typedef enum step {
    STEP_DONE,
    STEP_FAILED, /* OpenSSL's queue says why */
    STEP_CUT,
    STEP_LATE,
} step_t;

/* ---- the server's certificate ---- */

/* The names that a certificate is for, with commas between, cut where they do not fit. */
static void list_names(const X509 *cert, char *text, size_t size)
{
    GENERAL_NAMES *names = X509_get_ext_d2i(cert, NID_subject_alt_name, NULL, NULL);
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < sk_GENERAL_NAME_num(names) && used < size; i++) {
        const GENERAL_NAME *name = sk_GENERAL_NAME_value(names, i);
        char one[INET6_ADDRSTRLEN + NAMES_BYTES] = "";
        if (name->type == GEN_DNS)
            (void)snprintf(one, sizeof one, "%.*s", ASN1_STRING_length(name->d.dNSName),
                           (const char *)ASN1_STRING_get0_data(name->d.dNSName));
        else if (name->type == GEN_IPADD)
            (void)inet_ntop(ASN1_STRING_length(name->d.iPAddress) == 4 ? AF_INET : AF_INET6,
                            ASN1_STRING_get0_data(name->d.iPAddress), one, sizeof one);
        if (one[0] != '\0')
            used += (size_t)snprintf(text + used, size - used, "%s%s", used != 0 ? ", " : "", one);
    }
    GENERAL_NAMES_free(names);
}

/* Why the certificate that is looked at is not accepted. */
static void blame_certificate(const talk_t *talk, X509_STORE_CTX *looked)
{
    const int code = X509_STORE_CTX_get_error(looked);
    const X509 *cert = X509_STORE_CTX_get_current_cert(looked);
    const char *whose = X509_STORE_CTX_get_error_depth(looked) == 0
                            ? "its certificate"
                            : "the authority of its certificate";
    char date[PSP_TIME_TEXT_BYTES] = "", names[NAMES_BYTES];
    switch (code) {
    case X509_V_ERR_CERT_HAS_EXPIRED:
        psp_certificate_time(X509_get0_notAfter(cert), date);
        (void)snprintf(talk->words, talk->size,
                       "cannot be trusted: %s has expired on %s and has to be renewed", whose,
                       date);
        break;
    case X509_V_ERR_CERT_NOT_YET_VALID:
        psp_certificate_time(X509_get0_notBefore(cert), date);
        (void)snprintf(talk->words, talk->size,
                       "cannot be trusted: %s is not valid before %s: look at the clocks of both "
                       "machines",
                       whose, date);
        break;
    case X509_V_ERR_HOSTNAME_MISMATCH:
    case X509_V_ERR_IP_ADDRESS_MISMATCH:
        list_names(X509_STORE_CTX_get0_cert(looked), names, sizeof names);
        (void)snprintf(talk->words, talk->size,
                       "cannot be trusted: its certificate is not for %.100s but for %s: connect "
                       "by one of these names",
                       talk->host, names[0] != '\0' ? names : "no host");
        break;
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
    case X509_V_ERR_CERT_SIGNATURE_FAILURE:
        (void)snprintf(talk->words, talk->size,
                       "cannot be trusted: its certificate was signed by no authority in %.200s "
                       "(tls_ca)",
                       talk->shown->ca.path);
        break;
    default:
        (void)snprintf(talk->words, talk->size, "cannot be trusted: %s: %s", whose,
                       X509_verify_cert_error_string(code));
    }
}

static int look_at_certificate(X509_STORE_CTX *looked, void *context)
{
    const int accepted = X509_verify_cert(looked);
    if (accepted <= 0)
        blame_certificate(context, looked);
    return accepted;
}

/* ---- what the server says ---- */

/* Why OpenSSL gave up, where that tells anything. */
static psp_handshake_t blame(const talk_t *talk)
{
    const unsigned long fault = ERR_peek_error();
    const int reason = ERR_GET_LIB(fault) == ERR_LIB_SSL ? ERR_GET_REASON(fault) : 0;
    const int alert = reason > SSL_AD_REASON_OFFSET ? reason - SSL_AD_REASON_OFFSET : -1;
    const char *said = alert >= 0 ? SSL_alert_desc_string_long(alert) : "";
    if (talk->words[0] != '\0')
        return PSP_HANDSHAKE_REFUSED; /* its certificate is to blame */
    if (alert < 0)
        return PSP_HANDSHAKE_SILENT;
    if (talk->shown->cert.text == NULL &&
        (alert == SSL_AD_CERTIFICATE_REQUIRED || alert == SSL_AD_HANDSHAKE_FAILURE))
        (void)snprintf(talk->words, talk->size,
                       "wants a certificate of this client: give tls_cert and tls_key");
    else if (talk->shown->cert.text != NULL && alert == SSL_AD_UNKNOWN_CA)
        (void)snprintf(talk->words, talk->size,
                       "does not take this client's certificate: it does not know the authority "
                       "that signed %.200s (tls_cert)",
                       talk->shown->cert.path);
    else if (talk->shown->cert.text != NULL)
        (void)snprintf(talk->words, talk->size,
                       "does not take this client's certificate in %.200s (tls_cert): %s",
                       talk->shown->cert.path, said);
    else
        (void)snprintf(talk->words, talk->size, "refuses to speak TLS: %s", said);
    return PSP_HANDSHAKE_REFUSED;
}

/* ---- bytes ---- */

/* Sends what OpenSSL has written. The little that a handshake is fits into the socket's buffer. */
static void send_out(const talk_t *talk)
{
    char piece[PIECE_BYTES];
    int n;
    while ((n = BIO_read(talk->out, piece, sizeof piece)) > 0) {
        if (send(talk->fd, piece, (size_t)n, MSG_NOSIGNAL) != n)
            return; /* what comes, or does not, says more */
    }
}

static step_t take_in(const talk_t *talk)
{
    char piece[PIECE_BYTES];
    const uint64_t now_us = psc_clock_us();
    struct pollfd wait = {.fd = talk->fd, .events = POLLIN};
    if (now_us >= talk->until_us)
        return STEP_LATE;
    const uint64_t left_ms = (talk->until_us - now_us) / US_PER_MS + 1;
    const int n = poll(&wait, 1, left_ms < INT_MAX ? (int)left_ms : INT_MAX);
    if (n < 0 && errno == EINTR)
        return STEP_DONE; /* the caller comes again */
    if (n != 1)
        return STEP_LATE;
    const ssize_t got = recv(talk->fd, piece, sizeof piece, 0);
    if (got <= 0)
        return STEP_CUT;
    return BIO_write(talk->in, piece, (int)got) == (int)got ? STEP_DONE : STEP_CUT;
}

/* Goes on with the handshake, or after it waits for the first bytes. */
static step_t advance(const talk_t *talk, bool shaken)
{
    char byte;
    for (;;) {
        ERR_clear_error();
        const int result = shaken ? SSL_read(talk->ssl, &byte, 1) : SSL_do_handshake(talk->ssl);
        const int why = SSL_get_error(talk->ssl, result);
        send_out(talk);
        if (result > 0)
            return STEP_DONE;
        if (why == SSL_ERROR_ZERO_RETURN)
            return STEP_CUT;
        if (why != SSL_ERROR_WANT_READ)
            return STEP_FAILED;
        const step_t step = take_in(talk);
        if (step != STEP_DONE)
            return step;
    }
}

static psp_handshake_t talk_on(const talk_t *talk)
{
    step_t step = advance(talk, false);
    if (step == STEP_LATE || step == STEP_CUT)
        return PSP_HANDSHAKE_SILENT;
    if (step == STEP_DONE)
        step = advance(talk, true);
    if (step == STEP_FAILED)
        return blame(talk);
    return step == STEP_CUT ? PSP_HANDSHAKE_CUT : PSP_HANDSHAKE_FINE;
}

/* ---- set-up ---- */

static bool trust(SSL_CTX *set, const char *authorities)
{
    STACK_OF(X509) *all = psp_certificates_read(authorities);
    bool fine = all != NULL;
    for (int i = 0; fine && i < sk_X509_num(all); i++)
        fine = X509_STORE_add_cert(SSL_CTX_get_cert_store(set), sk_X509_value(all, i)) == 1;
    sk_X509_pop_free(all, X509_free);
    return fine;
}

static bool show(SSL_CTX *set, const psp_shown_t *shown)
{
    if (shown->cert.text == NULL)
        return true;
    STACK_OF(X509) *chain = psp_certificates_read(shown->cert.text);
    EVP_PKEY *key = psp_private_key_read(shown->key.text);
    X509 *own = chain != NULL ? sk_X509_shift(chain) : NULL;
    const bool fine =
        own != NULL && key != NULL && SSL_CTX_use_cert_and_key(set, own, key, chain, 1) == 1;
    X509_free(own);
    EVP_PKEY_free(key);
    sk_X509_pop_free(chain, X509_free);
    return fine;
}

/* Whom the server's certificate must name. */
static bool name_host(SSL *ssl, const char *host)
{
    X509_VERIFY_PARAM *wanted = SSL_get0_param(ssl);
    return X509_VERIFY_PARAM_set1_ip_asc(wanted, host) == 1 ||
           (X509_VERIFY_PARAM_set1_host(wanted, host, 0) == 1 &&
            SSL_set_tlsext_host_name(ssl, host) == 1);
}

static SSL_CTX *prepare(talk_t *talk)
{
    static const unsigned char h2[] = {2, 'h', '2'};
    const bool verify = talk->shown->ca.text != NULL;
    SSL_CTX *set = SSL_CTX_new(TLS_client_method());
    bool fine = set != NULL && SSL_CTX_set_min_proto_version(set, TLS1_2_VERSION) == 1 &&
                SSL_CTX_set_alpn_protos(set, h2, sizeof h2) == 0;
    if (fine && verify) {
        SSL_CTX_set_verify(set, SSL_VERIFY_PEER, NULL);
        SSL_CTX_set_cert_verify_callback(set, look_at_certificate, talk);
        fine = trust(set, talk->shown->ca.text) && show(set, talk->shown);
    }
    talk->ssl = fine ? SSL_new(set) : NULL;
    talk->in = BIO_new(BIO_s_mem());
    talk->out = BIO_new(BIO_s_mem());
    if (talk->ssl != NULL && talk->in != NULL && talk->out != NULL &&
        (!verify || name_host(talk->ssl, talk->host))) {
        (void)BIO_set_mem_eof_return(talk->in, -1);  /* empty: more may come */
        SSL_set_bio(talk->ssl, talk->in, talk->out); /* takes both */
        SSL_set_connect_state(talk->ssl);
        return set;
    }
    BIO_free(talk->in);
    BIO_free(talk->out);
    SSL_free(talk->ssl);
    SSL_CTX_free(set);
    return NULL;
}

psp_handshake_t psp_grpc_shake_hands(int fd, const char *host, const psp_shown_t *shown,
                                     uint64_t until_us, char *words_out, size_t size)
{
    talk_t talk = {.fd = fd,
                   .host = host,
                   .shown = shown,
                   .until_us = until_us,
                   .words = words_out,
                   .size = size};
    words_out[0] = '\0';
    SSL_CTX *set = prepare(&talk);
    if (set == NULL)
        return PSP_HANDSHAKE_SILENT;
    const psp_handshake_t end = talk_on(&talk);
    SSL_free(talk.ssl);
    SSL_CTX_free(set);
    ERR_clear_error();
    return end;
}
