/*
 * Fuzzing of the files of a checkpoint: any bytes are refused as damaged, or of a later format, or
 * become a manifest or part that keeps its promises, and that is the same when written and read
 * again.
 *
 * The first byte chooses what the others are: a whole file of either kind, or its body alone, which
 * no checksum protects. The seeds in corpus/checkpoint are those of a real checkpoint.
 */
#include "proto/saved.h"

#include "common/alloc.h"
#include "common/slots.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition)
{
    if (!condition)
        abort();
}

static void look(const psp_saved_t *saved, psp_saved_kind_t kind)
{
    if (kind == PSP_SAVED_MANIFEST) {
        const psp_saved_manifest_t *manifest = psp_saved_manifest(saved);
        require(psp_saved_is_name(manifest->name) && manifest->n_parts == manifest->n_servers);
        for (size_t i = 0; i < manifest->n_parts; i++)
            require(strlen(manifest->parts[i]->host) < SIZE_MAX);
        return;
    }
    const psp_saved_part_t *part = psp_saved_part(saved);
    require(psp_saved_is_name(part->name) && part->server < part->n_servers);
    require(part->slot_owners.len == PSC_SLOT_COUNT * sizeof(uint16_t));
    for (size_t i = 0; i < part->n_files; i++)
        require(strstr(part->files[i]->name, "..") != part->files[i]->name);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    const psp_saved_kind_t kind = (data[0] & 1) != 0 ? PSP_SAVED_MANIFEST : PSP_SAVED_PART;
    psp_saved_t *saved = NULL, *again = NULL;
    psc_error_t error = PSC_ERROR_INIT;
    const bool body = (data[0] & 2) != 0;
    psc_status_t st = body ? psp_saved_parse_body("body", kind, data + 1, size - 1, &saved, &error)
                           : psp_saved_parse("file", kind, data + 1, size - 1, &saved, &error);
    require(st == PSC_OK || st == PSC_CORRUPT || st == PSC_UNSUPPORTED);
    if (st != PSC_OK)
        return 0;
    look(saved, kind);
    const ProtobufCMessage *message = kind == PSP_SAVED_MANIFEST ? &psp_saved_manifest(saved)->base
                                                                 : &psp_saved_part(saved)->base;
    const size_t n = protobuf_c_message_get_packed_size(message);
    uint8_t *bytes = psc_alloc(n + 1);
    require(bytes != NULL && protobuf_c_message_pack(message, bytes) == n);
    require(psp_saved_parse_body("again", kind, bytes, n, &again, &error) == PSC_OK);
    look(again, kind);
    psc_free(bytes);
    psp_saved_destroy(again);
    psp_saved_destroy(saved);
    return 0;
}
