/*
 * What the files that pack messages share. Inside proto/ only.
 *
 *     Embps__V1__RequestHeader head = psp_pack_request_header(header);
 *     Embps__V1__PullRequest to = EMBPS__V1__PULL_REQUEST__INIT;
 *     to.header = &head;
 *     const psp_bulk_t bulk[] = {{15, psp_bulk_bytes(n, 8), NULL, ids_out}};
 *     return psp_pack(pool, PSP_PULL, &to.base, bulk, 1, buffer_out, error);
 */
#ifndef PROTO_PACK_INSIDE_H
#define PROTO_PACK_INSIDE_H

#include "proto/embps.pb-c.h"
#include "proto/message.h"

/* A bulk field to be packed behind the small ones. */
typedef struct psp_bulk {
    uint8_t number;      /* 1 to 15 */
    size_t size;         /* bytes */
    const void *copy;    /* NULL: the caller fills it */
    uint8_t **place_out; /* where its bytes are; may be NULL */
} psp_bulk_t;

/* Small fields and the places of the bulk ones. Errors: INVALID_ARGUMENT (longer than any message
 * may be), NO_MEMORY. Gives buffer. */
PSC_MUST_CHECK psc_status_t psp_pack(psp_pool_t *pool, psp_kind_t kind,
                                     const ProtobufCMessage *small, const psp_bulk_t *bulk,
                                     size_t n_bulk, psp_buffer_t **buffer_out, psc_error_t *error);

/* n * size, or more than any message may hold. */
size_t psp_bulk_bytes(size_t n, size_t size);

/* Headers for protobuf-c; that of a reply borrows the text of from. */
Embps__V1__RequestHeader psp_pack_request_header(const psp_request_header_t *from);
Embps__V1__ReplyHeader psp_pack_reply_header(const psp_reply_header_t *from);

/* Errors: INVALID_ARGUMENT. */
PSC_MUST_CHECK psc_status_t psp_pack_check_format(psp_kind_t kind, psp_format_t format,
                                                  psc_error_t *error);
PSC_MUST_CHECK psc_status_t psp_pack_check_rows(psp_kind_t kind, uint32_t dim, psp_format_t format,
                                                psc_error_t *error);

/* message_pack_blocks.c, for psp_message_pack. */
PSC_MUST_CHECK psc_status_t psp_pack_export(psp_pool_t *pool, const psp_message_t *message,
                                            psp_buffer_t **buffer_out, psc_error_t *error);
PSC_MUST_CHECK psc_status_t psp_pack_watch(psp_pool_t *pool, const psp_message_t *message,
                                           psp_buffer_t **buffer_out, psc_error_t *error);
PSC_MUST_CHECK psc_status_t psp_pack_import_reply(psp_pool_t *pool, const psp_message_t *message,
                                                  psp_buffer_t **buffer_out, psc_error_t *error);

/* message_checkpoint.c, for psp_message_pack. */
PSC_MUST_CHECK psc_status_t psp_pack_checkpoint(psp_pool_t *pool, const psp_message_t *message,
                                                psp_buffer_t **buffer_out, psc_error_t *error);
PSC_MUST_CHECK psc_status_t psp_pack_checkpoint_reply(psp_pool_t *pool,
                                                      const psp_message_t *message,
                                                      psp_buffer_t **buffer_out,
                                                      psc_error_t *error);

#endif
