/*
 * Bytes from a peer to plain structs; the only place where lengths are checked.
 *
 * Pass 1 walks the top-level fields and notes where the bulk fields lie and where the small ones. A
 * second pass copies only when something came in several pieces: numbers of a repeated bulk field
 * are joined in scratch memory, and so are small fields with something between them. Fields that
 * the schema does not know are left out. The small ones, at most SMALL_BYTES_MAX, go through
 * protobuf-c with the scratch as its allocator: hostile bytes meet a limit of length first (1 MiB
 * of empty submessages would take 52 MiB), then a limit of memory.
 *
 * Then a function per kind checks values and counts. After an error status the body of a reply
 * counts for nothing and is not looked at.
 *
 * Cost: one pass over fields, not over bytes; row states alone are looked at one by one. Nothing is
 * shared between calls but the caller's scratch.
 */
#include "proto/message.h"

#include "common/alloc.h"
#include "common/slots.h"
#include "proto/embps.pb-c.h"
#include "proto/message_kinds.h"
#include "proto/unpack_inside.h"
#include "proto/unpack_memory.h"
#include "proto/wire_walk.h"

#include <math.h>

/* A stats reply with PSP_COUNTERS_MAX names of PSP_NAME_MAX bytes takes 68 KiB. */
#define SMALL_BYTES_MAX ((size_t)80 << 10)

#define HEADER_FIELD 1u /* in every message */

psc_status_t psp_unpack_refuse(const psp_unpacker_t *u, const char *fault)
{
    return psc_error_set(u->error, PSC_PROTOCOL, "malformed %s message: %s", u->info->name, fault);
}

psc_status_t psp_unpack_refuse_number(const psp_unpacker_t *u, const char *what, uint64_t number)
{
    return psc_error_set(u->error, PSC_PROTOCOL, "malformed %s message: %s %llu is out of range",
                         u->info->name, what, (unsigned long long)number);
}

/* The message needs more scratch memory than there is. */
static psc_status_t refuse_memory(const psp_unpacker_t *u)
{
    return psc_error_set(u->error, PSC_PROTOCOL,
                         "malformed %s message: unpacking %zu bytes needs more than the %zu bytes "
                         "of memory that a message may take",
                         u->info->name, u->size, psp_scratch_limit(u->scratch));
}

static void add_piece(psp_run_t *run, const uint8_t *piece, size_t size)
{
    if (size == 0)
        return;
    if (run->size == 0)
        run->start = piece;
    else if (piece != run->end)
        run->scattered = true;
    run->end = piece + size;
    run->size += size;
}

/* The run that a bulk field belongs to and whether its pieces add up; NULL: a small field. */
static psp_run_t *bulk_run(psp_unpacker_t *u, uint32_t number, bool *repeated_out)
{
    for (size_t i = 0; i < PSP_BULK_MAX && u->info->bulk[i].number != 0; i++) {
        if (u->info->bulk[i].number == number) {
            *repeated_out = u->info->bulk[i].item_bytes != 0;
            return &u->bulk[i];
        }
    }
    return NULL;
}

/* Pass 1. */
static psc_status_t scan(psp_unpacker_t *u)
{
    bool has_header = false;
    psp_wire_t wire = {.next = u->data, .end = u->data + u->size};
    for (;;) {
        psp_field_t field;
        const char *fault = psp_wire_next(&wire, &field);
        if (fault != NULL)
            return psp_unpack_refuse(u, fault);
        if (field.number == 0)
            return PSC_OK;
        const ProtobufCFieldDescriptor *known =
            protobuf_c_message_descriptor_get_field(u->info->descriptor, field.number);
        if (known == NULL)
            continue;
        const char *name = known->name;
        fault = psp_wire_check(known, &field, &name);
        if (fault != NULL)
            return psc_error_set(u->error, PSC_PROTOCOL, "malformed %s message: field %s: %s",
                                 u->info->name, name, fault);
        if (field.number == HEADER_FIELD && has_header)
            return psp_unpack_refuse(u, "it has two headers"); /* protobuf-c would not merge them */
        has_header = has_header || field.number == HEADER_FIELD;
        bool repeated = false;
        psp_run_t *run = bulk_run(u, field.number, &repeated);
        if (run == NULL)
            add_piece(&u->small, field.start, (size_t)(wire.next - field.start));
        else if (repeated)
            add_piece(run, field.payload, field.size);
        else
            *run = (psp_run_t){.start = field.payload, .size = field.size};
    }
}

/* Turns a scattered run into scratch memory to be filled; *cursor_out stays NULL for others. */
static bool begin_join(psp_unpacker_t *u, psp_run_t *run, uint8_t **cursor_out)
{
    if (!run->scattered)
        return true;
    *cursor_out = psp_scratch_alloc(u->scratch, run->size);
    run->start = *cursor_out;
    return *cursor_out != NULL;
}

static void append(uint8_t **cursor, const uint8_t *piece, size_t size)
{
    if (*cursor != NULL && size != 0) {
        memcpy(*cursor, piece, size);
        *cursor += size;
    }
}

/* Pass 2, over bytes that pass 1 found well formed. */
static psc_status_t join(psp_unpacker_t *u)
{
    uint8_t *small_cursor = NULL;
    uint8_t *cursors[PSP_BULK_MAX] = {NULL};
    bool any = u->small.scattered;
    bool fits = begin_join(u, &u->small, &small_cursor);
    for (size_t i = 0; i < PSP_BULK_MAX; i++) {
        any = any || u->bulk[i].scattered;
        fits = fits && begin_join(u, &u->bulk[i], &cursors[i]);
    }
    if (!fits)
        return refuse_memory(u);
    psp_wire_t wire = {.next = u->data, .end = u->data + u->size};
    psp_field_t field;
    while (any && psp_wire_next(&wire, &field) == NULL && field.number != 0) {
        if (protobuf_c_message_descriptor_get_field(u->info->descriptor, field.number) == NULL)
            continue;
        bool repeated = false;
        const psp_run_t *run = bulk_run(u, field.number, &repeated);
        if (run == NULL)
            append(&small_cursor, field.start, (size_t)(wire.next - field.start));
        else
            append(&cursors[run - u->bulk], field.payload, field.size);
    }
    return PSC_OK;
}

static psc_status_t read_request_header(const psp_unpacker_t *u,
                                        const Embps__V1__RequestHeader *from,
                                        psp_request_header_t *to)
{
    if (from == NULL)
        return psp_unpack_refuse(u, "it has no header");
    if (from->protocol != PSP_PROTOCOL_VERSION)
        return psc_error_set(u->error, PSC_PROTOCOL,
                             "%s message of protocol version %u; this program speaks version %u: "
                             "use the same release of embps everywhere",
                             u->info->name, from->protocol, PSP_PROTOCOL_VERSION);
    if (from->n_parts > PSC_MAX_SERVERS)
        return psp_unpack_refuse_number(u, "number of parts", from->n_parts);
    *to = (psp_request_header_t){.protocol = from->protocol,
                                 .cluster = from->cluster,
                                 .map_epoch = from->map_epoch,
                                 .session = from->session,
                                 .sequence = from->sequence,
                                 .lowest_unacked = from->lowest_unacked,
                                 .request = from->request,
                                 .clock = from->clock,
                                 .deadline_ms = from->deadline_ms,
                                 .part = from->part,
                                 .n_parts = from->n_parts,
                                 .parts = from->parts};
    return PSC_OK;
}

static psc_status_t read_reply_header(const psp_unpacker_t *u, const Embps__V1__ReplyHeader *from,
                                      psp_reply_header_t *to)
{
    if (from == NULL)
        return psp_unpack_refuse(u, "it has no header");
    *to = (psp_reply_header_t){
        .request = from->request, .map_epoch = from->map_epoch, .least_clock = from->least_clock};
    to->error.rank = -1;
    if (from->status == PSC_OK)
        return PSC_OK;
    size_t length = strlen(from->message);
    if (length >= sizeof to->error.message)
        return psp_unpack_refuse(u, "its error message is too long");
    to->error.code = psc_status_from_number(from->status);
    to->error.rank = from->error_rank;
    to->error.id = from->error_id;
    memcpy(to->error.message, from->message, length + 1);
    return PSC_OK;
}

static psc_status_t read_name(const psp_unpacker_t *u, const char *what, const char *from,
                              char to[PSP_NAME_MAX + 1])
{
    size_t length = strlen(from);
    if (length == 0 || length > PSP_NAME_MAX)
        return psc_error_set(u->error, PSC_PROTOCOL,
                             "malformed %s message: %s has %zu bytes, not 1 to %u", u->info->name,
                             what, length, PSP_NAME_MAX);
    memcpy(to, from, length + 1);
    return PSC_OK;
}

static psc_status_t read_params(const psp_unpacker_t *u, const double *from, size_t n,
                                uint32_t *n_out, double to[PSP_PARAMS_MAX])
{
    if (n > PSP_PARAMS_MAX)
        return psp_unpack_refuse_number(u, "number of parameters", n);
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(from[i]))
            return psp_unpack_refuse(u, "a parameter is not finite");
        to[i] = from[i];
    }
    *n_out = (uint32_t)n;
    return PSC_OK;
}

static psc_status_t check_dim(const psp_unpacker_t *u, uint32_t dim)
{
    return dim == 0 || dim > PSP_DIM_MAX ? psp_unpack_refuse_number(u, "dim", dim) : PSC_OK;
}

static psc_status_t read_precision(const psp_unpacker_t *u, const char *what, uint32_t from,
                                   psp_precision_t *to)
{
    if (from >= PSP_PRECISIONS)
        return psp_unpack_refuse_number(u, what, from);
    *to = (psp_precision_t)from;
    return PSC_OK;
}

static psc_status_t read_open_table(const psp_unpacker_t *u,
                                    const Embps__V1__OpenTableRequest *from, psp_open_table_t *to)
{
    to->table = from->table;
    psc_status_t st = check_dim(u, from->dim);
    if (st == PSC_OK)
        st = read_precision(u, "precision", (uint32_t)from->precision, &to->precision);
    if (st == PSC_OK)
        st = read_precision(u, "state_precision", (uint32_t)from->state_precision,
                            &to->state_precision);
#define COPY(option) to->option = from->option;
#define COPY_FINITE(option)                                                                        \
    if (st == PSC_OK && !isfinite(from->option))                                                   \
        st = psp_unpack_refuse(u, #option " is not finite");                                       \
    to->option = from->option;
    PSP_TABLE_WHOLE_OPTIONS(COPY)
    PSP_TABLE_REAL_OPTIONS(COPY_FINITE)
#undef COPY_FINITE
#undef COPY
    if (st == PSC_OK)
        st = read_name(u, "name", from->name, to->name);
    if (st == PSC_OK)
        st = read_name(u, "init", from->init, to->init);
    if (st == PSC_OK)
        st = read_name(u, "optimizer", from->optimizer, to->optimizer);
    if (st == PSC_OK)
        st = read_params(u, from->init_params, from->n_init_params, &to->n_init_params,
                         to->init_params);
    if (st == PSC_OK)
        st = read_params(u, from->optimizer_params, from->n_optimizer_params,
                         &to->n_optimizer_params, to->optimizer_params);
    return st;
}

psc_status_t psp_unpack_format(const psp_unpacker_t *u, uint32_t from, psp_format_t *to)
{
    if (from >= PSP_FORMATS)
        return psp_unpack_refuse_number(u, "format", from);
    *to = (psp_format_t)from;
    return PSC_OK;
}

psc_status_t psp_unpack_rows(const psp_unpacker_t *u, uint32_t dim, uint32_t from, psp_format_t *to)
{
    psc_status_t st = check_dim(u, dim);
    return st == PSC_OK ? psp_unpack_format(u, from, to) : st;
}

bool psp_run_holds(const psp_run_t *run, size_t n, size_t item_bytes)
{
    size_t want;
    return psc_size_multiply(n, item_bytes, &want) && want == run->size;
}

static psc_status_t read_pull(const psp_unpacker_t *u, const Embps__V1__PullRequest *from,
                              psp_pull_t *to)
{
    const psp_run_t *versions = &u->bulk[1];
    const size_t n = u->bulk[0].size / sizeof(uint64_t);
    if (versions->size != 0 && versions->size / sizeof(uint32_t) != n)
        return psp_unpack_refuse(u, "it has not as many versions as ids");
    *to = (psp_pull_t){
        .table = from->table,
        .table_epoch = from->table_epoch,
        .staleness = from->staleness,
        .want_versions = from->want_versions != 0,
        .scan = from->scan != 0,
        .want_places = from->want_places != 0,
        .n = n,
        .ids = n != 0 ? u->bulk[0].start : u->data,
        .versions = versions->size != 0 ? versions->start : NULL,
    };
    return psp_unpack_format(u, (uint32_t)from->format, &to->format);
}

/* Also how many of n rows have a value. */
static psc_status_t check_states(const psp_unpacker_t *u, const uint8_t *states, size_t n,
                                 size_t *n_values_out)
{
    uint8_t highest = 0;
    size_t n_values = 0;
    for (size_t i = 0; i < n; i++) {
        highest = states[i] > highest ? states[i] : highest;
        n_values += psp_row_has_value(states[i]);
    }
    *n_values_out = n_values;
    return highest >= PSP_ROW_STATES ? psp_unpack_refuse_number(u, "row state", highest) : PSC_OK;
}

static psc_status_t read_pull_reply(const psp_unpacker_t *u, const Embps__V1__PullReply *from,
                                    psp_pull_reply_t *to)
{
    const psp_run_t *rows = &u->bulk[0];
    const psp_run_t *versions = &u->bulk[1];
    const psp_run_t *states = &u->bulk[2];
    const psp_run_t *places = &u->bulk[3];
    psp_format_t format = PSP_FORMAT_F32;
    psc_status_t st = psp_unpack_rows(u, from->dim, (uint32_t)from->format, &format);
    if (st != PSC_OK)
        return st;
    size_t row_bytes = psp_row_bytes(format, from->dim);
    if (rows->size % row_bytes != 0)
        return psp_unpack_refuse(u, "its rows are not a whole number of rows");
    size_t n_values = rows->size / row_bytes, n_told = n_values;
    size_t n = states->size != 0 ? states->size : n_values;
    if (states->size != 0)
        st = check_states(u, states->start, n, &n_told);
    if (st != PSC_OK)
        return st;
    if (n_told != n_values)
        return psp_unpack_refuse(u, "it has not as many rows as states with a value");
    if (versions->size != 0 && versions->size / sizeof(uint32_t) != n)
        return psp_unpack_refuse(u, "it has not as many versions as rows");
    if (places->size != 0 && places->size / sizeof(uint32_t) != n + 1)
        return psp_unpack_refuse(u, "it has not as many places as rows");
    *to = (psp_pull_reply_t){
        .dim = from->dim,
        .format = format,
        .n = n,
        .n_values = n_values,
        .versions = versions->size != 0 ? versions->start : NULL,
        .states = states->size != 0 ? states->start : NULL,
        .places = places->size != 0 ? places->start : NULL,
        .rows = rows->size != 0 ? rows->start : u->data,
    };
    return PSC_OK;
}

static void read_prefetch(const psp_unpacker_t *u, const Embps__V1__PrefetchRequest *from,
                          psp_prefetch_t *to)
{
    *to = (psp_prefetch_t){
        .table = from->table,
        .table_epoch = from->table_epoch,
        .when = from->when,
        .n = u->bulk[0].size / sizeof(uint64_t),
        .ids = u->bulk[0].size != 0 ? u->bulk[0].start : u->data,
    };
}

static psc_status_t read_push(const psp_unpacker_t *u, const Embps__V1__PushRequest *from,
                              psp_push_t *to)
{
    const psp_run_t *ids = &u->bulk[0];
    const psp_run_t *rows = &u->bulk[1];
    psp_format_t format = PSP_FORMAT_F32, reply_format = PSP_FORMAT_F32;
    psc_status_t st = psp_unpack_rows(u, from->dim, (uint32_t)from->format, &format);
    if (st == PSC_OK)
        st = psp_unpack_format(u, (uint32_t)from->reply_format, &reply_format);
    if (st != PSC_OK)
        return st;
    uint32_t kind = (uint32_t)from->kind;
    if (kind > PSP_PUSH_ASSIGN)
        return psp_unpack_refuse_number(u, "kind", kind);
    if (!isfinite(from->learning_rate))
        return psp_unpack_refuse(u, "its learning rate is not finite");
    size_t n = ids->size / sizeof(uint64_t);
    if (!psp_run_holds(rows, n, psp_row_bytes(format, from->dim)))
        return psc_error_set(u->error, PSC_PROTOCOL,
                             "malformed %s message: %zu ids of dim %u in %s, but %zu bytes of rows",
                             u->info->name, n, from->dim, psp_row_format(format)->name, rows->size);
    *to = (psp_push_t){
        .table = from->table,
        .table_epoch = from->table_epoch,
        .kind = (psp_push_kind_t)kind,
        .learning_rate = from->learning_rate,
        .dim = from->dim,
        .step = from->step,
        .format = format,
        .reply_format = reply_format,
        .want_rows = from->want_rows != 0,
        .synchronous = from->synchronous != 0,
        .n = n,
        .ids = n != 0 ? ids->start : u->data,
        .rows = n != 0 ? rows->start : u->data,
    };
    return PSC_OK;
}

static psc_status_t read_push_reply(const psp_unpacker_t *u, const Embps__V1__PushReply *from,
                                    psp_push_reply_t *to)
{
    const psp_run_t *rows = &u->bulk[0];
    const psp_run_t *versions = &u->bulk[1];
    const size_t n = versions->size / sizeof(uint32_t);
    *to = (psp_push_reply_t){.n = n, .versions = u->data, .rows = u->data};
    if (n == 0)
        return rows->size != 0 ? psp_unpack_refuse(u, "it has rows without versions") : PSC_OK;
    psc_status_t st = psp_unpack_rows(u, from->dim, (uint32_t)from->format, &to->format);
    if (st != PSC_OK)
        return st;
    if (!psp_run_holds(rows, n, psp_row_bytes(to->format, from->dim)))
        return psp_unpack_refuse(u, "it has not as many versions as rows");
    to->dim = from->dim;
    to->versions = versions->start;
    to->rows = rows->start;
    return PSC_OK;
}

static psp_clock_t read_clock(const Embps__V1__ClockRequest *from)
{
    return (psp_clock_t){.progress = from->progress,
                         .pushed = {.pushes = from->pushes, .rows = from->rows}};
}

static psc_status_t read_stats_reply(const psp_unpacker_t *u, const Embps__V1__StatsReply *from,
                                     psp_stats_reply_t *to)
{
    size_t n = from->n_counters;
    if (n > PSP_COUNTERS_MAX)
        return psp_unpack_refuse_number(u, "number of counters", n);
    psp_counter_t *counters = psp_scratch_alloc(u->scratch, n * sizeof *counters);
    if (counters == NULL)
        return refuse_memory(u);
    for (size_t i = 0; i < n; i++) {
        size_t length = strlen(from->counters[i]->name);
        if (length == 0 || length > PSP_NAME_MAX)
            return psp_unpack_refuse(u, "a counter's name is empty or too long");
        counters[i] = (psp_counter_t){
            .name = from->counters[i]->name,
            .value = from->counters[i]->value,
        };
    }
    *to = (psp_stats_reply_t){.n = n, .counters = counters};
    return PSC_OK;
}

static void read_open_table_reply(const Embps__V1__OpenTableReply *from, psp_open_table_reply_t *to)
{
    *to = (psp_open_table_reply_t){
        .table = from->table, .table_epoch = from->table_epoch, .max_rows = from->max_rows};
}

static psc_status_t read_find_table(const psp_unpacker_t *u,
                                    const Embps__V1__FindTableRequest *from, psp_find_table_t *to)
{
    size_t length = strlen(from->name);
    if (length > PSP_NAME_MAX)
        return psp_unpack_refuse_number(u, "length of name", length);
    *to = (psp_find_table_t){.after = from->after};
    memcpy(to->name, from->name, length + 1);
    return PSC_OK;
}

static psc_status_t read_find_table_reply(const psp_unpacker_t *u,
                                          const Embps__V1__FindTableReply *from,
                                          psp_find_table_reply_t *to)
{
    *to = (psp_find_table_reply_t){.found = from->options != NULL,
                                   .rows_created = from->rows_created};
    return to->found ? read_open_table(u, from->options, &to->options) : PSC_OK;
}

static psc_status_t read_attach_reply(const psp_unpacker_t *u, const Embps__V1__AttachReply *from,
                                      psp_attach_reply_t *to)
{
    size_t length = strlen(from->path);
    if (length > PSP_PATH_MAX)
        return psp_unpack_refuse_number(u, "length of path", length);
    *to = (psp_attach_reply_t){.key = from->key};
    memcpy(to->path, from->path, length + 1);
    return PSC_OK;
}

static void read_touches(const psp_unpacker_t *u, const Embps__V1__TouchesRequest *from,
                         psp_touches_t *to)
{
    *to = (psp_touches_t){
        .table = from->table,
        .table_epoch = from->table_epoch,
        .n = u->bulk[0].size / sizeof(uint64_t),
        .ids = u->bulk[0].size != 0 ? u->bulk[0].start : u->data,
    };
}

/* The body of a message whose header is fine. */
static psc_status_t read_body(const psp_unpacker_t *u, const void *from, psp_message_t *to)
{
    switch (to->kind) {
    case PSP_HELLO:
        return psp_unpack_hello(u, from, &to->u.hello);
    case PSP_HELLO_REPLY:
        return psp_unpack_hello_reply(u, from, &to->u.hello_reply);
    case PSP_OPEN_TABLE:
        return read_open_table(u, from, &to->u.open_table);
    case PSP_OPEN_TABLE_REPLY:
        read_open_table_reply(from, &to->u.open_table_reply);
        return PSC_OK;
    case PSP_FIND_TABLE:
        return read_find_table(u, from, &to->u.find_table);
    case PSP_FIND_TABLE_REPLY:
        return read_find_table_reply(u, from, &to->u.find_table_reply);
    case PSP_PULL:
        return read_pull(u, from, &to->u.pull);
    case PSP_PULL_REPLY:
        return read_pull_reply(u, from, &to->u.pull_reply);
    case PSP_PUSH:
        return read_push(u, from, &to->u.push);
    case PSP_CLOCK:
        to->u.clock = read_clock((const Embps__V1__ClockRequest *)from);
        return PSC_OK;
    case PSP_CLOCK_REPLY:
        to->u.clock_reply.min_clock = ((const Embps__V1__ClockReply *)from)->min_clock;
        to->u.clock_reply.total_progress = ((const Embps__V1__ClockReply *)from)->total_progress;
        to->u.clock_reply.first = ((const Embps__V1__ClockReply *)from)->first;
        to->u.clock_reply.n_lost = ((const Embps__V1__ClockReply *)from)->n_lost;
        return PSC_OK;
    case PSP_BARRIER:
        to->u.barrier.generation = ((const Embps__V1__BarrierRequest *)from)->generation;
        return PSC_OK;
    case PSP_STATS_REPLY:
        return read_stats_reply(u, from, &to->u.stats_reply);
    case PSP_GOODBYE:
        to->u.goodbye.status = ((const Embps__V1__GoodbyeRequest *)from)->status;
        return PSC_OK;
    case PSP_PREFETCH:
        read_prefetch(u, from, &to->u.prefetch);
        return PSC_OK;
    case PSP_PUSH_REPLY:
        return read_push_reply(u, from, &to->u.push_reply);
    case PSP_ATTACH:
        to->u.attach.host = ((const Embps__V1__AttachRequest *)from)->host;
        return PSC_OK;
    case PSP_ATTACH_REPLY:
        return read_attach_reply(u, from, &to->u.attach_reply);
    case PSP_TOUCHES:
        read_touches(u, from, &to->u.touches);
        return PSC_OK;
    case PSP_BARRIER_REPLY:
        to->u.barrier_reply.first = ((const Embps__V1__BarrierReply *)from)->first;
        to->u.barrier_reply.n_lost = ((const Embps__V1__BarrierReply *)from)->n_lost;
        return PSC_OK;
    case PSP_EXPORT:
        return psp_unpack_export(u, from, &to->u.export);
    case PSP_EXPORT_REPLY:
        return psp_unpack_export_reply(u, from, &to->u.export_reply);
    case PSP_WATCH:
        return psp_unpack_watch(u, from, &to->u.watch);
    case PSP_WATCH_REPLY:
        return psp_unpack_watch_reply(u, from, &to->u.watch_reply);
    case PSP_IMPORT:
        return psp_unpack_import(u, from, &to->u.import);
    case PSP_IMPORT_REPLY:
        to->u.import_reply.rows = ((const Embps__V1__ImportReply *)from)->rows;
        to->u.import_reply.created = ((const Embps__V1__ImportReply *)from)->created;
        return PSC_OK;
    case PSP_CHECKPOINT:
        return psp_unpack_checkpoint(u, from, &to->u.checkpoint);
    case PSP_CHECKPOINT_REPLY:
        return psp_unpack_checkpoint_reply(u, from, &to->u.checkpoint_reply);
    case PSP_STATS:
    case PSP_GOODBYE_REPLY:
    case PSP_PREFETCH_REPLY:
    case PSP_TOUCHES_REPLY:
        return PSC_OK; /* a header alone */
    }
    return PSC_OK;
}

/* Header and body of what protobuf-c made of the small fields. */
static psc_status_t read_message(const psp_unpacker_t *u, const ProtobufCMessage *from,
                                 psp_message_t *to)
{
    const ProtobufCFieldDescriptor *field =
        protobuf_c_message_descriptor_get_field(u->info->descriptor, HEADER_FIELD);
    const void *header;
    memcpy(&header, (const uint8_t *)from + field->offset, sizeof header);
    psc_status_t st = u->info->reply != 0 ? read_request_header(u, header, &to->request)
                                          : read_reply_header(u, header, &to->reply);
    if (st == PSC_OK && to->reply.error.code == PSC_OK)
        st = read_body(u, from, to);
    return st;
}

psc_status_t psp_message_unpack(psp_scratch_t *scratch, uint32_t kind, const uint8_t *data,
                                size_t size, psp_message_t *message_out, psc_error_t *error)
{
    psp_unpacker_t u = {
        .info = psp_kind_info(kind),
        .scratch = scratch,
        .data = data,
        .size = size,
        .error = error,
    };
    if (u.info == NULL)
        return psc_error_set(error, PSC_PROTOCOL, "a message of the unknown kind %u", kind);
    psp_scratch_reset(scratch);
    psc_status_t st = scan(&u);
    if (st == PSC_OK && u.small.size > SMALL_BYTES_MAX)
        st = psp_unpack_refuse_number(&u, "size of its small fields", u.small.size);
    if (st == PSC_OK)
        st = join(&u);
    if (st != PSC_OK)
        return st;
    const ProtobufCMessage *unpacked =
        protobuf_c_message_unpack(u.info->descriptor, psp_scratch_allocator(scratch), u.small.size,
                                  u.small.size != 0 ? u.small.start : data);
    if (unpacked == NULL)
        return psp_scratch_exhausted(scratch) ? refuse_memory(&u)
                                              : psp_unpack_refuse(&u, "it does not fit its schema");
    psp_message_t message = {.kind = (psp_kind_t)kind};
    st = read_message(&u, unpacked, &message);
    if (st == PSC_OK)
        *message_out = message;
    return st;
}
