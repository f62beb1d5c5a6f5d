/*
 * Plain structs to bytes.
 *
 * Small fields are packed by protobuf-c straight into the buffer. Bulk fields follow, tag and
 * length written by hand and their bytes left for the caller (or copied), so that a gather writes
 * rows where they will be sent from. All their tags are one byte (field numbers up to 15). An empty
 * bulk field is left out, as proto3 does.
 *
 * The last bulk field, of number 15, begins at a multiple of 64 bytes, since receivers use rows
 * where they lie: one that is not aligned is copied by a server before its floats are used, and
 * copied more slowly by everybody. What is missing is filled up by field 13, which no schema has
 * and every reader skips.
 *
 * Where a pool's messages may be sealed, room for that stands first (seal.h).
 *
 * Nothing is allocated but the buffer. Any thread.
 */
#include "proto/message.h"

#include "common/alloc.h"
#include "common/slots.h"
#include "proto/embps.pb-c.h"
#include "proto/message_kinds.h"
#include "proto/pack_inside.h"
#include "proto/seal.h"
#include "proto/wire_walk.h"

/* protobuf's own limit of a message. */
#define WIRE_BYTES_MAX ((size_t)INT32_MAX)

#define ALIGNED_FIELD 15u
#define ALIGNMENT ((size_t)64) /* as that of a buffer's data */
#define PADDING_FIELD 13u

#define TAG_BYTES(number) ((uint8_t)((number) << 3 | PSP_WIRE_BYTES))

/* Bytes of padding before the tag of a bulk field at offset `at` of the message: 0, or at least the
 * two of an empty field. */
static size_t padding_before(const psp_bulk_t *bulk, size_t at)
{
    if (bulk->number != ALIGNED_FIELD)
        return 0;
    size_t missing = ALIGNMENT - 1 - (at + psp_varint_size(bulk->size)) % ALIGNMENT;
    return missing != 1 ? missing : ALIGNMENT + 1;
}

static uint8_t *write_padding(uint8_t *out, size_t size)
{
    if (size == 0)
        return out;
    *out++ = TAG_BYTES(PADDING_FIELD);
    *out++ = (uint8_t)(size - 2); /* one byte: below 128 */
    memset(out, 0, size - 2);
    return out + (size - 2);
}

psc_status_t psp_pack(psp_pool_t *pool, psp_kind_t kind, const ProtobufCMessage *small,
                      const psp_bulk_t *bulk, size_t n_bulk, psp_buffer_t **buffer_out,
                      psc_error_t *error)
{
    const size_t seal_bytes = psp_pool_seals(pool) ? PSP_SEAL_BYTES : 0;
    const size_t small_bytes = seal_bytes + protobuf_c_message_get_packed_size(small);
    size_t size = small_bytes;
    for (size_t i = 0; i < n_bulk; i++) {
        if (size > WIRE_BYTES_MAX || bulk[i].size > WIRE_BYTES_MAX - size)
            return psc_error_set(error, PSC_INVALID_ARGUMENT,
                                 "a %s message is too large: split the batch", psp_kind_name(kind));
        if (bulk[i].size != 0)
            size +=
                padding_before(&bulk[i], size) + 1 + psp_varint_size(bulk[i].size) + bulk[i].size;
    }
    psp_buffer_t *buffer;
    psc_status_t st = psp_buffer_get(pool, size, &buffer, error);
    if (st != PSC_OK)
        return st;
    if (seal_bytes != 0)
        psp_seal_leave_room(buffer->data);
    (void)protobuf_c_message_pack(small, buffer->data + seal_bytes);
    uint8_t *out = buffer->data + small_bytes;
    for (size_t i = 0; i < n_bulk; i++) {
        if (bulk[i].size != 0) {
            out = write_padding(out, padding_before(&bulk[i], (size_t)(out - buffer->data)));
            *out++ = TAG_BYTES(bulk[i].number);
            out = psp_varint_write(out, bulk[i].size);
            if (bulk[i].copy != NULL)
                memcpy(out, bulk[i].copy, bulk[i].size);
        }
        if (bulk[i].place_out != NULL)
            *bulk[i].place_out = out;
        out += bulk[i].size;
    }
    buffer->kind = kind;
    buffer->size = size;
    *buffer_out = buffer;
    return PSC_OK;
}

Embps__V1__RequestHeader psp_pack_request_header(const psp_request_header_t *from)
{
    Embps__V1__RequestHeader to = EMBPS__V1__REQUEST_HEADER__INIT;
    to.protocol = from->protocol;
    to.cluster = from->cluster;
    to.map_epoch = from->map_epoch;
    to.session = from->session;
    to.sequence = from->sequence;
    to.lowest_unacked = from->lowest_unacked;
    to.request = from->request;
    to.clock = from->clock;
    to.deadline_ms = from->deadline_ms;
    to.part = from->part;
    to.n_parts = from->n_parts;
    to.parts = (uint64_t *)(uintptr_t)from->parts;
    return to;
}

Embps__V1__ReplyHeader psp_pack_reply_header(const psp_reply_header_t *from)
{
    Embps__V1__ReplyHeader to = EMBPS__V1__REPLY_HEADER__INIT;
    to.request = from->request;
    to.map_epoch = from->map_epoch;
    to.least_clock = from->least_clock;
    if (from->error.code != PSC_OK) {
        to.status = from->error.code;
        to.message = (char *)from->error.message;
        to.error_rank = from->error.rank;
        to.error_id = from->error.id;
    }
    return to;
}

static psc_status_t pack_small(psp_pool_t *pool, psp_kind_t kind, const ProtobufCMessage *small,
                               psp_buffer_t **buffer_out, psc_error_t *error)
{
    return psp_pack(pool, kind, small, NULL, 0, buffer_out, error);
}

static psc_status_t check_dim(psp_kind_t kind, uint32_t dim, psc_error_t *error)
{
    if (dim >= 1 && dim <= PSP_DIM_MAX)
        return PSC_OK;
    return psc_error_set(error, PSC_INVALID_ARGUMENT, "%s: dim %u is not in 1 to %u",
                         psp_kind_name(kind), dim, PSP_DIM_MAX);
}

psc_status_t psp_pack_check_format(psp_kind_t kind, psp_format_t format, psc_error_t *error)
{
    if ((uint32_t)format < PSP_FORMATS)
        return PSC_OK;
    return psc_error_set(error, PSC_INVALID_ARGUMENT, "%s: format %u is not in 0 to %u",
                         psp_kind_name(kind), (uint32_t)format, PSP_FORMATS - 1);
}

psc_status_t psp_pack_check_rows(psp_kind_t kind, uint32_t dim, psp_format_t format,
                                 psc_error_t *error)
{
    psc_status_t st = check_dim(kind, dim, error);
    return st == PSC_OK ? psp_pack_check_format(kind, format, error) : st;
}

size_t psp_bulk_bytes(size_t n, size_t size)
{
    size_t bytes;
    return psc_size_multiply(n, size, &bytes) ? bytes : SIZE_MAX;
}

static psc_status_t pack_pull(psp_pool_t *pool, const psp_request_header_t *header,
                              const psp_pull_t *pull, const void *copy, psp_buffer_t **buffer_out,
                              uint8_t **ids_out, psc_error_t *error)
{
    psc_status_t st = psp_pack_check_format(PSP_PULL, pull->format, error);
    if (st != PSC_OK)
        return st;
    Embps__V1__RequestHeader head = psp_pack_request_header(header);
    Embps__V1__PullRequest to = EMBPS__V1__PULL_REQUEST__INIT;
    to.header = &head;
    to.table = pull->table;
    to.table_epoch = pull->table_epoch;
    to.staleness = pull->staleness;
    to.want_versions = pull->want_versions;
    to.scan = pull->scan;
    to.want_places = pull->want_places;
    to.format = (Embps__V1__WireFormat)pull->format;
    const psp_bulk_t bulk[] = {
        {8, pull->versions != NULL ? psp_bulk_bytes(pull->n, sizeof(uint32_t)) : 0, pull->versions,
         NULL},
        {15, psp_bulk_bytes(pull->n, sizeof(uint64_t)), copy, ids_out},
    };
    return psp_pack(pool, PSP_PULL, &to.base, bulk, 2, buffer_out, error);
}

psc_status_t psp_pull_begin(psp_pool_t *pool, const psp_request_header_t *header,
                            const psp_pull_t *pull, psp_buffer_t **buffer_out, uint8_t **ids_out,
                            psc_error_t *error)
{
    return pack_pull(pool, header, pull, NULL, buffer_out, ids_out, error);
}

static psc_status_t pack_prefetch(psp_pool_t *pool, const psp_request_header_t *header,
                                  const psp_prefetch_t *prefetch, const void *copy,
                                  psp_buffer_t **buffer_out, uint8_t **ids_out, psc_error_t *error)
{
    Embps__V1__RequestHeader head = psp_pack_request_header(header);
    Embps__V1__PrefetchRequest to = EMBPS__V1__PREFETCH_REQUEST__INIT;
    to.header = &head;
    to.table = prefetch->table;
    to.table_epoch = prefetch->table_epoch;
    to.when = prefetch->when;
    psp_bulk_t ids = {15, psp_bulk_bytes(prefetch->n, sizeof(uint64_t)), copy, ids_out};
    return psp_pack(pool, PSP_PREFETCH, &to.base, &ids, 1, buffer_out, error);
}

psc_status_t psp_prefetch_begin(psp_pool_t *pool, const psp_request_header_t *header,
                                const psp_prefetch_t *prefetch, psp_buffer_t **buffer_out,
                                uint8_t **ids_out, psc_error_t *error)
{
    return pack_prefetch(pool, header, prefetch, NULL, buffer_out, ids_out, error);
}

psc_status_t psp_push_begin(psp_pool_t *pool, const psp_request_header_t *header,
                            const psp_push_t *push, psp_buffer_t **buffer_out, uint8_t **ids_out,
                            uint8_t **rows_out, psc_error_t *error)
{
    psc_status_t st = psp_pack_check_rows(PSP_PUSH, push->dim, push->format, error);
    if (st == PSC_OK)
        st = psp_pack_check_format(PSP_PUSH, push->reply_format, error);
    if (st != PSC_OK)
        return st;
    Embps__V1__RequestHeader head = psp_pack_request_header(header);
    Embps__V1__PushRequest to = EMBPS__V1__PUSH_REQUEST__INIT;
    to.header = &head;
    to.table = push->table;
    to.table_epoch = push->table_epoch;
    to.kind = (Embps__V1__PushKind)push->kind;
    to.learning_rate = push->learning_rate;
    to.dim = push->dim;
    to.step = push->step;
    to.format = (Embps__V1__WireFormat)push->format;
    to.reply_format = (Embps__V1__WireFormat)push->reply_format;
    to.want_rows = push->want_rows;
    to.synchronous = push->synchronous;
    const psp_bulk_t bulk[] = {
        {14, psp_bulk_bytes(push->n, sizeof(uint64_t)), NULL, ids_out},
        {15, psp_bulk_bytes(push->n, psp_row_bytes(push->format, push->dim)), NULL, rows_out},
    };
    return psp_pack(pool, PSP_PUSH, &to.base, bulk, 2, buffer_out, error);
}

psc_status_t psp_pull_reply_begin(psp_pool_t *pool, const psp_reply_header_t *header,
                                  const psp_pull_reply_t *reply, psp_buffer_t **buffer_out,
                                  uint8_t **rows_out, psc_error_t *error)
{
    const size_t n = reply->n;
    psc_status_t st = psp_pack_check_rows(PSP_PULL_REPLY, reply->dim, reply->format, error);
    if (st != PSC_OK)
        return st;
    Embps__V1__ReplyHeader head = psp_pack_reply_header(header);
    Embps__V1__PullReply to = EMBPS__V1__PULL_REPLY__INIT;
    to.header = &head;
    to.dim = reply->dim;
    to.format = (Embps__V1__WireFormat)reply->format;
    size_t n_values = n;
    for (size_t i = 0; reply->states != NULL && i < n; i++)
        n_values -= !psp_row_has_value(reply->states[i]);
    const psp_bulk_t bulk[] = {
        {3, reply->versions != NULL ? psp_bulk_bytes(n, sizeof(uint32_t)) : 0, reply->versions,
         NULL},
        {4, reply->states != NULL ? n : 0, reply->states, NULL},
        {7, reply->places != NULL ? psp_bulk_bytes(n + 1, sizeof(uint32_t)) : 0, reply->places,
         NULL},
        {15, psp_bulk_bytes(n_values, psp_row_bytes(reply->format, reply->dim)), NULL, rows_out},
    };
    return psp_pack(pool, PSP_PULL_REPLY, &to.base, bulk, 4, buffer_out, error);
}

psc_status_t psp_push_reply_begin(psp_pool_t *pool, const psp_reply_header_t *header,
                                  const psp_push_reply_t *reply, psp_buffer_t **buffer_out,
                                  uint8_t **rows_out, psc_error_t *error)
{
    psc_status_t st = psp_pack_check_rows(PSP_PUSH_REPLY, reply->dim, reply->format, error);
    if (st != PSC_OK)
        return st;
    Embps__V1__ReplyHeader head = psp_pack_reply_header(header);
    Embps__V1__PushReply to = EMBPS__V1__PUSH_REPLY__INIT;
    to.header = &head;
    to.dim = reply->dim;
    to.format = (Embps__V1__WireFormat)reply->format;
    const psp_bulk_t bulk[] = {
        {3, psp_bulk_bytes(reply->n, sizeof(uint32_t)), reply->versions, NULL},
        {15, psp_bulk_bytes(reply->n, psp_row_bytes(reply->format, reply->dim)), NULL, rows_out},
    };
    return psp_pack(pool, PSP_PUSH_REPLY, &to.base, bulk, 2, buffer_out, error);
}

psc_status_t psp_reply_pack(psp_pool_t *pool, psp_kind_t reply_kind,
                            const psp_reply_header_t *header, psp_buffer_t **buffer_out,
                            psc_error_t *error)
{
    /* Field 1 is the header in every reply, so the plainest reply stands for all. */
    Embps__V1__ReplyHeader head = psp_pack_reply_header(header);
    Embps__V1__PushReply to = EMBPS__V1__PUSH_REPLY__INIT;
    to.header = &head;
    return pack_small(pool, reply_kind, &to.base, buffer_out, error);
}

static psc_status_t check_name(const char *what, const char *name, size_t room, psc_error_t *error)
{
    size_t length = strnlen(name, room);
    if (length >= 1 && length <= PSP_NAME_MAX)
        return PSC_OK;
    return psc_error_set(error, PSC_INVALID_ARGUMENT, "%s has no name, or one of over %u bytes",
                         what, PSP_NAME_MAX);
}

static psc_status_t pack_hello(psp_pool_t *pool, const psp_message_t *message,
                               psp_buffer_t **buffer_out, psc_error_t *error)
{
    Embps__V1__RequestHeader head = psp_pack_request_header(&message->request);
    Embps__V1__HelloRequest to = EMBPS__V1__HELLO_REQUEST__INIT;
    to.header = &head;
    to.worker = message->u.hello.worker;
    to.n_workers = message->u.hello.n_workers;
    to.client = message->u.hello.client;
    to.n_former_sessions = message->u.hello.n_former;
    to.former_sessions = (uint64_t *)(uintptr_t)message->u.hello.former;
    return pack_small(pool, PSP_HELLO, &to.base, buffer_out, error);
}

static psc_status_t pack_hello_reply(psp_pool_t *pool, const psp_message_t *message,
                                     psp_buffer_t **buffer_out, psc_error_t *error)
{
    const psp_hello_reply_t *from = &message->u.hello_reply;
    Embps__V1__ReplyHeader head = psp_pack_reply_header(&message->reply);
    Embps__V1__HelloReply to = EMBPS__V1__HELLO_REPLY__INIT;
    to.header = &head;
    to.cluster = from->cluster;
    to.session = from->session;
    to.server = from->server;
    to.n_servers = from->n_servers;
    to.map_epoch = from->map_epoch;
    to.max_message_bytes = from->max_message_bytes;
    if (memchr(from->host, '\0', sizeof from->host) == NULL)
        return psc_error_set(error, PSC_INVALID_ARGUMENT, "a host's name of over %u bytes",
                             PSP_NAME_MAX);
    to.host = (char *)from->host;
    to.window_bytes = from->window_bytes;
    to.lease_ms = from->lease_ms;
    for (size_t i = 0; i < from->n_addresses; i++) {
        psc_status_t st = check_name("a server's address", from->addresses[i], SIZE_MAX, error);
        if (st != PSC_OK)
            return st;
    }
    to.n_addresses = from->n_addresses;
    to.addresses = (char **)from->addresses;
    to.n_former_counted = from->n_counted;
    to.former_counted = (uint64_t *)(uintptr_t)from->counted;
    to.clock = from->clock;
    if (memchr(from->resumed, '\0', sizeof from->resumed) == NULL)
        return psc_error_set(error, PSC_INVALID_ARGUMENT, "a checkpoint's name of over %u bytes",
                             PSP_CHECKPOINT_NAME_MAX);
    to.resumed = (char *)from->resumed;
    size_t owners_bytes = from->slot_owners != NULL ? PSC_SLOT_COUNT * sizeof(uint16_t) : 0;
    psp_bulk_t owners = {7, owners_bytes, from->slot_owners, NULL};
    return psp_pack(pool, PSP_HELLO_REPLY, &to.base, &owners, 1, buffer_out, error);
}

/* A table's options, without a header. *to borrows from. */
static psc_status_t fill_open_table(const psp_open_table_t *from, Embps__V1__OpenTableRequest *to,
                                    psc_error_t *error)
{
    psc_status_t st = check_dim(PSP_OPEN_TABLE, from->dim, error);
    if (st == PSC_OK)
        st = check_name("a table", from->name, sizeof from->name, error);
    if (st == PSC_OK)
        st = check_name("an initialiser", from->init, sizeof from->init, error);
    if (st == PSC_OK)
        st = check_name("an optimizer", from->optimizer, sizeof from->optimizer, error);
    if (st != PSC_OK)
        return st;
    if (from->n_init_params > PSP_PARAMS_MAX || from->n_optimizer_params > PSP_PARAMS_MAX)
        return psc_error_set(error, PSC_INVALID_ARGUMENT, "table %s: more than %u parameters",
                             from->name, PSP_PARAMS_MAX);
    if ((uint32_t)from->precision >= PSP_PRECISIONS ||
        (uint32_t)from->state_precision >= PSP_PRECISIONS)
        return psc_error_set(error, PSC_INVALID_ARGUMENT, "table %s: an unknown precision",
                             from->name);
    embps__v1__open_table_request__init(to);
    to->name = (char *)from->name;
    to->init = (char *)from->init;
    to->n_init_params = from->n_init_params;
    to->init_params = (double *)from->init_params;
    to->optimizer = (char *)from->optimizer;
    to->n_optimizer_params = from->n_optimizer_params;
    to->optimizer_params = (double *)from->optimizer_params;
    to->table = from->table;
    to->precision = (Embps__V1__Precision)from->precision;
    to->state_precision = (Embps__V1__Precision)from->state_precision;
#define COPY(option) to->option = from->option;
    PSP_TABLE_WHOLE_OPTIONS(COPY)
    PSP_TABLE_REAL_OPTIONS(COPY)
#undef COPY
    return PSC_OK;
}

static psc_status_t pack_open_table(psp_pool_t *pool, const psp_message_t *message,
                                    psp_buffer_t **buffer_out, psc_error_t *error)
{
    Embps__V1__RequestHeader head = psp_pack_request_header(&message->request);
    Embps__V1__OpenTableRequest to;
    psc_status_t st = fill_open_table(&message->u.open_table, &to, error);
    if (st != PSC_OK)
        return st;
    to.header = &head;
    return pack_small(pool, PSP_OPEN_TABLE, &to.base, buffer_out, error);
}

static psc_status_t pack_find_table(psp_pool_t *pool, const psp_message_t *message,
                                    psp_buffer_t **buffer_out, psc_error_t *error)
{
    const psp_find_table_t *from = &message->u.find_table;
    Embps__V1__RequestHeader head = psp_pack_request_header(&message->request);
    Embps__V1__FindTableRequest to = EMBPS__V1__FIND_TABLE_REQUEST__INIT;
    if (memchr(from->name, '\0', sizeof from->name) == NULL)
        return psc_error_set(error, PSC_INVALID_ARGUMENT, "a table's name has no end");
    to.header = &head;
    to.name = (char *)from->name;
    to.after = from->after;
    return pack_small(pool, PSP_FIND_TABLE, &to.base, buffer_out, error);
}

static psc_status_t pack_find_table_reply(psp_pool_t *pool, const psp_message_t *message,
                                          psp_buffer_t **buffer_out, psc_error_t *error)
{
    const psp_find_table_reply_t *from = &message->u.find_table_reply;
    Embps__V1__ReplyHeader head = psp_pack_reply_header(&message->reply);
    Embps__V1__FindTableReply to = EMBPS__V1__FIND_TABLE_REPLY__INIT;
    Embps__V1__OpenTableRequest options;
    if (from->found) {
        psc_status_t st = fill_open_table(&from->options, &options, error);
        if (st != PSC_OK)
            return st;
        to.options = &options;
    }
    to.header = &head;
    to.rows_created = from->rows_created;
    return pack_small(pool, PSP_FIND_TABLE_REPLY, &to.base, buffer_out, error);
}

static psc_status_t pack_open_table_reply(psp_pool_t *pool, const psp_message_t *message,
                                          psp_buffer_t **buffer_out, psc_error_t *error)
{
    Embps__V1__ReplyHeader head = psp_pack_reply_header(&message->reply);
    Embps__V1__OpenTableReply to = EMBPS__V1__OPEN_TABLE_REPLY__INIT;
    to.header = &head;
    to.table = message->u.open_table_reply.table;
    to.table_epoch = message->u.open_table_reply.table_epoch;
    to.max_rows = message->u.open_table_reply.max_rows;
    return pack_small(pool, PSP_OPEN_TABLE_REPLY, &to.base, buffer_out, error);
}

static psc_status_t pack_clock(psp_pool_t *pool, const psp_message_t *message,
                               psp_buffer_t **buffer_out, psc_error_t *error)
{
    Embps__V1__RequestHeader head = psp_pack_request_header(&message->request);
    Embps__V1__ClockRequest to = EMBPS__V1__CLOCK_REQUEST__INIT;
    to.header = &head;
    to.progress = message->u.clock.progress;
    to.pushes = message->u.clock.pushed.pushes;
    to.rows = message->u.clock.pushed.rows;
    return pack_small(pool, PSP_CLOCK, &to.base, buffer_out, error);
}

static psc_status_t pack_clock_reply(psp_pool_t *pool, const psp_message_t *message,
                                     psp_buffer_t **buffer_out, psc_error_t *error)
{
    Embps__V1__ReplyHeader head = psp_pack_reply_header(&message->reply);
    Embps__V1__ClockReply to = EMBPS__V1__CLOCK_REPLY__INIT;
    to.header = &head;
    to.min_clock = message->u.clock_reply.min_clock;
    to.total_progress = message->u.clock_reply.total_progress;
    to.first = message->u.clock_reply.first;
    to.n_lost = message->u.clock_reply.n_lost;
    return pack_small(pool, PSP_CLOCK_REPLY, &to.base, buffer_out, error);
}

static psc_status_t pack_barrier(psp_pool_t *pool, const psp_message_t *message,
                                 psp_buffer_t **buffer_out, psc_error_t *error)
{
    Embps__V1__RequestHeader head = psp_pack_request_header(&message->request);
    Embps__V1__BarrierRequest to = EMBPS__V1__BARRIER_REQUEST__INIT;
    to.header = &head;
    to.generation = message->u.barrier.generation;
    return pack_small(pool, PSP_BARRIER, &to.base, buffer_out, error);
}

static psc_status_t pack_barrier_reply(psp_pool_t *pool, const psp_message_t *message,
                                       psp_buffer_t **buffer_out, psc_error_t *error)
{
    Embps__V1__ReplyHeader head = psp_pack_reply_header(&message->reply);
    Embps__V1__BarrierReply to = EMBPS__V1__BARRIER_REPLY__INIT;
    to.header = &head;
    to.first = message->u.barrier_reply.first;
    to.n_lost = message->u.barrier_reply.n_lost;
    return pack_small(pool, PSP_BARRIER_REPLY, &to.base, buffer_out, error);
}

static psc_status_t pack_stats(psp_pool_t *pool, const psp_message_t *message,
                               psp_buffer_t **buffer_out, psc_error_t *error)
{
    Embps__V1__RequestHeader head = psp_pack_request_header(&message->request);
    Embps__V1__StatsRequest to = EMBPS__V1__STATS_REQUEST__INIT;
    to.header = &head;
    return pack_small(pool, PSP_STATS, &to.base, buffer_out, error);
}

static psc_status_t pack_stats_reply(psp_pool_t *pool, const psp_message_t *message,
                                     psp_buffer_t **buffer_out, psc_error_t *error)
{
    const psp_stats_reply_t *from = &message->u.stats_reply;
    if (from->n > PSP_COUNTERS_MAX)
        return psc_error_set(error, PSC_INVALID_ARGUMENT, "%zu counters are more than %u", from->n,
                             PSP_COUNTERS_MAX);
    Embps__V1__Counter counters[PSP_COUNTERS_MAX];
    Embps__V1__Counter *pointers[PSP_COUNTERS_MAX];
    for (size_t i = 0; i < from->n; i++) {
        psc_status_t st = check_name("a counter", from->counters[i].name, PSP_NAME_MAX + 1, error);
        if (st != PSC_OK)
            return st;
        embps__v1__counter__init(&counters[i]);
        counters[i].name = (char *)from->counters[i].name;
        counters[i].value = from->counters[i].value;
        pointers[i] = &counters[i];
    }
    Embps__V1__ReplyHeader head = psp_pack_reply_header(&message->reply);
    Embps__V1__StatsReply to = EMBPS__V1__STATS_REPLY__INIT;
    to.header = &head;
    to.n_counters = from->n;
    to.counters = pointers;
    return pack_small(pool, PSP_STATS_REPLY, &to.base, buffer_out, error);
}

static psc_status_t pack_goodbye(psp_pool_t *pool, const psp_message_t *message,
                                 psp_buffer_t **buffer_out, psc_error_t *error)
{
    Embps__V1__RequestHeader head = psp_pack_request_header(&message->request);
    Embps__V1__GoodbyeRequest to = EMBPS__V1__GOODBYE_REQUEST__INIT;
    to.header = &head;
    to.status = message->u.goodbye.status;
    return pack_small(pool, PSP_GOODBYE, &to.base, buffer_out, error);
}

static psc_status_t pack_attach(psp_pool_t *pool, const psp_message_t *message,
                                psp_buffer_t **buffer_out, psc_error_t *error)
{
    Embps__V1__RequestHeader head = psp_pack_request_header(&message->request);
    Embps__V1__AttachRequest to = EMBPS__V1__ATTACH_REQUEST__INIT;
    to.header = &head;
    to.host = message->u.attach.host;
    return pack_small(pool, PSP_ATTACH, &to.base, buffer_out, error);
}

static psc_status_t pack_attach_reply(psp_pool_t *pool, const psp_message_t *message,
                                      psp_buffer_t **buffer_out, psc_error_t *error)
{
    const psp_attach_reply_t *from = &message->u.attach_reply;
    if (memchr(from->path, '\0', sizeof from->path) == NULL)
        return psc_error_set(error, PSC_INVALID_ARGUMENT, "a path of over %u bytes", PSP_PATH_MAX);
    Embps__V1__ReplyHeader head = psp_pack_reply_header(&message->reply);
    Embps__V1__AttachReply to = EMBPS__V1__ATTACH_REPLY__INIT;
    to.header = &head;
    to.path = (char *)from->path;
    to.key = from->key;
    return pack_small(pool, PSP_ATTACH_REPLY, &to.base, buffer_out, error);
}

static psc_status_t pack_touches(psp_pool_t *pool, const psp_message_t *message,
                                 psp_buffer_t **buffer_out, psc_error_t *error)
{
    const psp_touches_t *from = &message->u.touches;
    Embps__V1__RequestHeader head = psp_pack_request_header(&message->request);
    Embps__V1__TouchesRequest to = EMBPS__V1__TOUCHES_REQUEST__INIT;
    to.header = &head;
    to.table = from->table;
    to.table_epoch = from->table_epoch;
    psp_bulk_t ids = {15, psp_bulk_bytes(from->n, sizeof(uint64_t)), from->ids, NULL};
    return psp_pack(pool, PSP_TOUCHES, &to.base, &ids, 1, buffer_out, error);
}

psc_status_t psp_message_pack(psp_pool_t *pool, const psp_message_t *message,
                              psp_buffer_t **buffer_out, psc_error_t *error)
{
    const psp_kind_info_t *info = psp_kind_info(message->kind);
    if (info != NULL && info->reply == 0 && message->reply.error.code != PSC_OK)
        return psp_reply_pack(pool, message->kind, &message->reply, buffer_out, error);
    switch (message->kind) {
    case PSP_HELLO:
        return pack_hello(pool, message, buffer_out, error);
    case PSP_HELLO_REPLY:
        return pack_hello_reply(pool, message, buffer_out, error);
    case PSP_OPEN_TABLE:
        return pack_open_table(pool, message, buffer_out, error);
    case PSP_OPEN_TABLE_REPLY:
        return pack_open_table_reply(pool, message, buffer_out, error);
    case PSP_FIND_TABLE:
        return pack_find_table(pool, message, buffer_out, error);
    case PSP_FIND_TABLE_REPLY:
        return pack_find_table_reply(pool, message, buffer_out, error);
    case PSP_PULL:
        return pack_pull(pool, &message->request, &message->u.pull, message->u.pull.ids, buffer_out,
                         NULL, error);
    case PSP_PREFETCH:
        return pack_prefetch(pool, &message->request, &message->u.prefetch, message->u.prefetch.ids,
                             buffer_out, NULL, error);
    case PSP_ATTACH:
        return pack_attach(pool, message, buffer_out, error);
    case PSP_ATTACH_REPLY:
        return pack_attach_reply(pool, message, buffer_out, error);
    case PSP_TOUCHES:
        return pack_touches(pool, message, buffer_out, error);
    case PSP_CHECKPOINT:
        return psp_pack_checkpoint(pool, message, buffer_out, error);
    case PSP_CHECKPOINT_REPLY:
        return psp_pack_checkpoint_reply(pool, message, buffer_out, error);
    case PSP_CLOCK:
        return pack_clock(pool, message, buffer_out, error);
    case PSP_CLOCK_REPLY:
        return pack_clock_reply(pool, message, buffer_out, error);
    case PSP_BARRIER:
        return pack_barrier(pool, message, buffer_out, error);
    case PSP_BARRIER_REPLY:
        return pack_barrier_reply(pool, message, buffer_out, error);
    case PSP_STATS:
        return pack_stats(pool, message, buffer_out, error);
    case PSP_STATS_REPLY:
        return pack_stats_reply(pool, message, buffer_out, error);
    case PSP_GOODBYE:
        return pack_goodbye(pool, message, buffer_out, error);
    case PSP_PUSH_REPLY:
    case PSP_GOODBYE_REPLY:
    case PSP_PREFETCH_REPLY:
    case PSP_TOUCHES_REPLY:
        return psp_reply_pack(pool, message->kind, &message->reply, buffer_out, error);
    case PSP_EXPORT:
        return psp_pack_export(pool, message, buffer_out, error);
    case PSP_WATCH:
        return psp_pack_watch(pool, message, buffer_out, error);
    case PSP_IMPORT_REPLY:
        return psp_pack_import_reply(pool, message, buffer_out, error);
    case PSP_PULL_REPLY:
    case PSP_PUSH:
    case PSP_EXPORT_REPLY:
    case PSP_IMPORT:
    case PSP_WATCH_REPLY:
        break;
    }
    return psc_error_set(error, PSC_INVALID_ARGUMENT, "cannot pack a %s message here",
                         psp_kind_name(message->kind));
}
