/*
 * A table of places, and the loop that reads there.
 *
 * The table has open addressing over psc_row_hash, 16 bytes an entry, half of it used at the most;
 * it grows to MAX_BITS and then replaces. Nothing in it has to be right: a record says whose it is,
 * and what is not found there is asked for, which brings its new place. An entry also has the
 * sequence of this client's last push to the row, in 32 bits. A row whose push was not answered yet
 * is not read. Places that come with a reply are entered as if the last push to that server had
 * gone to the row, since it may have: the reply can be older than the push.
 *
 * A batch is read in two passes: look up, with entries fetched ahead; then copy, with rows fetched
 * ahead. Of the rows read one in eight, by chance, is noted and reported to the server (touches),
 * by chance since batches have rhythms. Reports are answered, and when one is not for long, nothing
 * is read: so a server that is gone is noticed although its memory is still here.
 *
 * Cost beside the copy: one cache line for the entry and one for the header. No allocation once
 * warm. Threads: the client's.
 */
#include "worker/direct.h"

#include "common/alloc.h"
#include "common/hash.h"
#include "common/shared_rows.h"
#include "common/vectors.h"

#include <string.h>

#define FIRST_BITS 12u
#define MAX_BITS 22u /* 64 MiB */
#define WINDOW 16u   /* entries that are looked at */
#define ENTRIES_AHEAD 16u
#define ROWS_AHEAD 8u
#define LINE 64u
#define LONG_AGO (UINT32_C(1) << 30)

typedef struct entry {
    uint64_t hash;
    uint32_t place;  /* 0: the entry is empty */
    uint32_t pushed; /* sequence of the last push, its low bits */
} entry_t;

typedef struct touches {
    uint32_t table, server;
    size_t n;
    uint64_t ids[PSW_DIRECT_TOUCHES];
} touches_t;

typedef struct source {
    psc_shared_map_t map;
    uint32_t last_pushed; /* sequence of the last push to the server */
    uint32_t lowest_open; /* of the present batch: pushes below are applied */
    bool ready;           /* of the present batch: it may be read */
} source_t;

struct psw_direct {
    psw_core_t *core;
    uint32_t n_servers;
    source_t *sources; /* [n_servers] */
    entry_t *entries;  /* [2^bits + WINDOW] */
    uint32_t bits;
    size_t n_used;
    uint32_t turn; /* of what is replaced in a full window */
    size_t capacity;
    uint32_t *places; /* [capacity] of a batch */
    uint32_t *first;  /* [capacity] what is left of it */
    uint64_t *hashes;
    touches_t *touches;
    size_t n_touches;
    uint64_t random;
    uint32_t until_touch;
    bool paused;
    psw_direct_counts_t counts;
};

/* All empty. On huge pages, since each look-up goes to any of them. */
static entry_t *new_entries(uint32_t bits)
{
    const size_t bytes = (((size_t)1 << bits) + WINDOW) * sizeof(entry_t);
    entry_t *entries = psc_alloc_huge(bytes);
    if (entries != NULL)
        memset(entries, 0, bytes);
    return entries;
}

psc_status_t psw_direct_create(psw_core_t *core, psw_direct_t **direct_out, psc_error_t *error)
{
    psw_direct_t *direct = psc_alloc_zeroed(1, sizeof *direct);
    if (direct == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "no memory for direct reads");
    direct->core = core;
    direct->n_servers = psw_core_n_servers(core);
    direct->bits = FIRST_BITS;
    direct->random = 1;
    direct->until_touch = 1;
    direct->sources = psc_alloc_zeroed(direct->n_servers, sizeof *direct->sources);
    direct->entries = new_entries(direct->bits);
    if (direct->sources == NULL || direct->entries == NULL) {
        psw_direct_destroy(direct);
        return psc_error_set(error, PSC_NO_MEMORY, "no memory for direct reads");
    }
    *direct_out = direct;
    return PSC_OK;
}

void psw_direct_destroy(psw_direct_t *direct)
{
    if (direct == NULL)
        return;
    for (uint32_t s = 0; direct->sources != NULL && s < direct->n_servers; s++)
        psc_shared_unmap(&direct->sources[s].map);
    psc_free(direct->sources);
    psc_free(direct->entries);
    psc_free(direct->places);
    psc_free(direct->first);
    psc_free(direct->hashes);
    psc_free(direct->touches);
    psc_free(direct);
}

psc_status_t psw_direct_attach(psw_direct_t *direct, uint32_t server, const char *path,
                               uint64_t key, psc_error_t *error)
{
    psc_shared_map_t map;
    psc_status_t st = psc_shared_open(path, key, &map, error);
    if (st != PSC_OK)
        return st;
    psc_shared_unmap(&direct->sources[server].map);
    direct->sources[server].map = map;
    return PSC_OK;
}

/* ---- the table ---- */

static entry_t *home(const psw_direct_t *direct, uint64_t hash)
{
    return &direct->entries[hash >> (64 - direct->bits)];
}

static entry_t *find(const psw_direct_t *direct, uint64_t hash)
{
    entry_t *entry = home(direct, hash);
    for (uint32_t k = 0; k < WINDOW && entry[k].place != 0; k++)
        if (entry[k].hash == hash)
            return &entry[k];
    return NULL;
}

/* The entry of the hash or an empty one; NULL: the window is full. */
static entry_t *find_room(const psw_direct_t *direct, uint64_t hash)
{
    entry_t *entry = home(direct, hash);
    for (uint32_t k = 0; k < WINDOW; k++)
        if (entry[k].place == 0 || entry[k].hash == hash)
            return &entry[k];
    return NULL;
}

/* Twice the size, if memory can be had; entries that find no room are forgotten. */
static void grow(psw_direct_t *direct)
{
    const size_t n = ((size_t)1 << direct->bits) + WINDOW;
    entry_t *old = direct->entries;
    entry_t *entries = direct->bits < MAX_BITS ? new_entries(direct->bits + 1) : NULL;
    if (entries == NULL)
        return;
    direct->entries = entries;
    direct->bits++;
    direct->n_used = 0;
    for (size_t i = 0; i < n; i++) {
        entry_t *room = old[i].place != 0 ? find_room(direct, old[i].hash) : NULL;
        if (room == NULL)
            continue;
        *room = old[i];
        direct->n_used++;
    }
    psc_free(old);
}

static void enter(psw_direct_t *direct, uint64_t hash, uint32_t place, uint32_t pushed)
{
    if (2 * direct->n_used > (size_t)1 << direct->bits)
        grow(direct);
    entry_t *entry = find_room(direct, hash);
    if (entry == NULL) {
        grow(direct);
        entry = find_room(direct, hash);
    }
    if (entry == NULL)
        entry = home(direct, hash) + direct->turn++ % WINDOW;
    else
        direct->n_used += entry->place == 0;
    *entry = (entry_t){.hash = hash, .place = place, .pushed = pushed};
}

static void forget_all(psw_direct_t *direct)
{
    memset(direct->entries, 0, (((size_t)1 << direct->bits) + WINDOW) * sizeof(entry_t));
    direct->n_used = 0;
}

/* ---- reading ---- */

static psc_status_t reserve(psw_direct_t *direct, size_t n, psc_error_t *error)
{
    if (n <= direct->capacity)
        return PSC_OK;
    const size_t capacity = n + n / 2;
    uint32_t *places = psc_realloc_array(direct->places, capacity, sizeof *places);
    if (places != NULL)
        direct->places = places;
    uint32_t *first = psc_realloc_array(direct->first, capacity, sizeof *first);
    if (first != NULL)
        direct->first = first;
    uint64_t *hashes = psc_realloc_array(direct->hashes, capacity, sizeof *hashes);
    if (hashes != NULL)
        direct->hashes = hashes;
    if (places == NULL || first == NULL || hashes == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "no memory for a pull of %zu rows", n);
    direct->capacity = capacity;
    return PSC_OK;
}

/* Which servers' rows may be read now. Returns whether any may. */
static bool look_at_sources(psw_direct_t *direct, uint32_t staleness)
{
    const uint64_t clock = psw_core_clock(direct->core);
    bool any = false;
    for (uint32_t s = 0; s < direct->n_servers; s++) {
        source_t *source = &direct->sources[s];
        source->ready = source->map.control != NULL && !psc_shared_is_closed(&source->map);
        if (!source->ready)
            continue;
        if (psc_shared_layout(&source->map) != source->map.layout) {
            forget_all(direct);
            source->map.layout = psc_shared_layout(&source->map);
        }
        source->ready = staleness == PSP_STALENESS_ASYNC || clock <= staleness ||
                        psc_shared_clock(&source->map) >= clock - staleness;
        source->lowest_open = (uint32_t)psw_core_lowest_open(direct->core, s);
        if (source->lowest_open - source->last_pushed > LONG_AGO)
            source->last_pushed = source->lowest_open - 1; /* so that 32 bits are enough */
        any = any || source->ready;
    }
    return any;
}

static const source_t *source_of(const psw_direct_t *direct, uint64_t hash)
{
    if (direct->n_servers == 1)
        return direct->sources;
    return &direct->sources[psc_slot_owner(psw_core_map(direct->core), hash)];
}

/* First pass: places of the rows that may be read. */
static void look_up(const psw_direct_t *direct, const uint64_t *hashes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (i + ENTRIES_AHEAD < n)
            __builtin_prefetch(home(direct, hashes[i + ENTRIES_AHEAD]));
        const source_t *source = source_of(direct, hashes[i]);
        const entry_t *entry = find(direct, hashes[i]);
        bool may =
            entry != NULL && source->ready && (int32_t)(entry->pushed - source->lowest_open) < 0;
        direct->places[i] = may ? entry->place : 0;
    }
}

static touches_t *touches_of(psw_direct_t *direct, uint32_t table, uint32_t server)
{
    for (size_t i = 0; i < direct->n_touches; i++)
        if (direct->touches[i].table == table && direct->touches[i].server == server)
            return &direct->touches[i];
    touches_t *grown =
        psc_realloc_array(direct->touches, direct->n_touches + 1, sizeof *direct->touches);
    if (grown == NULL)
        return NULL; /* nothing is reported */
    direct->touches = grown;
    touches_t *touches = &grown[direct->n_touches++];
    touches->table = table;
    touches->server = server;
    touches->n = 0;
    return touches;
}

/* The n-th row since the last one that was noted is noted, n from 1 to 15 by chance. */
static void note(psw_direct_t *direct, uint32_t table, uint64_t id, const source_t *source)
{
    if (--direct->until_touch != 0)
        return;
    direct->random = direct->random * UINT64_C(6364136223846793005) + 1;
    direct->until_touch = 1 + (uint32_t)(direct->random >> 33) % 15;
    touches_t *touches = touches_of(direct, table, (uint32_t)(source - direct->sources));
    if (touches != NULL && touches->n < PSW_DIRECT_TOUCHES)
        touches->ids[touches->n++] = id;
}

static void fetch(const source_t *source, uint32_t place, size_t bytes)
{
    const uint8_t *row = (const uint8_t *)psc_shared_row(&source->map, place);
    for (size_t at = 0; at < bytes; at += LINE)
        __builtin_prefetch(row + at);
}

/* Second pass: copies, and keeps what is left. Returns how many are. */
PSC_MULTIVERSION
static size_t copy(psw_direct_t *direct, const psw_direct_pull_t *pull,
                   const psw_distinct_t *distinct)
{
    const size_t n = distinct->n, bytes = pull->dim * sizeof(float);
    size_t n_left = 0;
    for (size_t i = 0; i < n; i++) {
        const size_t ahead = i + ROWS_AHEAD;
        if (ahead < n && direct->places[ahead] != 0)
            fetch(source_of(direct, distinct->hashes[ahead]), direct->places[ahead],
                  sizeof(psc_shared_row_t) + bytes);
        const source_t *source = source_of(direct, distinct->hashes[i]);
        const uint32_t at = distinct->first != NULL ? distinct->first[i] : (uint32_t)i;
        const psc_shared_wanted_t wanted = {.id = pull->ids[at],
                                            .place = direct->places[i],
                                            .table = (uint16_t)pull->table,
                                            .bytes = bytes};
        if (wanted.place != 0 &&
            psc_shared_read(&source->map, &wanted, pull->rows_out + at * pull->stride)) {
            if (pull->states_out != NULL)
                pull->states_out[at] = PSP_ROW_PRESENT;
            note(direct, pull->table, wanted.id, source);
            continue;
        }
        direct->counts.missed += wanted.place != 0;
        direct->first[n_left] = at;
        direct->hashes[n_left++] = distinct->hashes[i];
    }
    direct->counts.read += n - n_left;
    return n_left;
}

psc_status_t psw_direct_read(psw_direct_t *direct, const psw_direct_pull_t *pull,
                             psw_distinct_t *distinct, psc_error_t *error)
{
    if (direct->paused || distinct->n == 0 || !look_at_sources(direct, pull->staleness) ||
        direct->n_used == 0)
        return PSC_OK;
    psc_status_t st = reserve(direct, distinct->n, error);
    if (st != PSC_OK)
        return st;
    look_up(direct, distinct->hashes, distinct->n);
    distinct->n = copy(direct, pull, distinct);
    distinct->first = direct->first;
    distinct->hashes = direct->hashes;
    return PSC_OK;
}

/* ---- what comes and goes by messages ---- */

static uint32_t number_at(const uint8_t *numbers, size_t i)
{
    uint32_t number;
    memcpy(&number, numbers + i * sizeof number, sizeof number);
    return number;
}

void psw_direct_learn(psw_direct_t *direct, uint32_t server, uint32_t table, uint32_t dim,
                      const uint8_t *places, size_t n)
{
    const source_t *source = &direct->sources[server];
    const psc_shared_map_t *map = &source->map;
    if (map->control == NULL || number_at(places, n) != map->layout)
        return;
    for (size_t i = 0; i < n; i++) {
        const uint32_t place = number_at(places, i);
        uint64_t id;
        if (i + ROWS_AHEAD < n) {
            uint32_t ahead = number_at(places, i + ROWS_AHEAD);
            if (psc_shared_holds(map, ahead, 0))
                __builtin_prefetch(psc_shared_row(map, ahead));
        }
        if (!psc_shared_holds(map, place, dim * sizeof(float)) ||
            !psc_shared_id_at(map, place, (uint16_t)table, &id))
            continue;
        const uint64_t hash = psc_row_hash(table, id);
        if (psc_slot_owner(psw_core_map(direct->core), hash) == server)
            enter(direct, hash, place, source->last_pushed);
    }
}

void psw_direct_pushed(psw_direct_t *direct, uint32_t server, uint64_t sequence, uint32_t table,
                       const uint64_t *ids, const uint32_t *order, size_t n)
{
    direct->sources[server].last_pushed = (uint32_t)sequence;
    for (size_t i = 0; i < n; i++) {
        if (i + ENTRIES_AHEAD < n)
            __builtin_prefetch(home(direct, psc_row_hash(table, ids[order[i + ENTRIES_AHEAD]])), 1);
        entry_t *entry = find(direct, psc_row_hash(table, ids[order[i]]));
        if (entry != NULL)
            entry->pushed = (uint32_t)sequence;
    }
}

bool psw_direct_touches(psw_direct_t *direct, uint32_t table, uint32_t *server_out,
                        const uint64_t **ids_out)
{
    for (size_t i = 0; i < direct->n_touches; i++) {
        touches_t *touches = &direct->touches[i];
        if (touches->table != table || touches->n < PSW_DIRECT_TOUCHES)
            continue;
        touches->n = 0;
        *server_out = touches->server;
        *ids_out = touches->ids;
        return true;
    }
    return false;
}

void psw_direct_pause(psw_direct_t *direct, bool pause)
{
    direct->paused = pause;
}

psw_direct_counts_t psw_direct_counts(const psw_direct_t *direct)
{
    return direct->counts;
}
