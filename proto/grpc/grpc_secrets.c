/*
 * Certificates, key and token of a client.
 *
 * Files are read once, when the client is made, and looked at as far as a word can then be said of
 * them: gRPC takes what is no certificate for no certificate at all, and says so much later. The
 * server's certificate must be signed by one of the authorities in tls_ca, alone, and must name the
 * host of the address; gRPC checks both, and both cannot be switched off.
 *
 * The token is metadata of every call, and no call credential of gRPC's, which is for TLS alone: on
 * this machine plain text is as good. Anywhere else a token in plain text is refused before
 * anything is sent, unless that was asked for.
 *
 * What was read is overwritten before it is freed; gRPC's own copies are its own affair. Nothing of
 * it is logged or becomes part of an error. Threads: does not change once it is made.
 */
#include "proto/grpc/grpc_secrets.h"

#include "common/alloc.h"
#include "common/file.h"
#include "proto/grpc/listen_address.h"
#include "proto/rights.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#define FILE_MAX ((size_t)1 << 20)
#define SCHEME "Bearer "
#define CERTIFICATE "-----BEGIN CERTIFICATE-----"
#define KEY_END "PRIVATE KEY-----"

struct psp_grpc_secrets {
    char *ca, *cert, *key; /* PEM; NULL: none */
    bool has_token;
    bool plain_text;
    grpc_metadata token; /* with has_token */
};

/* ---- files ---- */

static psc_status_t read_pem(const char *path, const char *mark, const char *what, char **text_out,
                             psc_error_t *error)
{
    size_t size;
    if (path == NULL)
        return PSC_OK;
    psc_status_t st = psc_file_read(path, FILE_MAX, text_out, &size, error);
    if (st == PSC_OK && strstr(*text_out, mark) == NULL)
        st = psc_error_set(error, PSC_INVALID_ARGUMENT, "%s has no %s in PEM", path, what);
    return st;
}

/* One token, on the first line. */
static psc_status_t read_token(psp_grpc_secrets_t *secrets, const char *path, psc_error_t *error)
{
    char *text = NULL;
    char value[sizeof SCHEME + PSP_TOKEN_MAX];
    size_t size;
    if (path == NULL)
        return PSC_OK;
    psc_status_t st = psc_file_read_private(path, FILE_MAX, &text, &size, error);
    if (st != PSC_OK)
        return st;
    const size_t length = strcspn(text, " \t\r\n");
    if (psp_token_is_one(text, length) && text[length + strspn(text + length, " \t\r\n")] == '\0') {
        (void)snprintf(value, sizeof value, SCHEME "%.*s", (int)length, text);
        secrets->token.key = grpc_slice_from_static_string("authorization");
        secrets->token.value = grpc_slice_from_copied_string(value);
        secrets->has_token = true;
        explicit_bzero(value, sizeof value);
    } else {
        st = psc_error_set(error, PSC_INVALID_ARGUMENT,
                           "%s holds no token: one line of %u to %u letters, digits and -._~+/",
                           path, PSP_TOKEN_MIN, PSP_TOKEN_MAX);
    }
    psc_free_secret(text);
    return st;
}

psc_status_t psp_grpc_secrets_create(const psp_grpc_security_t *files,
                                     psp_grpc_secrets_t **secrets_out, psc_error_t *error)
{
    if ((files->tls_cert == NULL) != (files->tls_key == NULL) ||
        (files->tls_cert != NULL && files->tls_ca == NULL))
        return psc_error_set(error, PSC_INVALID_ARGUMENT,
                             "tls_cert and tls_key come together, and with tls_ca");
    psp_grpc_secrets_t *secrets = psc_alloc_zeroed(1, sizeof *secrets);
    if (secrets == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "no memory for certificates");
    secrets->plain_text = files->plain_text;
    psc_status_t st = read_pem(files->tls_ca, CERTIFICATE, "certificate", &secrets->ca, error);
    if (st == PSC_OK)
        st = read_pem(files->tls_cert, CERTIFICATE, "certificate", &secrets->cert, error);
    if (st == PSC_OK)
        st = read_pem(files->tls_key, KEY_END, "private key", &secrets->key, error);
    if (st == PSC_OK)
        st = read_token(secrets, files->token_file, error);
    if (st != PSC_OK) {
        psp_grpc_secrets_destroy(secrets);
        return st;
    }
    *secrets_out = secrets;
    return PSC_OK;
}

void psp_grpc_secrets_destroy(psp_grpc_secrets_t *secrets)
{
    if (secrets == NULL)
        return;
    psc_free_secret(secrets->ca);
    psc_free_secret(secrets->cert);
    psc_free_secret(secrets->key);
    if (secrets->has_token)
        grpc_slice_unref(secrets->token.value);
    psc_free(secrets);
}

/* ---- use ---- */

/* Without asking a name server: what it says is not to be believed here. */
static bool is_this_machine(const char *address)
{
    char host[PSP_ADDRESS_MAX + 1];
    const char *port;
    struct in_addr in;
    struct in6_addr in6;
    if (strncmp(address, "unix:", 5) == 0)
        return true;
    if (!psp_address_split(address, host, sizeof host, &port))
        return false;
    if (inet_pton(AF_INET, host, &in) == 1)
        return ntohl(in.s_addr) >> 24 == 127;
    if (inet_pton(AF_INET6, host, &in6) == 1)
        return IN6_IS_ADDR_LOOPBACK(&in6) != 0;
    return strcmp(host, "localhost") == 0;
}

psc_status_t psp_grpc_secrets_check(const psp_grpc_secrets_t *secrets, const char *address,
                                    psc_error_t *error)
{
    if (!secrets->has_token || secrets->ca != NULL || secrets->plain_text ||
        is_this_machine(address))
        return PSC_OK;
    return psc_error_set(error, PSC_INVALID_ARGUMENT,
                         "the token would go to %.100s in plain text, for all to read on the way: "
                         "give tls_ca as well, or ask for plain_text",
                         address);
}

bool psp_grpc_secrets_has_tls(const psp_grpc_secrets_t *secrets)
{
    return secrets->ca != NULL;
}

bool psp_grpc_secrets_has_certificate(const psp_grpc_secrets_t *secrets)
{
    return secrets->cert != NULL;
}

grpc_channel_credentials *psp_grpc_secrets_credentials(const psp_grpc_secrets_t *secrets)
{
    if (secrets->ca == NULL)
        return grpc_insecure_credentials_create();
    grpc_ssl_pem_key_cert_pair pair = {.private_key = secrets->key, .cert_chain = secrets->cert};
    return grpc_ssl_credentials_create_ex(secrets->ca, secrets->cert != NULL ? &pair : NULL, NULL,
                                          NULL);
}

grpc_metadata *psp_grpc_secrets_token(psp_grpc_secrets_t *secrets)
{
    return secrets->has_token ? &secrets->token : NULL;
}
