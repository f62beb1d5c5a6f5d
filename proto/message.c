/*
 * The table of message kinds, and what follows from it alone.
 *
 * Unpacking is in message_unpack.c, packing in message_pack.c; both take names, schema and bulk
 * fields from here. Constant data; any thread.
 */
#include "proto/message.h"

#include "proto/embps.pb-c.h"
#include "proto/message_kinds.h"

/* Room for tags, lengths and all small fields of a pull reply or push; they take under 200 bytes.
 */
#define SMALL_FIELDS_BYTES 512u

/* Per row beside its floats: an id or (version and state), whichever is more. A pull's id and
 * version take no more than that and one float. */
#define ROW_EXTRA_BYTES 8u

/* The same of a block of an export, watch or import: an id and two counts. */
#define BLOCK_EXTRA_BYTES 16u

/* Limits of messages are far below what counts of MPI and lengths of protobuf can say (2^31). */
_Static_assert(PSP_MAX_MESSAGE_BYTES <= INT32_MAX / 64, "a message fits any int");
_Static_assert(PSP_DIM_MAX * sizeof(float) + SMALL_FIELDS_BYTES <= PSP_MAX_MESSAGE_BYTES,
               "a message can hold one row");

static const psp_kind_info_t kinds[] = {
    [PSP_HELLO] = {"hello", PSP_HELLO_REPLY, &embps__v1__hello_request__descriptor, {{0}}},
    [PSP_HELLO_REPLY] = {"hello reply", 0, &embps__v1__hello_reply__descriptor, {{7, 0}}},
    [PSP_OPEN_TABLE] = {"open table",
                        PSP_OPEN_TABLE_REPLY,
                        &embps__v1__open_table_request__descriptor,
                        {{0}}},
    [PSP_OPEN_TABLE_REPLY] = {"open table reply",
                              0,
                              &embps__v1__open_table_reply__descriptor,
                              {{0}}},
    [PSP_PULL] = {"pull", PSP_PULL_REPLY, &embps__v1__pull_request__descriptor, {{15, 8}, {8, 4}}},
    [PSP_PULL_REPLY] = {"pull reply",
                        0,
                        &embps__v1__pull_reply__descriptor,
                        {{15, 0}, {3, 4}, {4, 0}, {7, 4}}},
    [PSP_PUSH] = {"push", PSP_PUSH_REPLY, &embps__v1__push_request__descriptor, {{14, 8}, {15, 0}}},
    [PSP_PUSH_REPLY] = {"push reply", 0, &embps__v1__push_reply__descriptor, {{15, 0}, {3, 4}}},
    [PSP_CLOCK] = {"clock", PSP_CLOCK_REPLY, &embps__v1__clock_request__descriptor, {{0}}},
    [PSP_CLOCK_REPLY] = {"clock reply", 0, &embps__v1__clock_reply__descriptor, {{0}}},
    [PSP_BARRIER] = {"barrier", PSP_BARRIER_REPLY, &embps__v1__barrier_request__descriptor, {{0}}},
    [PSP_BARRIER_REPLY] = {"barrier reply", 0, &embps__v1__barrier_reply__descriptor, {{0}}},
    [PSP_STATS] = {"stats", PSP_STATS_REPLY, &embps__v1__stats_request__descriptor, {{0}}},
    [PSP_STATS_REPLY] = {"stats reply", 0, &embps__v1__stats_reply__descriptor, {{0}}},
    [PSP_GOODBYE] = {"goodbye", PSP_GOODBYE_REPLY, &embps__v1__goodbye_request__descriptor, {{0}}},
    [PSP_GOODBYE_REPLY] = {"goodbye reply", 0, &embps__v1__goodbye_reply__descriptor, {{0}}},
    [PSP_PREFETCH] = {"prefetch",
                      PSP_PREFETCH_REPLY,
                      &embps__v1__prefetch_request__descriptor,
                      {{15, 8}}},
    [PSP_PREFETCH_REPLY] = {"prefetch reply", 0, &embps__v1__prefetch_reply__descriptor, {{0}}},
    [PSP_ATTACH] = {"attach", PSP_ATTACH_REPLY, &embps__v1__attach_request__descriptor, {{0}}},
    [PSP_ATTACH_REPLY] = {"attach reply", 0, &embps__v1__attach_reply__descriptor, {{0}}},
    [PSP_TOUCHES] = {"touches",
                     PSP_TOUCHES_REPLY,
                     &embps__v1__touches_request__descriptor,
                     {{15, 8}}},
    [PSP_TOUCHES_REPLY] = {"touches reply", 0, &embps__v1__touches_reply__descriptor, {{0}}},
    [PSP_FIND_TABLE] = {"find table",
                        PSP_FIND_TABLE_REPLY,
                        &embps__v1__find_table_request__descriptor,
                        {{0}}},
    [PSP_FIND_TABLE_REPLY] = {"find table reply",
                              0,
                              &embps__v1__find_table_reply__descriptor,
                              {{0}}},
    [PSP_EXPORT] = {"export", PSP_EXPORT_REPLY, &embps__v1__export_request__descriptor, {{0}}},
    [PSP_EXPORT_REPLY] = {"export reply",
                          0,
                          &embps__v1__export_reply__descriptor,
                          {{14, 8}, {15, 0}, {9, 4}, {10, 0}}},
    [PSP_IMPORT] = {"import",
                    PSP_IMPORT_REPLY,
                    &embps__v1__import_request__descriptor,
                    {{14, 8}, {15, 0}, {9, 4}, {10, 0}}},
    [PSP_WATCH] = {"watch", PSP_WATCH_REPLY, &embps__v1__watch_request__descriptor, {{0}}},
    [PSP_WATCH_REPLY] = {"watch reply", 0, &embps__v1__watch_reply__descriptor, {{14, 8}, {15, 0}}},
    [PSP_IMPORT_REPLY] = {"import reply", 0, &embps__v1__import_reply__descriptor, {{0}}},
    [PSP_CHECKPOINT] = {"checkpoint",
                        PSP_CHECKPOINT_REPLY,
                        &embps__v1__checkpoint_request__descriptor,
                        {{15, 0}}},
    [PSP_CHECKPOINT_REPLY] = {"checkpoint reply",
                              0,
                              &embps__v1__checkpoint_reply__descriptor,
                              {{15, 0}}},
};

const psp_kind_info_t *psp_kind_info(uint32_t kind)
{
    if (kind >= sizeof kinds / sizeof kinds[0] || kinds[kind].name == NULL)
        return NULL;
    return &kinds[kind];
}

const char *psp_kind_name(uint32_t kind)
{
    const psp_kind_info_t *info = psp_kind_info(kind);
    return info != NULL ? info->name : "unknown";
}

static const char *const precisions[PSP_PRECISIONS] = {
    [PSP_F32] = "f32",
    [PSP_BF16] = "bf16",
    [PSP_F16] = "f16",
};

const char *psp_precision_name(psp_precision_t precision)
{
    return (uint32_t)precision < PSP_PRECISIONS ? precisions[precision] : "unknown";
}

bool psp_precision_find(const char *name, psp_precision_t *precision_out)
{
    for (uint32_t i = 0; i < PSP_PRECISIONS; i++) {
        if (strcmp(precisions[i], name) == 0) {
            *precision_out = (psp_precision_t)i;
            return true;
        }
    }
    return false;
}

uint32_t psp_reply_kind(uint32_t kind)
{
    const psp_kind_info_t *info = psp_kind_info(kind);
    return info != NULL ? info->reply : 0;
}

/* Rows of dim values and so many bytes beside them. */
static size_t rows_that_fit(uint32_t dim, size_t extra_bytes, size_t max_message_bytes)
{
    size_t row_bytes = psp_row_bytes(PSP_FORMAT_F32, dim);
    size_t of_int8 = psp_row_bytes(PSP_FORMAT_INT8, dim); /* more, for a single number */
    row_bytes = (row_bytes > of_int8 ? row_bytes : of_int8) + extra_bytes;
    size_t rows = max_message_bytes > SMALL_FIELDS_BYTES
                      ? (max_message_bytes - SMALL_FIELDS_BYTES) / row_bytes
                      : 0;
    return rows != 0 ? rows : 1;
}

size_t psp_rows_per_message(uint32_t dim, size_t max_message_bytes)
{
    return rows_that_fit(dim, ROW_EXTRA_BYTES, max_message_bytes);
}

size_t psp_rows_per_block(uint32_t dim, uint32_t state_floats, size_t max_message_bytes)
{
    return rows_that_fit(dim, BLOCK_EXTRA_BYTES + state_floats * sizeof(float), max_message_bytes);
}
