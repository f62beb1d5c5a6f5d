/*
 * What a shard is beside its rows, out of a checkpoint: tables, sightings and ages slot by slot,
 * clocks, sessions.
 *
 * Sightings and ages are read slot by slot, in the order in which the file has them, and a slot
 * that this server has is put where it keeps it: one slot's bytes are in memory at a time. Where
 * one server of the checkpoint had seen fewer clocks than another, its slots go on to the furthest.
 *
 * Sessions. Workers' are not revived: those processes are gone, and new ones say hello, which go on
 * from the least clock that all of the former had ended: what was pushed in it is there. A guest's
 * goes on where slots lie as they lay: a request with a sequence has all of its effect in one
 * part, and that part knows which of its pushes were applied. What it was answered after the cut is
 * lost, which ps/table/guests.c notices and says. Where slots lie elsewhere no session goes on: a
 * push that comes again would have its rows on several servers, in orders of effects that nobody
 * had numbered. It is refused, by any server, with the last of its pushes that counts; checkpoints
 * keep that for guests that were idle meanwhile. Numbers of sessions are never given twice, also
 * not those that were given after the cut by a server that then died: they begin above any that a
 * run can have given until now, at GIVEN_PER_MS for each millisecond since 1970.
 *
 * Threads: none; at the start.
 */
#include "ps/checkpoint/restore_inside.h"

#include "common/alloc.h"
#include "ps/serve/serve.h"

#include <stdio.h>
#include <time.h>

#define GIVEN_PER_MS 64
#define REMEMBERED_STARTS 8u /* of servers, for which what counts of a session is told */

/* ---- sightings and ages ---- */

/* The file "growth" of one server. */
typedef struct sightings {
    const ps_restore_t *restore;
    const ps_shard_t *shard;
    uint32_t server;
    FILE *file;
    uint8_t *bytes; /* of a slot */
    size_t n_bytes, n_slots;
} sightings_t;

/* One of a table's two blocks: equally many bytes for each slot. */
typedef struct block {
    uint64_t bytes;    /* in the file */
    size_t slot_bytes; /* of a slot, here */
    uint32_t clock;
    void (*load)(const ps_growth_t *growth, size_t slot, uint32_t clock, const uint8_t *image);
} block_t;

static void load_sketch(const ps_growth_t *growth, size_t slot, uint32_t clock,
                        const uint8_t *image)
{
    (void)clock;
    ps_sketch_load(growth->sketch, slot, image);
}

static void load_expiry(const ps_growth_t *growth, size_t slot, uint32_t clock,
                        const uint8_t *image)
{
    ps_expiry_load(growth->expiry, slot, clock, image);
}

static psc_status_t load_block(sightings_t *from, const block_t *block, const ps_growth_t *growth,
                               psc_error_t *error)
{
    const ps_restore_t *restore = from->restore;
    const size_t n = block->slot_bytes;
    if (block->bytes != (uint64_t)n * from->n_slots || (n != 0 && from->file == NULL))
        return ps_restore_damaged(restore, from->server, "sightings", error);
    if (n > from->n_bytes) {
        void *grown = psc_realloc_array(from->bytes, n, 1);
        if (grown == NULL)
            return psc_error_set(error, PSC_NO_MEMORY, "out of memory for sightings");
        from->bytes = grown;
        from->n_bytes = n;
    }
    for (uint32_t slot = 0; n != 0 && slot < PSC_SLOT_COUNT; slot++) {
        if (restore->before.owner[slot] != from->server)
            continue;
        if (fread(from->bytes, 1, n, from->file) != n)
            return ps_restore_damaged(restore, from->server, "sightings", error);
        if (ps_restore_takes(restore, from->server, slot))
            block->load(growth, growth->slots[slot], block->clock, from->bytes);
    }
    return PSC_OK;
}

/* Of ps_restore_table_fn. */
static psc_status_t load_table(void *context, const psp_saved_table_t *saved,
                               const psp_open_table_t *options, psc_error_t *error)
{
    sightings_t *from = context;
    const ps_growth_t *growth = from->shard->tables[options->table]->growth;
    block_t sketch = {.bytes = saved->sketch_bytes, .load = load_sketch};
    block_t expiry = {
        .bytes = saved->expiry_bytes, .clock = saved->expiry_clock, .load = load_expiry};
    if (growth != NULL && growth->sketch != NULL)
        sketch.slot_bytes = ps_sketch_slot_bytes(growth->sketch);
    if (growth != NULL && growth->expiry != NULL)
        expiry.slot_bytes = ps_expiry_slot_bytes(growth->expiry);
    psc_status_t st = load_block(from, &sketch, growth, error);
    return st == PSC_OK ? load_block(from, &expiry, growth, error) : st;
}

/* Of all tables that one server had. */
static psc_status_t load_part(const ps_restore_t *restore, const psp_saved_part_t *part,
                              const ps_shard_t *shard, psc_error_t *error)
{
    sightings_t from = {.restore = restore, .shard = shard, .server = part->server};
    char *path = ps_restore_path(restore, part->server, "growth");
    if (path == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "out of memory for a path");
    from.file = fopen(path, "rbe"); /* without tables that grow there need be none */
    psc_free(path);
    for (uint32_t slot = 0; slot < PSC_SLOT_COUNT; slot++)
        from.n_slots += restore->before.owner[slot] == part->server;
    psc_status_t st = ps_restore_each_table(restore, part, load_table, &from, error);
    if (from.file != NULL)
        (void)fclose(from.file);
    psc_free(from.bytes);
    return st;
}

static psc_status_t load_growth(const ps_restore_t *restore, const ps_shard_t *shard,
                                psc_error_t *error)
{
    psc_status_t st = PSC_OK;
    for (uint32_t server = 0; st == PSC_OK && server < restore->before.n_servers; server++) {
        psp_saved_t *saved = NULL;
        if (!ps_restore_needs(restore, server))
            continue;
        st = ps_restore_open_part(restore, server, &saved, error);
        if (st == PSC_OK)
            st = load_part(restore, psp_saved_part(saved), shard, error);
        psp_saved_destroy(saved);
    }
    return st;
}

/* ---- tables ---- */

static psc_status_t make_tables(const ps_restore_t *restore, ps_shard_t *shard, psc_error_t *error)
{
    psc_status_t st = PSC_OK;
    for (size_t i = 0; st == PSC_OK && i < restore->n_tables; i++) {
        const ps_restore_table_t *from = &restore->tables[i];
        ps_table_t *table = NULL;
        st = ps_serve_make_table(shard, from->table.number, &from->table, &table, error);
        if (st != PSC_OK)
            break;
        table->epoch = from->table.epoch;
        table->created = from->created;
        if (table->growth == NULL)
            continue;
        table->growth->companion.created = from->companion_created;
        if (table->growth->expiry != NULL)
            ps_expiry_advance(table->growth->expiry, from->expiry_clock);
    }
    return st;
}

/* ---- sessions ---- */

static psc_status_t revive_guests(const psp_saved_part_t *part, ps_shard_t *shard,
                                  psc_error_t *error)
{
    psc_status_t st = PSC_OK;
    for (size_t i = 0; st == PSC_OK && i < part->n_sessions; i++) {
        const psp_saved_session_t *from = part->sessions[i];
        const ps_session_t session = {.id = from->id,
                                      .state = PS_SESSION_LIVE,
                                      .clock = from->clock,
                                      .progress = from->progress,
                                      .push_sequence = from->push_sequence};
        if (from->guest && from->id != 0 && from->next_sequence != 0)
            st = ps_guests_revive(shard, &session, from->next_sequence,
                                  (ps_call_part_t){.client = from->client, .part = from->part},
                                  error);
    }
    return st;
}

/* Sessions that do not go on, as they are gathered. */
typedef struct gathering {
    ps_guest_moved_t *all;
    size_t n;
} gathering_t;

/* Those of a part: its own, where slots lie elsewhere now, and those that had been others'. */
static psc_status_t add_moved(const psp_saved_part_t *part, bool own, gathering_t *moved,
                              psc_error_t *error)
{
    const size_t most = moved->n + part->n_sessions + part->n_moved;
    ps_guest_moved_t *grown = psc_realloc_array(moved->all, most + 1, sizeof *grown);
    if (grown == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "out of memory for sessions");
    moved->all = grown;
    for (size_t i = 0; own && i < part->n_sessions; i++) {
        const psp_saved_session_t *from = part->sessions[i];
        if (from->guest)
            grown[moved->n++] = (ps_guest_moved_t){.id = from->id,
                                                   .server = part->server,
                                                   .n_servers = part->n_servers,
                                                   .push_sequence = from->push_sequence,
                                                   .starts = 1};
    }
    for (size_t i = 0; i < part->n_moved; i++) {
        const psp_saved_moved_t *from = part->moved[i];
        if (from->starts < REMEMBERED_STARTS)
            grown[moved->n++] = (ps_guest_moved_t){.id = from->id,
                                                   .server = from->server,
                                                   .n_servers = from->n_servers,
                                                   .push_sequence = from->push_sequence,
                                                   .starts = from->starts + 1};
    }
    return PSC_OK;
}

/* Every server knows of all of them, so that any one can tell a guest all that it has to know. */
static psc_status_t move_guests(const ps_restore_t *restore, ps_shard_t *shard, psc_error_t *error)
{
    gathering_t moved = {.n = 0};
    psc_status_t st = PSC_OK;
    for (uint32_t server = 0; st == PSC_OK && server < restore->before.n_servers; server++) {
        psp_saved_t *saved = NULL;
        st = ps_restore_open_part(restore, server, &saved, error);
        if (st == PSC_OK)
            st = add_moved(psp_saved_part(saved), !restore->same, &moved, error);
        psp_saved_destroy(saved);
    }
    if (st == PSC_OK)
        ps_guests_set_moved(shard, moved.all, moved.n);
    else
        psc_free(moved.all);
    return st;
}

static psc_status_t bring_guests(const ps_restore_t *restore, ps_shard_t *shard, psc_error_t *error)
{
    psp_saved_t *saved = NULL;
    psc_status_t st = move_guests(restore, shard, error);
    if (st != PSC_OK || !restore->same)
        return st;
    st = ps_restore_open_part(restore, restore->rank, &saved, error);
    if (st == PSC_OK)
        st = revive_guests(psp_saved_part(saved), shard, error);
    psp_saved_destroy(saved);
    return st;
}

uint64_t ps_restore_count_given(uint64_t given)
{
    struct timespec now = {.tv_sec = 0};
    (void)clock_gettime(CLOCK_REALTIME, &now);
    const uint64_t by_time =
        ((uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000) * GIVEN_PER_MS;
    return by_time > given ? by_time : given;
}

psc_status_t ps_restore_shard(const ps_restore_t *restore, ps_shard_t *shard, bool sessions,
                              psc_error_t *error)
{
    shard->map = restore->map;
    shard->sessions.time = shard->sessions.min_clock = restore->time;
    shard->clock = shard->sessions.n == 0 ? restore->clock : restore->time;
    for (uint32_t i = 0; i < shard->sessions.n; i++)
        shard->sessions.all[i].clock = restore->time;
    shard->account = restore->account;
    ps_shard_publish(shard);
    shard->sessions.n_given = ps_restore_count_given(restore->sessions_given);
    psc_status_t st = make_tables(restore, shard, error);
    /* Rows that begin with the run are not counted: a floor goes by those that are younger. */
    if (st == PSC_OK && !restore->weights)
        st = load_growth(restore, shard, error);
    if (st == PSC_OK && !restore->weights && sessions)
        st = bring_guests(restore, shard, error);
    return st;
}
