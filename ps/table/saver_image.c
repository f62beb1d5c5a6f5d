/*
 * The image is packed at once, so that what is written later is what was at the cut. The writer
 * adds name and files behind it: fields of a protobuf message may come in pieces.
 *
 * Synchronous pushes that are kept until their clock ends are not in it: the clock has not ended,
 * and who goes on from the checkpoint begins it anew. Answers kept for guests are not either: a
 * request that comes again is served again, and a push then changes nothing.
 *
 * Cost: a copy of all sightings, 512 bytes a slot and table as a rule; some 60 bytes for each
 * session, 300 for each table. Threads: the owner's.
 */
#include "ps/table/saver_image.h"

#include "common/alloc.h"
#include "proto/saved.h"
#include "ps/table/shard_state.h"

#include <string.h>

static size_t sketch_bytes(const ps_table_t *table)
{
    const ps_growth_t *growth = table->growth;
    return growth != NULL && growth->sketch != NULL ? ps_sketch_image_bytes(growth->sketch) : 0;
}

static size_t expiry_bytes(const ps_table_t *table)
{
    const ps_growth_t *growth = table->growth;
    return growth != NULL && growth->expiry != NULL ? ps_expiry_image_bytes(growth->expiry) : 0;
}

uint64_t ps_saver_image_bytes(const ps_shard_t *shard)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < shard->n_tables; i++) {
        if (shard->tables[i] != NULL)
            bytes += sketch_bytes(shard->tables[i]) + expiry_bytes(shard->tables[i]);
    }
    return bytes;
}

/* Everything that the packed message points to. */
typedef struct making {
    psp_saved_part_t part;
    psp_saved_table_t *tables;
    psp_saved_table_t **table_list;
    psp_buffer_t **options; /* packed, by table */
    psp_saved_session_t *sessions;
    psp_saved_session_t **session_list;
    psp_saved_moved_t *moved;
    psp_saved_moved_t **moved_list;
    psp_counter_t counted[PSP_COUNTERS_MAX];
    psp_saved_counter_t counters[PSP_COUNTERS_MAX];
    psp_saved_counter_t *counter_list[PSP_COUNTERS_MAX];
} making_t;

static void clear(making_t *making)
{
    for (size_t i = 0; making->options != NULL && i < making->part.n_tables; i++)
        psp_buffer_put(making->options[i]);
    psc_free(making->options);
    psc_free(making->tables);
    psc_free(making->table_list);
    psc_free(making->sessions);
    psc_free(making->session_list);
    psc_free(making->moved);
    psc_free(making->moved_list);
    psc_free(making);
}

static making_t *create(const ps_shard_t *shard)
{
    making_t *making = psc_alloc_zeroed(1, sizeof *making);
    if (making == NULL)
        return NULL;
    const size_t n_tables = (size_t)shard->n_tables + 1;
    const size_t n_sessions = (size_t)shard->sessions.n_all + 1;
    making->tables = psc_alloc_zeroed(n_tables, sizeof *making->tables);
    making->table_list = psc_alloc_zeroed(n_tables, sizeof(psp_saved_table_t *));
    making->options = psc_alloc_zeroed(n_tables, sizeof(psp_buffer_t *));
    making->sessions = psc_alloc_zeroed(n_sessions, sizeof *making->sessions);
    making->session_list = psc_alloc_zeroed(n_sessions, sizeof(psp_saved_session_t *));
    making->moved = psc_alloc_zeroed(shard->guests.n_moved + 1, sizeof *making->moved);
    making->moved_list = psc_alloc_zeroed(shard->guests.n_moved + 1, sizeof(psp_saved_moved_t *));
    if (making->moved != NULL && making->moved_list != NULL && making->tables != NULL &&
        making->table_list != NULL && making->options != NULL && making->sessions != NULL &&
        making->session_list != NULL)
        return making;
    clear(making);
    return NULL;
}

/* Adds a table; its sightings go behind growth, which moves on. */
static psc_status_t add_table(ps_shard_t *shard, making_t *making, const ps_table_t *table,
                              uint8_t **growth, psc_error_t *error)
{
    const size_t i = making->part.n_tables;
    psp_saved_table_t *to = &making->tables[i];
    psp_message_t message = {.kind = PSP_OPEN_TABLE};
    message.request.protocol = PSP_PROTOCOL_VERSION;
    message.request.cluster = shard->options.cluster;
    ps_table_describe(table, &message.u.open_table);
    message.u.open_table.table = table->number;
    psc_status_t st = psp_message_pack(shard->options.pool, &message, &making->options[i], error);
    if (st != PSC_OK)
        return st;
    embps__checkpoint__v1__table__init(to);
    to->options =
        (ProtobufCBinaryData){.len = making->options[i]->size, .data = making->options[i]->data};
    to->epoch = table->epoch;
    to->created = table->created;
    to->sketch_bytes = sketch_bytes(table);
    to->expiry_bytes = expiry_bytes(table);
    if (table->growth != NULL) {
        to->companion_created = table->growth->companion.created;
        if (table->growth->sketch != NULL)
            ps_sketch_save(table->growth->sketch, *growth);
        *growth += to->sketch_bytes;
        if (table->growth->expiry != NULL) {
            to->expiry_clock = ps_expiry_now(table->growth->expiry);
            ps_expiry_save(table->growth->expiry, *growth);
        }
        *growth += to->expiry_bytes;
    }
    making->table_list[i] = to;
    making->part.n_tables++;
    return PSC_OK;
}

static void add_sessions(const ps_shard_t *shard, making_t *making)
{
    for (uint32_t i = 0; i < shard->sessions.n_all; i++) {
        const ps_session_t *from = &shard->sessions.all[i];
        psp_saved_session_t *to = &making->sessions[making->part.n_sessions];
        if (from->id == 0 || (from->state != PS_SESSION_LIVE && from->state != PS_SESSION_LEAVING))
            continue;
        embps__checkpoint__v1__session__init(to);
        to->id = from->id;
        to->guest = ps_is_guest(&shard->sessions, i);
        to->worker = to->guest ? 0 : i;
        to->clock = from->clock;
        to->progress = from->progress;
        to->push_sequence = from->push_sequence;
        to->next_sequence = to->guest ? ps_guests_next(shard, i) : 0;
        to->client = shard->calls.seats[i].client;
        to->part = shard->calls.seats[i].done;
        making->session_list[making->part.n_sessions++] = to;
    }
}

/* All servers know the same of them. */
static void add_moved(const ps_shard_t *shard, making_t *making)
{
    for (size_t i = 0; shard->options.rank == 0 && i < shard->guests.n_moved; i++) {
        const ps_guest_moved_t *from = &shard->guests.moved[i];
        psp_saved_moved_t *to = making->moved_list[i] = &making->moved[i];
        embps__checkpoint__v1__moved_session__init(to);
        to->id = from->id;
        to->server = from->server;
        to->n_servers = from->n_servers;
        to->push_sequence = from->push_sequence;
        to->starts = from->starts;
        making->part.n_moved++;
    }
    making->part.moved = making->moved_list;
}

static void add_counters(const ps_shard_t *shard, making_t *making)
{
    const size_t n = shard->saver.writer->count(shard, making->counted);
    for (size_t i = 0; i < n; i++) {
        embps__checkpoint__v1__counter__init(&making->counters[i]);
        making->counters[i].name = (char *)making->counted[i].name; /* not written to */
        making->counters[i].value = making->counted[i].value;
        making->counter_list[i] = &making->counters[i];
    }
    making->part.n_counters = n;
    making->part.counters = making->counter_list;
}

static psc_status_t fill(ps_shard_t *shard, making_t *making, uint8_t *growth, psc_error_t *error)
{
    psp_saved_part_t *part = &making->part;
    embps__checkpoint__v1__part__init(part);
    part->cluster = shard->options.cluster;
    part->server = shard->options.rank;
    part->n_servers = shard->options.n_servers;
    if (shard->options.host != NULL)
        part->host = (char *)shard->options.host;
    part->map_epoch = shard->map.epoch;
    part->slot_owners =
        (ProtobufCBinaryData){.len = sizeof shard->map.owner, .data = (uint8_t *)shard->map.owner};
    part->tables = making->table_list;
    part->sessions = making->session_list;
    part->sessions_given = shard->sessions.n_given;
    part->clock = shard->clock;
    part->time = shard->sessions.time;
    part->log_segment = shard->logger.segment;
    for (uint32_t i = 0; i < shard->n_tables; i++) {
        psc_status_t st = shard->tables[i] != NULL
                              ? add_table(shard, making, shard->tables[i], &growth, error)
                              : PSC_OK;
        if (st != PSC_OK)
            return st;
    }
    add_sessions(shard, making);
    add_moved(shard, making);
    add_counters(shard, making);
    return PSC_OK;
}

psc_status_t ps_saver_image_make(ps_shard_t *shard, ps_save_image_t *image_out, psc_error_t *error)
{
    ps_save_image_t image = {.n_growth = (size_t)ps_saver_image_bytes(shard)};
    making_t *making = create(shard);
    image.growth = psc_alloc(image.n_growth + 1);
    psc_status_t st = PSC_OK;
    if (making == NULL || image.growth == NULL)
        st = psc_error_set(error, PSC_NO_MEMORY, "out of memory for a checkpoint");
    if (st == PSC_OK)
        st = fill(shard, making, image.growth, error);
    if (st == PSC_OK) {
        image.n_part = protobuf_c_message_get_packed_size(&making->part.base);
        image.part = psc_alloc(image.n_part + 1);
        if (image.part != NULL)
            (void)protobuf_c_message_pack(&making->part.base, image.part);
        else
            st = psc_error_set(error, PSC_NO_MEMORY, "out of memory for a checkpoint");
    }
    if (making != NULL)
        clear(making);
    if (st != PSC_OK) {
        psc_free(image.growth);
        return st;
    }
    *image_out = image;
    return PSC_OK;
}
