/*
 * What is known of each message kind: its name, its reply, its schema and its bulk fields. Inside
 * proto/ only.
 */
#ifndef PROTO_MESSAGE_KINDS_H
#define PROTO_MESSAGE_KINDS_H

#include "proto/message.h"

#include <protobuf-c/protobuf-c.h>

#define PSP_BULK_MAX 4u

/* A field that is used where it lies in the message instead of being unpacked by protobuf-c. */
typedef struct psp_bulk_field {
    uint32_t number;     /* 0: none */
    uint32_t item_bytes; /* of a repeated fixed-size number; 0: a bytes field */
} psp_bulk_field_t;

typedef struct psp_kind_info {
    const char *name;
    uint32_t reply; /* 0: is a reply itself */
    const ProtobufCMessageDescriptor *descriptor;
    psp_bulk_field_t bulk[PSP_BULK_MAX];
} psp_kind_info_t;

/* NULL for a number that is no kind. Static. */
const psp_kind_info_t *psp_kind_info(uint32_t kind);

#endif
