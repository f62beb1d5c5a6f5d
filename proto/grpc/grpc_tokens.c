/*
 * Who a call is from: metadata "authorization: Bearer TOKEN", once.
 *
 * The file is looked at whenever a call comes, which costs one stat: a token that was taken out is
 * refused from the next call on. When it has changed it is read anew; if that fails, a warning says
 * why, and what was there before stays, so that half a file locks out nobody and lets in nobody.
 * Calls that are under way keep the rights that they came with (psp_rights_t counts its owners).
 *
 * What a client may do is found out by the server, which knows what a message is about; it says
 * DENIED in the reply's header, like any other error. For clients that only look at gRPC's status
 * the door says it there as well (psp_grpc_denies).
 *
 * Nothing of a token is ever logged, or told to a client. Threads: the queue's.
 */
#include "proto/grpc/grpc_tokens.h"

#include "common/alloc.h"
#include "common/file.h"
#include "common/log.h"
#include "proto/wire_walk.h"

#include <string.h>
#include <strings.h>

#define FILE_MAX ((size_t)1 << 20)
#define SCHEME "Bearer "
#define HEADER_FIELD 1u /* of every reply */
#define STATUS_FIELD 2u
#define MESSAGE_FIELD 3u

struct psp_grpc_tokens {
    char *path;
    psc_file_version_t version; /* that was looked at last */
    psp_rights_t *rights;
};

static psc_status_t read_file(const char *path, psp_rights_t **rights_out, psc_error_t *error)
{
    char *text = NULL;
    size_t size;
    psc_status_t st = psc_file_read_private(path, FILE_MAX, &text, &size, error);
    if (st == PSC_OK)
        st = psp_rights_parse(text, size, path, rights_out, error);
    if (text != NULL)
        explicit_bzero(text, size);
    psc_free(text);
    return st;
}

psc_status_t psp_grpc_tokens_create(const char *path, psp_grpc_tokens_t **tokens_out,
                                    psc_error_t *error)
{
    psp_grpc_tokens_t *tokens = psc_alloc_zeroed(1, sizeof *tokens);
    psc_status_t st = PSC_OK;
    if (tokens == NULL || (tokens->path = psc_strdup(path)) == NULL)
        st = psc_error_set(error, PSC_NO_MEMORY, "out of memory for tokens");
    if (st == PSC_OK) {
        (void)psc_file_has_changed(path, &tokens->version); /* before: a later change is noticed */
        st = read_file(path, &tokens->rights, error);
    }
    if (st != PSC_OK) {
        psp_grpc_tokens_destroy(tokens);
        return st;
    }
    *tokens_out = tokens;
    return PSC_OK;
}

void psp_grpc_tokens_destroy(psp_grpc_tokens_t *tokens)
{
    if (tokens == NULL)
        return;
    psp_rights_put(tokens->rights);
    psc_free(tokens->path);
    psc_free(tokens);
}

static void read_anew(psp_grpc_tokens_t *tokens)
{
    psc_error_t error = PSC_ERROR_INIT;
    psp_rights_t *rights = NULL;
    if (!psc_file_has_changed(tokens->path, &tokens->version))
        return;
    if (read_file(tokens->path, &rights, &error) != PSC_OK) {
        psc_log(PSC_LOG_WARN, "tokens stay as they were: %s", error.message);
        return;
    }
    psp_rights_put(tokens->rights);
    tokens->rights = rights;
    psc_log(PSC_LOG_INFO, "tokens of %s are read anew", tokens->path);
}

psc_status_t psp_grpc_tokens_check(psp_grpc_tokens_t *tokens, const grpc_metadata_array *metadata,
                                   psp_rights_t **rights_out, const psp_grant_t **grant_out,
                                   psc_error_t *error)
{
    const grpc_slice *value = NULL;
    size_t n = 0;
    for (size_t i = 0; i < metadata->count; i++) {
        if (grpc_slice_str_cmp(metadata->metadata[i].key, "authorization") != 0)
            continue;
        value = &metadata->metadata[i].value;
        n++;
    }
    if (n == 0)
        return psc_error_set(error, PSC_DENIED,
                             "this server wants a token (metadata authorization: Bearer TOKEN)");
    const size_t scheme = sizeof SCHEME - 1;
    const char *text = (const char *)GRPC_SLICE_START_PTR(*value);
    const size_t length = GRPC_SLICE_LENGTH(*value);
    const psp_grant_t *grant = NULL;
    read_anew(tokens);
    if (n == 1 && length > scheme && strncasecmp(text, SCHEME, scheme) == 0)
        grant = psp_rights_find(tokens->rights, text + scheme, length - scheme);
    if (grant == NULL)
        return psc_error_set(error, PSC_DENIED, "no token that this server knows");
    psp_rights_share(tokens->rights);
    *rights_out = tokens->rights;
    *grant_out = grant;
    return PSC_OK;
}

/* The field of a message that was packed here; number 0: it has none. */
static psp_field_t find_field(const uint8_t *data, size_t size, uint32_t number)
{
    psp_wire_t wire = {.next = data, .end = data + size};
    psp_field_t field;
    do {
        if (psp_wire_next(&wire, &field) != NULL)
            return (psp_field_t){.number = 0};
    } while (field.number != 0 && field.number != number);
    return field;
}

bool psp_grpc_denies(const psp_buffer_t *answer, char *text_out, size_t size)
{
    const psp_field_t header = find_field(answer->data, answer->size, HEADER_FIELD);
    if (header.number == 0)
        return false;
    const psp_field_t status = find_field(header.payload, header.size, STATUS_FIELD);
    if (status.number == 0 || status.size != 1 || status.payload[0] != PSC_DENIED)
        return false;
    const psp_field_t message = find_field(header.payload, header.size, MESSAGE_FIELD);
    const size_t n = message.number == 0 ? 0 : message.size < size - 1 ? message.size : size - 1;
    if (n != 0)
        memcpy(text_out, message.payload, n);
    text_out[n] = '\0';
    return true;
}
