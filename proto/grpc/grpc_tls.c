/*
 * TLS for the door.
 *
 * gRPC asks for the certificates whenever a connection begins, on a thread of its own. Then the
 * files are looked at: where one has changed (its time, size or inode), all are read anew. The time
 * is that of the inode, so that a file that could not be read is tried again once it was given to
 * the server's user or moved back. What cannot be read is logged, and what was there before stays,
 * so that files that are replaced one after the other close the door for nobody. With a client's
 * authority every client has to show a certificate that it signed. A certificate that has expired,
 * or will within a day, is served all the same, and logged whenever it is read.
 *
 * `lock` guards the versions and is held while files are read, which are short. Nothing of a key is
 * ever logged; what was read is wiped before it is freed.
 */
#include "proto/grpc/grpc_tls.h"

#include "common/alloc.h"
#include "common/file.h"
#include "common/log.h"
#include "proto/grpc/grpc_certificates.h"

#include <pthread.h>

#define FILE_MAX ((size_t)1 << 20)
#define WORDS_BYTES 400
#define LAST_DAYS_S ((time_t)24 * 60 * 60) /* before a certificate expires: it is said */

enum { CERT, KEY, CLIENT_CA, N_FILES };

struct psp_grpc_tls {
    pthread_mutex_t lock;
    char *paths[N_FILES];                 /* NULL: none */
    psc_file_version_t versions[N_FILES]; /* that were looked at last; guarded by lock */
};

/* All files; read[i] NULL where there is none. */
static psc_status_t read_all(const psp_grpc_tls_t *tls, char *read[N_FILES], psc_error_t *error)
{
    psc_status_t st = PSC_OK;
    for (size_t i = 0; i < N_FILES && st == PSC_OK; i++) {
        size_t size;
        if (tls->paths[i] != NULL)
            st = psc_file_read(tls->paths[i], FILE_MAX, &read[i], &size, error);
    }
    return st;
}

/* What gRPC would take for no certificate, or for none of this key. */
static psc_status_t check(const psp_grpc_tls_t *tls, char *const read[N_FILES], psc_error_t *error)
{
    const psp_pem_t cert = {tls->paths[CERT], read[CERT]}, key = {tls->paths[KEY], read[KEY]},
                    authority = {tls->paths[CLIENT_CA], read[CLIENT_CA]};
    psc_status_t st = psp_certificate_check_pair(&cert, &key, error);
    return st == PSC_OK && authority.text != NULL ? psp_certificate_check(&authority, error) : st;
}

/* A certificate that clients do not take, or soon will not. */
static void warn_of_age(const psp_grpc_tls_t *tls, char *const read[N_FILES])
{
    const psp_pem_t cert = {tls->paths[CERT], read[CERT]};
    char words[WORDS_BYTES];
    const psp_age_t age = psp_certificate_age(&cert, time(NULL), LAST_DAYS_S, words, sizeof words);
    if (age != PSP_AGE_FINE)
        psc_log(PSC_LOG_WARN, "%s: %s", words,
                age == PSP_AGE_LAST_DAYS ? "guests are refused from then on"
                                         : "guests refuse this server");
}

static bool look_for_changes(psp_grpc_tls_t *tls)
{
    bool changed = false;
    for (size_t i = 0; i < N_FILES; i++) {
        if (tls->paths[i] != NULL && psc_file_has_changed(tls->paths[i], &tls->versions[i]))
            changed = true;
    }
    return changed;
}

/* Called by gRPC when a connection begins, and once at first. */
static grpc_ssl_certificate_config_reload_status
give_certificates(void *context, grpc_ssl_server_certificate_config **config_out)
{
    psp_grpc_tls_t *tls = context;
    char *read[N_FILES] = {NULL};
    psc_error_t error = PSC_ERROR_INIT;
    grpc_ssl_certificate_config_reload_status result = GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
    (void)pthread_mutex_lock(&tls->lock);
    if (look_for_changes(tls)) {
        result = GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_FAIL;
        if (read_all(tls, read, &error) == PSC_OK && check(tls, read, &error) == PSC_OK) {
            warn_of_age(tls, read);
            const grpc_ssl_pem_key_cert_pair pair = {.private_key = read[KEY],
                                                     .cert_chain = read[CERT]};
            /* gRPC insists on an authority, also where no client is asked for a certificate. */
            const char *authority = read[CLIENT_CA] != NULL ? read[CLIENT_CA] : read[CERT];
            *config_out = grpc_ssl_server_certificate_config_create(authority, &pair, 1);
            result = GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
        } else {
            psc_log(PSC_LOG_WARN, "certificates stay as they were: %s", error.message);
        }
    }
    (void)pthread_mutex_unlock(&tls->lock);
    for (size_t i = 0; i < N_FILES; i++)
        psc_free_secret(read[i]);
    return result;
}

psc_status_t psp_grpc_tls_create(const psp_door_tls_t *files, psp_grpc_tls_t **tls_out,
                                 psc_error_t *error)
{
    const char *const paths[N_FILES] = {
        [CERT] = files->cert, [KEY] = files->key, [CLIENT_CA] = files->client_ca};
    char *read[N_FILES] = {NULL};
    psp_grpc_tls_t *tls = psc_alloc_zeroed(1, sizeof *tls);
    if (tls == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "out of memory for certificates");
    (void)pthread_mutex_init(&tls->lock, NULL);
    psc_status_t st = PSC_OK;
    for (size_t i = 0; i < N_FILES && st == PSC_OK; i++) {
        if (paths[i] != NULL && (tls->paths[i] = psc_strdup(paths[i])) == NULL)
            st = psc_error_set(error, PSC_NO_MEMORY, "out of memory for certificates");
    }
    if (st == PSC_OK)
        st = read_all(tls, read, error);
    if (st == PSC_OK)
        st = check(tls, read, error);
    for (size_t i = 0; i < N_FILES; i++)
        psc_free_secret(read[i]);
    if (st != PSC_OK) {
        psp_grpc_tls_destroy(tls);
        return st;
    }
    *tls_out = tls;
    return PSC_OK;
}

void psp_grpc_tls_destroy(psp_grpc_tls_t *tls)
{
    if (tls == NULL)
        return;
    for (size_t i = 0; i < N_FILES; i++)
        psc_free(tls->paths[i]);
    (void)pthread_mutex_destroy(&tls->lock);
    psc_free(tls);
}

grpc_server_credentials *psp_grpc_tls_credentials(psp_grpc_tls_t *tls)
{
    return grpc_ssl_server_credentials_create_with_options(
        grpc_ssl_server_credentials_create_options_using_config_fetcher(
            tls->paths[CLIENT_CA] != NULL
                ? GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY
                : GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE,
            give_certificates, tls));
}
