/*
 * Files of a checkpoint (proto/checkpoint.proto) as bytes, checked.
 *
 *     8 bytes "embpsck1", uint32 format, uint32 kind, uint64 size of the body, the body (protobuf),
 *     uint64 XXH3 of all that
 *
 *     st = psp_saved_read(path, PSP_SAVED_MANIFEST, &saved, error);
 *     const psp_saved_manifest_t *manifest = psp_saved_manifest(saved);
 *     psp_saved_destroy(saved);
 *
 * What was read keeps all that the schema says: names are names of files below the checkpoint's own
 * folder, numbers of servers agree, slots belong to servers that there are. Any bytes are safe.
 * Threads: none.
 */
#ifndef PROTO_SAVED_H
#define PROTO_SAVED_H

#include "common/status.h"
#include "proto/checkpoint.pb-c.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* 1: without files of a chain; 2: without a vocabulary; both are read too. */
#define PSP_SAVED_FORMAT 3u
#define PSP_SAVED_NAME_MAX 127u /* of a checkpoint, and of a file in it */
#define PSP_SAVED_SERVERS_MAX 65535u
/* Files of images that "rows" rests on, from 0, the oldest; see ps/checkpoint/README.md. */
#define PSP_SAVED_CHAIN "rows-%zu"

typedef enum psp_saved_kind {
    PSP_SAVED_MANIFEST = 1,
    PSP_SAVED_PART = 2,
} psp_saved_kind_t;

typedef Embps__Checkpoint__V1__Manifest psp_saved_manifest_t;
typedef Embps__Checkpoint__V1__Part psp_saved_part_t;
typedef Embps__Checkpoint__V1__PartFile psp_saved_part_file_t;
typedef Embps__Checkpoint__V1__File psp_saved_file_t;
typedef Embps__Checkpoint__V1__Table psp_saved_table_t;
typedef Embps__Checkpoint__V1__Session psp_saved_session_t;
typedef Embps__Checkpoint__V1__MovedSession psp_saved_moved_t;
typedef Embps__Checkpoint__V1__Counter psp_saved_counter_t;

/* A file that was read, and its memory. */
typedef struct psp_saved psp_saved_t;

/* Errors: NOT_FOUND, IO, NO_MEMORY; CORRUPT (cut short, damaged, no such file; says which check
 * failed); UNSUPPORTED (a later format). All name path. Gives. */
PSC_MUST_CHECK psc_status_t psp_saved_read(const char *path, psp_saved_kind_t kind,
                                           psp_saved_t **saved_out, psc_error_t *error);

/* The same of bytes that were read; path is for messages. */
PSC_MUST_CHECK psc_status_t psp_saved_parse(const char *path, psp_saved_kind_t kind,
                                            const uint8_t *bytes, size_t size,
                                            psp_saved_t **saved_out, psc_error_t *error);

/* The same of the body alone. */
PSC_MUST_CHECK psc_status_t psp_saved_parse_body(const char *path, psp_saved_kind_t kind,
                                                 const uint8_t *body, size_t size,
                                                 psp_saved_t **saved_out, psc_error_t *error);

/* Of what was read as that kind. Borrowed from saved. */
const psp_saved_manifest_t *psp_saved_manifest(const psp_saved_t *saved);
const psp_saved_part_t *psp_saved_part(const psp_saved_t *saved);

/* NULL is a no-op. */
void psp_saved_destroy(psp_saved_t *saved);

/*
 * Writes a whole file, synced; what it is in size and checksum. first [n_first]: packed bytes of
 * the same kind of message, whose fields come first (NULL: none). Errors: IO, DISK_FULL, NO_MEMORY,
 * INVALID_ARGUMENT (longer than such files may be).
 */
PSC_MUST_CHECK psc_status_t psp_saved_write(const char *path, psp_saved_kind_t kind,
                                            const void *first, size_t n_first,
                                            const ProtobufCMessage *message, uint64_t *size_out,
                                            uint64_t *checksum_out, psc_error_t *error);

/* Whether text can be the name of a checkpoint: 1 to PSP_SAVED_NAME_MAX letters, digits, '.', '_',
 * '-', the first a letter or digit. */
bool psp_saved_is_name(const char *text);

/* Size and checksum of any file. Errors: NOT_FOUND, IO, NO_MEMORY. */
PSC_MUST_CHECK psc_status_t psp_saved_sum(const char *path, uint64_t *size_out,
                                          uint64_t *checksum_out, psc_error_t *error);

#endif
