/*
 * Reading in three steps: the envelope, whose checksum covers it and the body; protobuf-c into
 * memory with a limit; and what a schema cannot say. After that nobody has to look again.
 *
 * A file is read whole: parts have some 60 bytes for each file and session, some 300 for each
 * table. Threads: none. Cost: one pass for the checksum, one for protobuf-c.
 */
#include "proto/saved.h"

#include "common/alloc.h"
#include "common/file.h"
#include "common/slots.h"
#include "proto/unpack_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#define FILE_BYTES_MAX ((size_t)32 << 20)
/* What protobuf-c makes of n bytes: an empty message of two bytes takes 64. */
#define SCRATCH_OF(n) (((size_t)64 << 10) + 64 * (n))
#define SUM_BYTES ((size_t)256 << 10)
#define MAGIC "embpsck1"

typedef struct envelope {
    char magic[8];
    uint32_t format, kind;
    uint64_t size;
} envelope_t;

struct psp_saved {
    psp_scratch_t *scratch;
    const ProtobufCMessage *message;
};

static psc_status_t damaged(const char *path, const char *what, psc_error_t *error)
{
    return psc_error_set(error, PSC_CORRUPT, "%s is damaged: %s", path, what);
}

/* ---- what a schema cannot say ---- */

static bool is_name_byte(char c, bool first)
{
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    return plain || (!first && (c == '.' || c == '_' || c == '-'));
}

bool psp_saved_is_name(const char *text)
{
    size_t n = 0;
    for (; text[n] != '\0'; n++) {
        if (n == PSP_SAVED_NAME_MAX || !is_name_byte(text[n], n == 0))
            return false;
    }
    return n != 0;
}

/* A name, in one folder at most. */
static bool is_file_name(const char *text)
{
    const char *slash = strchr(text, '/');
    char folder[PSP_SAVED_NAME_MAX + 1];
    if (slash == NULL)
        return psp_saved_is_name(text);
    const size_t length = (size_t)(slash - text);
    if (length > PSP_SAVED_NAME_MAX)
        return false;
    memcpy(folder, text, length);
    folder[length] = '\0';
    return psp_saved_is_name(folder) && psp_saved_is_name(slash + 1);
}

static psc_status_t check_manifest(const char *path, const psp_saved_manifest_t *manifest,
                                   psc_error_t *error)
{
    if (!psp_saved_is_name(manifest->name))
        return damaged(path, "its name is none", error);
    if (manifest->n_servers == 0 || manifest->n_servers > PSP_SAVED_SERVERS_MAX ||
        manifest->n_parts != manifest->n_servers)
        return damaged(path, "it has not as many parts as servers", error);
    if (manifest->state != NULL && strcmp(manifest->state->name, "state") != 0)
        return damaged(path, "the state has another name", error);
    if (manifest->vocabulary != NULL && strcmp(manifest->vocabulary->name, "vocabulary") != 0)
        return damaged(path, "the vocabulary has another name", error);
    return PSC_OK;
}

static psc_status_t check_part(const char *path, const psp_saved_part_t *part, psc_error_t *error)
{
    if (!psp_saved_is_name(part->name))
        return damaged(path, "its name is none", error);
    if (part->n_servers == 0 || part->n_servers > PSP_SAVED_SERVERS_MAX ||
        part->server >= part->n_servers)
        return damaged(path, "its server is none", error);
    if (part->slot_owners.len != (size_t)PSC_SLOT_COUNT * sizeof(uint16_t))
        return damaged(path, "its slot map has another size", error);
    for (size_t i = 0; i < PSC_SLOT_COUNT; i++) {
        uint16_t owner;
        memcpy(&owner, part->slot_owners.data + i * sizeof owner, sizeof owner);
        if (owner >= part->n_servers)
            return damaged(path, "a slot belongs to no server", error);
    }
    for (size_t i = 0; i < part->n_files; i++) {
        if (!is_file_name(part->files[i]->name))
            return damaged(path, "the name of a file is none", error);
    }
    return PSC_OK;
}

static psc_status_t check(const char *path, psp_saved_kind_t kind, const ProtobufCMessage *message,
                          psc_error_t *error)
{
    return kind == PSP_SAVED_MANIFEST
               ? check_manifest(path, (const psp_saved_manifest_t *)(const void *)message, error)
               : check_part(path, (const psp_saved_part_t *)(const void *)message, error);
}

/* ---- reading ---- */

/* Whether all fields, also of messages inside, are of the schema: a format has these and no others,
 * and what is not known could not be gone on from. */
static bool knows_all(const ProtobufCMessage *message)
{
    if (message->n_unknown_fields != 0)
        return false;
    for (unsigned i = 0; i < message->descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &message->descriptor->fields[i];
        const uint8_t *at = (const uint8_t *)message + field->offset;
        if (field->type != PROTOBUF_C_TYPE_MESSAGE)
            continue;
        const bool repeated = field->label == PROTOBUF_C_LABEL_REPEATED;
        const size_t n = repeated ? *(const size_t *)(const void *)((const uint8_t *)message +
                                                                    field->quantifier_offset)
                                  : 1;
        ProtobufCMessage *const *inside = repeated ? *(ProtobufCMessage * *const *)(const void *)at
                                                   : (ProtobufCMessage *const *)(const void *)at;
        for (size_t k = 0; k < n; k++)
            if (inside[k] != NULL && !knows_all(inside[k]))
                return false;
    }
    return true;
}

void psp_saved_destroy(psp_saved_t *saved)
{
    if (saved == NULL)
        return;
    psp_scratch_destroy(saved->scratch);
    psc_free(saved);
}

psc_status_t psp_saved_parse_body(const char *path, psp_saved_kind_t kind, const uint8_t *body,
                                  size_t size, psp_saved_t **saved_out, psc_error_t *error)
{
    const ProtobufCMessageDescriptor *descriptor =
        kind == PSP_SAVED_MANIFEST ? &embps__checkpoint__v1__manifest__descriptor
                                   : &embps__checkpoint__v1__part__descriptor;
    psp_saved_t *saved = psc_alloc_zeroed(1, sizeof *saved);
    if (saved == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "out of memory for %s", path);
    psc_status_t st = psp_scratch_create(SCRATCH_OF(size), &saved->scratch, error);
    if (st == PSC_OK) {
        saved->message = protobuf_c_message_unpack(
            descriptor, psp_scratch_allocator(saved->scratch), size, body);
        st = saved->message == NULL || !knows_all(saved->message)
                 ? damaged(path, "it does not fit its schema", error)
                 : check(path, kind, saved->message, error);
    }
    if (st != PSC_OK) {
        psp_saved_destroy(saved);
        return st;
    }
    *saved_out = saved;
    return PSC_OK;
}

psc_status_t psp_saved_parse(const char *path, psp_saved_kind_t kind, const uint8_t *bytes,
                             size_t size, psp_saved_t **saved_out, psc_error_t *error)
{
    envelope_t envelope;
    uint64_t checksum;
    if (size < sizeof envelope + sizeof checksum)
        return damaged(path, "it is cut short", error);
    memcpy(&envelope, bytes, sizeof envelope);
    if (memcmp(envelope.magic, MAGIC, sizeof envelope.magic) != 0)
        return damaged(path, "it does not begin as such a file does", error);
    if (envelope.format > PSP_SAVED_FORMAT)
        return psc_error_set(error, PSC_UNSUPPORTED,
                             "%s has format %" PRIu32 ", this release knows %u: use a later one",
                             path, envelope.format, PSP_SAVED_FORMAT);
    const size_t body = size - sizeof envelope - sizeof checksum;
    if (envelope.size != body)
        return damaged(path, "it has not the size that it says", error);
    memcpy(&checksum, bytes + size - sizeof checksum, sizeof checksum);
    if (checksum != XXH3_64bits(bytes, size - sizeof checksum))
        return damaged(path, "its checksum is another", error);
    if (envelope.format == 0 || envelope.kind != (uint32_t)kind)
        return damaged(path, "it is another kind of file", error);
    return psp_saved_parse_body(path, kind, bytes + sizeof envelope, body, saved_out, error);
}

psc_status_t psp_saved_read(const char *path, psp_saved_kind_t kind, psp_saved_t **saved_out,
                            psc_error_t *error)
{
    char *bytes;
    size_t size;
    psc_status_t st = psc_file_read(path, FILE_BYTES_MAX, &bytes, &size, error);
    if (st != PSC_OK)
        return st;
    st = psp_saved_parse(path, kind, (const uint8_t *)bytes, size, saved_out, error);
    psc_free(bytes);
    return st;
}

const psp_saved_manifest_t *psp_saved_manifest(const psp_saved_t *saved)
{
    PSC_BUG_ON(saved->message->descriptor != &embps__checkpoint__v1__manifest__descriptor);
    return (const psp_saved_manifest_t *)(const void *)saved->message;
}

const psp_saved_part_t *psp_saved_part(const psp_saved_t *saved)
{
    PSC_BUG_ON(saved->message->descriptor != &embps__checkpoint__v1__part__descriptor);
    return (const psp_saved_part_t *)(const void *)saved->message;
}

/* ---- writing ---- */

psc_status_t psp_saved_write(const char *path, psp_saved_kind_t kind, const void *first,
                             size_t n_first, const ProtobufCMessage *message, uint64_t *size_out,
                             uint64_t *checksum_out, psc_error_t *error)
{
    const size_t body = n_first + protobuf_c_message_get_packed_size(message);
    envelope_t envelope = {.format = PSP_SAVED_FORMAT, .kind = (uint32_t)kind, .size = body};
    memcpy(envelope.magic, MAGIC, sizeof envelope.magic);
    const size_t size = sizeof envelope + body + sizeof(uint64_t);
    if (size > FILE_BYTES_MAX)
        return psc_error_set(error, PSC_INVALID_ARGUMENT, "%s would have %zu bytes, at most %zu",
                             path, size, FILE_BYTES_MAX);
    uint8_t *bytes = psc_alloc(size);
    if (bytes == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "out of memory for %s", path);
    memcpy(bytes, &envelope, sizeof envelope);
    if (n_first != 0)
        memcpy(bytes + sizeof envelope, first, n_first);
    (void)protobuf_c_message_pack(message, bytes + sizeof envelope + n_first);
    const uint64_t checksum = XXH3_64bits(bytes, sizeof envelope + body);
    memcpy(bytes + sizeof envelope + body, &checksum, sizeof checksum);
    psc_status_t st = psc_file_write(path, bytes, size, error);
    *size_out = size;
    *checksum_out = XXH3_64bits(bytes, size);
    psc_free(bytes);
    return st;
}

/* ---- any file ---- */

/* 0, or errno. */
static int sum_open(int fd, uint64_t *size_out, uint64_t *checksum_out)
{
    XXH3_state_t *state = XXH3_createState();
    uint8_t *bytes = psc_alloc(SUM_BYTES);
    int failed = state == NULL || bytes == NULL ? ENOMEM : 0;
    *size_out = 0;
    if (failed == 0)
        (void)XXH3_64bits_reset(state);
    while (failed == 0) {
        const ssize_t got = read(fd, bytes, SUM_BYTES);
        if (got == 0)
            break;
        if (got > 0) {
            *size_out += (uint64_t)got;
            (void)XXH3_64bits_update(state, bytes, (size_t)got);
        } else if (errno != EINTR) {
            failed = errno;
        }
    }
    *checksum_out = failed == 0 ? XXH3_64bits_digest(state) : 0;
    (void)XXH3_freeState(state);
    psc_free(bytes);
    return failed;
}

psc_status_t psp_saved_sum(const char *path, uint64_t *size_out, uint64_t *checksum_out,
                           psc_error_t *error)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return psc_error_set_errno(error, errno, "cannot read %s", path);
    const int failed = sum_open(fd, size_out, checksum_out);
    (void)close(fd);
    return failed == 0 ? PSC_OK : psc_error_set_errno(error, failed, "cannot read %s", path);
}
