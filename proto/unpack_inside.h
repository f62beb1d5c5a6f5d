/*
 * What the files that unpack messages share. Inside proto/ only.
 */
#ifndef PROTO_UNPACK_INSIDE_H
#define PROTO_UNPACK_INSIDE_H

#include "proto/message_kinds.h"

/* A run of bytes found in a message, maybe in pieces. */
typedef struct psp_run {
    const uint8_t *start; /* of the only piece, or of the joined copy */
    const uint8_t *end;   /* of the last piece seen */
    size_t size;          /* of all pieces */
    bool scattered;
} psp_run_t;

typedef struct psp_unpacker {
    const psp_kind_info_t *info;
    psp_scratch_t *scratch;
    const uint8_t *data;
    size_t size;
    psp_run_t small;
    psp_run_t bulk[PSP_BULK_MAX];
    psc_error_t *error;
} psp_unpacker_t;

/* PROTOCOL, naming the message and the fault; or a number and what it is. */
psc_status_t psp_unpack_refuse(const psp_unpacker_t *u, const char *fault);
psc_status_t psp_unpack_refuse_number(const psp_unpacker_t *u, const char *what, uint64_t number);

/* A format; dimension and format of rows. Errors: PROTOCOL. */
PSC_MUST_CHECK psc_status_t psp_unpack_format(const psp_unpacker_t *u, uint32_t from,
                                              psp_format_t *to);
PSC_MUST_CHECK psc_status_t psp_unpack_rows(const psp_unpacker_t *u, uint32_t dim, uint32_t from,
                                            psp_format_t *to);

/* Whether a bulk field holds n items of so many bytes. */
bool psp_run_holds(const psp_run_t *run, size_t n, size_t item_bytes);

/* message_unpack_hello.c: bodies. Errors: PROTOCOL. */
PSC_MUST_CHECK psc_status_t psp_unpack_hello(const psp_unpacker_t *u, const void *message,
                                             psp_hello_t *to);
PSC_MUST_CHECK psc_status_t psp_unpack_hello_reply(const psp_unpacker_t *u, const void *message,
                                                   psp_hello_reply_t *to);

/* message_unpack_blocks.c: bodies; message: what protobuf-c made of the small fields. Errors:
 * PROTOCOL. */
PSC_MUST_CHECK psc_status_t psp_unpack_export(const psp_unpacker_t *u, const void *message,
                                              psp_export_t *to);
PSC_MUST_CHECK psc_status_t psp_unpack_export_reply(const psp_unpacker_t *u, const void *message,
                                                    psp_export_reply_t *to);
PSC_MUST_CHECK psc_status_t psp_unpack_watch(const psp_unpacker_t *u, const void *message,
                                             psp_watch_t *to);
PSC_MUST_CHECK psc_status_t psp_unpack_watch_reply(const psp_unpacker_t *u, const void *message,
                                                   psp_watch_reply_t *to);
PSC_MUST_CHECK psc_status_t psp_unpack_import(const psp_unpacker_t *u, const void *message,
                                              psp_import_t *to);

/* message_checkpoint.c: bodies. Errors: PROTOCOL. */
PSC_MUST_CHECK psc_status_t psp_unpack_checkpoint(const psp_unpacker_t *u, const void *message,
                                                  psp_checkpoint_t *to);
PSC_MUST_CHECK psc_status_t psp_unpack_checkpoint_reply(const psp_unpacker_t *u,
                                                        const void *message,
                                                        psp_checkpoint_reply_t *to);

#endif
