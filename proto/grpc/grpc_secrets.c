/*
 * Certificates, key and token of a client.
 *
 * Files are read when the client is made, and looked at as far as a word can then be said of them:
 * gRPC takes what is no certificate for no certificate at all, and says so much later. The server's
 * certificate must be signed by one of the authorities in tls_ca, alone, and must name the host of
 * the address; gRPC checks both, and both cannot be switched off.
 *
 * Files that are replaced are read anew when something fails that they may mend: the token when a
 * call was not let in, and before signs of life; the others, all together, when a connection could
 * not be made. A file that is wrong then changes nothing.
 *
 * The token is metadata of every call, and no call credential of gRPC's, which is for TLS alone: on
 * this machine plain text is as good. Anywhere else a token in plain text is refused before
 * anything is sent, unless that was asked for.
 *
 * What was read is overwritten before it is freed; gRPC's own copies are its own affair. Nothing of
 * it is logged or becomes part of an error. Threads: `lock` guards the token; certificates are the
 * client's thread's.
 */
#include "proto/grpc/grpc_secrets.h"

#include "common/alloc.h"
#include "common/file.h"
#include "proto/grpc/listen_address.h"
#include "proto/rights.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define FILE_MAX ((size_t)1 << 20)
#define SCHEME "Bearer "
#define WORDS_BYTES 400

enum { CA, CERT, KEY, N_FILES };

typedef struct file {
    char *path;                 /* NULL: none */
    char *text;                 /* that was read last */
    psc_file_version_t version; /* that was looked at last */
} file_t;

struct psp_grpc_secrets {
    file_t files[N_FILES];
    bool plain_text;
    pthread_mutex_t lock;
    file_t token_file;      /* its text is not kept; its version is guarded by lock */
    psp_grpc_token_t token; /* guarded by lock */
};

/* ---- files ---- */

static psp_pem_t pem_of(const file_t *file)
{
    return (psp_pem_t){.path = file->path, .text = file->text};
}

static psp_shown_t shown_of(const file_t files[N_FILES])
{
    return (psp_shown_t){
        .ca = pem_of(&files[CA]), .cert = pem_of(&files[CERT]), .key = pem_of(&files[KEY])};
}

static void forget_texts(file_t files[N_FILES])
{
    for (size_t i = 0; i < N_FILES; i++) {
        psc_free_secret(files[i].text);
        files[i].text = NULL;
    }
}

/* A certificate that nobody would take is not shown. */
static psc_status_t check_age(const psp_pem_t *cert, psc_error_t *error)
{
    char words[WORDS_BYTES];
    const psp_age_t age = psp_certificate_age(cert, time(NULL), 0, words, sizeof words);
    if (age != PSP_AGE_EXPIRED && age != PSP_AGE_NOT_YET)
        return PSC_OK;
    return psc_error_set(error, PSC_INVALID_ARGUMENT, "%s: it has to be renewed, or the clock set",
                         words);
}

/* Reads the texts of all files that there are, none of which is there yet. On error none is. */
static psc_status_t read_files(file_t files[N_FILES], psc_error_t *error)
{
    psc_status_t st = PSC_OK;
    for (size_t i = 0; i < N_FILES && st == PSC_OK; i++) {
        size_t size;
        if (files[i].path == NULL)
            continue;
        (void)psc_file_has_changed(files[i].path, &files[i].version);
        st = psc_file_read(files[i].path, FILE_MAX, &files[i].text, &size, error);
    }
    const psp_shown_t shown = shown_of(files);
    if (st == PSC_OK && shown.ca.text != NULL)
        st = psp_certificate_check(&shown.ca, error);
    if (st == PSC_OK && shown.cert.text != NULL)
        st = psp_certificate_check_pair(&shown.cert, &shown.key, error);
    if (st == PSC_OK && shown.cert.text != NULL)
        st = check_age(&shown.cert, error);
    if (st != PSC_OK)
        forget_texts(files);
    return st;
}

/* One token, on the first line. number: of this version. */
static psc_status_t read_token(psp_grpc_secrets_t *secrets, uint64_t number, psc_error_t *error)
{
    char *text = NULL;
    char value[sizeof SCHEME + PSP_TOKEN_MAX];
    const char *path = secrets->token_file.path;
    size_t size;
    psc_status_t st = psc_file_read_private(path, FILE_MAX, &text, &size, error);
    if (st != PSC_OK)
        return st;
    const size_t length = strcspn(text, " \t\r\n");
    if (psp_token_is_one(text, length) && text[length + strspn(text + length, " \t\r\n")] == '\0') {
        (void)snprintf(value, sizeof value, SCHEME "%.*s", (int)length, text);
        psp_grpc_token_put(&secrets->token);
        secrets->token.metadata.key = grpc_slice_from_static_string("authorization");
        secrets->token.metadata.value = grpc_slice_from_copied_string(value);
        secrets->token.number = number;
        explicit_bzero(value, sizeof value);
    } else {
        st = psc_error_set(error, PSC_INVALID_ARGUMENT,
                           "%s holds no token: one line of %u to %u letters, digits and -._~+/",
                           path, PSP_TOKEN_MIN, PSP_TOKEN_MAX);
    }
    psc_free_secret(text);
    return st;
}

static psc_status_t take_name(const char *name, file_t *file, psc_error_t *error)
{
    file->path = name != NULL ? psc_strdup(name) : NULL;
    return name == NULL || file->path != NULL
               ? PSC_OK
               : psc_error_set(error, PSC_NO_MEMORY, "no memory for certificates");
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
    (void)pthread_mutex_init(&secrets->lock, NULL);
    secrets->plain_text = files->plain_text;
    psc_status_t st = take_name(files->tls_ca, &secrets->files[CA], error);
    if (st == PSC_OK)
        st = take_name(files->tls_cert, &secrets->files[CERT], error);
    if (st == PSC_OK)
        st = take_name(files->tls_key, &secrets->files[KEY], error);
    if (st == PSC_OK)
        st = take_name(files->token_file, &secrets->token_file, error);
    if (st == PSC_OK)
        st = read_files(secrets->files, error);
    if (st == PSC_OK && secrets->token_file.path != NULL) {
        (void)psc_file_has_changed(secrets->token_file.path, &secrets->token_file.version);
        st = read_token(secrets, 1, error);
    }
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
    forget_texts(secrets->files);
    for (size_t i = 0; i < N_FILES; i++)
        psc_free(secrets->files[i].path);
    psc_free(secrets->token_file.path);
    psp_grpc_token_put(&secrets->token);
    (void)pthread_mutex_destroy(&secrets->lock);
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
    if (secrets->token_file.path == NULL || secrets->files[CA].path != NULL ||
        secrets->plain_text || is_this_machine(address))
        return PSC_OK;
    return psc_error_set(error, PSC_INVALID_ARGUMENT,
                         "the token would go to %.100s in plain text, for all to read on the way: "
                         "give tls_ca as well, or ask for plain_text",
                         address);
}

psp_shown_t psp_grpc_secrets_shown(const psp_grpc_secrets_t *secrets)
{
    return shown_of(secrets->files);
}

bool psp_grpc_secrets_renew(psp_grpc_secrets_t *secrets)
{
    file_t files[N_FILES];
    bool changed = false;
    for (size_t i = 0; i < N_FILES; i++) {
        file_t *file = &secrets->files[i];
        if (file->path != NULL && psc_file_has_changed(file->path, &file->version))
            changed = true;
        files[i] = (file_t){.path = file->path};
    }
    if (!changed || read_files(files, NULL) != PSC_OK)
        return false;
    forget_texts(secrets->files);
    memcpy(secrets->files, files, sizeof files); /* the names are the same */
    return true;
}

grpc_channel_credentials *psp_grpc_secrets_credentials(const psp_grpc_secrets_t *secrets)
{
    const psp_shown_t shown = shown_of(secrets->files);
    if (shown.ca.text == NULL)
        return grpc_insecure_credentials_create();
    grpc_ssl_pem_key_cert_pair pair = {.private_key = shown.key.text,
                                       .cert_chain = shown.cert.text};
    return grpc_ssl_credentials_create_ex(shown.ca.text, shown.cert.text != NULL ? &pair : NULL,
                                          NULL, NULL);
}

/* ---- the token ---- */

psp_grpc_token_t psp_grpc_secrets_token(psp_grpc_secrets_t *secrets)
{
    (void)pthread_mutex_lock(&secrets->lock);
    psp_grpc_token_t token = secrets->token;
    if (token.number != 0)
        (void)grpc_slice_ref(token.metadata.value);
    (void)pthread_mutex_unlock(&secrets->lock);
    return token;
}

void psp_grpc_token_put(psp_grpc_token_t *token)
{
    if (token->number != 0)
        grpc_slice_unref(token->metadata.value);
    *token = (psp_grpc_token_t){.number = 0};
}

bool psp_grpc_secrets_has_newer_token(psp_grpc_secrets_t *secrets, const psp_grpc_token_t *token)
{
    file_t *file = &secrets->token_file;
    if (file->path == NULL)
        return false;
    (void)pthread_mutex_lock(&secrets->lock);
    const bool read = psc_file_has_changed(file->path, &file->version) &&
                      read_token(secrets, secrets->token.number + 1, NULL) == PSC_OK;
    const bool newer = read || (token != NULL && token->number != secrets->token.number);
    (void)pthread_mutex_unlock(&secrets->lock);
    return newer;
}
