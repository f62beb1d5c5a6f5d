/*
 * Watching a table: a question to each server, that is answered when there is news.
 *
 * Between two calls of embps_watch_next questions stay under way, one a server, and their answers
 * are kept as they come, so that servers wait for nobody and nothing is lost while the program
 * computes, but what a server's own memory of changes cannot hold. A question is asked for WAIT_MS
 * at most, and the end of a watch has it answered at once by another one that says so.
 *
 * Threads: the client's.
 */
#include "common/alloc.h"
#include "common/clock.h"
#include "worker/client_state.h"

#define WAIT_MS 500u

typedef struct source {
    psw_request_t *request; /* NULL: to be asked */
    psw_request_t *last;    /* that ends it; NULL: none */
    size_t cursor_size;
    uint8_t cursor[PSP_CURSOR_MAX];
} source_t;

struct embps_watch {
    embps_table_t *table;
    bool want_rows;
    uint64_t relaid; /* psw_core_relaid: servers are meant by number */
    uint32_t n_sources, turn;
    psw_block_t block; /* that was handed on last */
    bool lost;
    psc_error_t error; /* the first one */
    source_t sources[];
};

static psc_status_t ask(embps_watch_t *watch, uint32_t server, psc_error_t *error)
{
    source_t *source = &watch->sources[server];
    embps_client_t *client = watch->table->client;
    psc_status_t st = psw_client_check_servers(client, watch->relaid, "watch", error);
    if (st != PSC_OK)
        return st;
    psp_message_t message = {.kind = PSP_WATCH};
    psp_watch_t *asked = &message.u.watch;
    asked->table = watch->table->number;
    asked->table_epoch = watch->table->epochs[server];
    asked->want_rows = watch->want_rows;
    asked->wait_ms = WAIT_MS;
    asked->cursor_size = source->cursor_size;
    memcpy(asked->cursor, source->cursor, source->cursor_size);
    st = psw_client_ask(client, &message, server, server + 1, &source->request, error);
    if (st == PSC_OK)
        source->request->dim = watch->table->dim;
    return st;
}

/* Takes the answer of a server, which is there, and asks it again. */
static psc_status_t take(embps_watch_t *watch, uint32_t server, psc_error_t *error)
{
    source_t *source = &watch->sources[server];
    psw_request_t *request = source->request;
    source->request = NULL;
    psw_block_clear(&watch->block);
    watch->block = request->block;
    watch->lost = request->lost;
    request->block = (psw_block_t){0};
    psc_status_t st = psw_client_finish(watch->table->client, request, error);
    if (st != PSC_OK)
        return st;
    source->cursor_size = watch->block.next_size;
    memcpy(source->cursor, watch->block.next, source->cursor_size);
    return ask(watch, server, error);
}

static psc_status_t start(embps_table_t *table, uint32_t flags, embps_watch_t **watch_out,
                          psc_error_t *error)
{
    if (table == NULL || watch_out == NULL || (flags & ~EMBPS_WATCH_ROWS) != 0)
        return psc_error_set(error, PSC_INVALID_ARGUMENT,
                             "embps_watch_start needs a table, a place for the watch, and flags 0 "
                             "or EMBPS_WATCH_ROWS");
    psw_driver_t *driver = &table->client->driver;
    const uint32_t n = psw_core_n_servers(driver->core);
    embps_watch_t *watch = psc_alloc_zeroed(1, sizeof *watch + n * sizeof watch->sources[0]);
    if (watch == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "no memory for a watch");
    watch->table = table;
    watch->want_rows = (flags & EMBPS_WATCH_ROWS) != 0;
    watch->relaid = psw_core_relaid(driver->core);
    watch->n_sources = n;
    watch->error = (psc_error_t)PSC_ERROR_INIT;
    psc_status_t st = PSC_OK;
    for (uint32_t s = 0; s < n && st == PSC_OK; s++)
        st = ask(watch, s, error);
    for (uint32_t s = 0; s < n && st == PSC_OK; s++) {
        st = psw_driver_wait(driver, watch->sources[s].request, error);
        if (st == PSC_OK)
            st = take(watch, s, error);
    }
    if (st != PSC_OK) {
        embps_watch_end(watch);
        return st;
    }
    *watch_out = watch;
    return PSC_OK;
}

int embps_watch_start(embps_table_t *table, uint32_t flags, embps_watch_t **watch_out,
                      embps_error_t *error)
{
    psc_error_t what = PSC_ERROR_INIT;
    uint64_t relaid = table != NULL ? psw_core_relaid(table->client->driver.core) : 0;
    psc_status_t st;
    do {
        st = start(table, flags, watch_out, &what);
    } while (table != NULL && psw_client_again(table->client, st, &relaid));
    return st == PSC_OK ? 0 : psw_error_export(&what, error);
}

/* The answers that are there, from the server whose turn it is on; *found_out: one says something,
 * and is the watch's block. */
static psc_status_t look(embps_watch_t *watch, bool *found_out, psc_error_t *error)
{
    *found_out = false;
    for (uint32_t i = 0; i < watch->n_sources; i++) {
        const uint32_t server = (watch->turn + i) % watch->n_sources;
        if (!psw_request_done(watch->sources[server].request))
            continue;
        psc_status_t st = take(watch, server, error);
        *found_out = st == PSC_OK && (watch->block.n != 0 || watch->lost);
        if (st != PSC_OK || *found_out) {
            watch->turn = server + 1;
            return st;
        }
    }
    return PSC_OK;
}

static psc_status_t wait_for_news(embps_watch_t *watch, uint32_t timeout_ms, bool *found_out,
                                  psc_error_t *error)
{
    psw_driver_t *driver = &watch->table->client->driver;
    const uint64_t until_us = psc_clock_us() + (uint64_t)timeout_ms * 1000;
    bool moved;
    psc_status_t st = psw_driver_step(driver, &moved, error);
    for (;;) {
        if (st == PSC_OK)
            st = look(watch, found_out, error);
        if (st != PSC_OK || *found_out || psc_clock_us() >= until_us)
            return st;
        st = psw_driver_pause(driver, until_us, error);
    }
}

int embps_watch_next(embps_watch_t *watch, uint32_t timeout_ms, embps_block_t *block_out,
                     bool *lost_out, embps_error_t *error)
{
    psc_error_t what = PSC_ERROR_INIT;
    bool found = false;
    if (watch->error.code == PSC_OK && wait_for_news(watch, timeout_ms, &found, &what) != PSC_OK)
        watch->error = what;
    if (watch->error.code != PSC_OK)
        return psw_error_export(&watch->error, error);
    const psw_block_t *block = &watch->block;
    *block_out = (embps_block_t)EMBPS_BLOCK_DEFAULT;
    *lost_out = found && watch->lost;
    if (found) {
        block_out->n = block->n;
        block_out->dim = watch->table->dim;
        block_out->ids = block->ids;
        block_out->rows = watch->want_rows ? block->rows : NULL;
    }
    return 0;
}

/* The servers need not wait any longer. What comes of it does not matter. */
static void say_end(embps_watch_t *watch)
{
    embps_client_t *client = watch->table->client;
    for (uint32_t s = 0; s < watch->n_sources; s++) {
        source_t *source = &watch->sources[s];
        source->last = NULL;
        if (source->request == NULL || psw_request_done(source->request) ||
            psw_client_check_servers(client, watch->relaid, "watch", NULL) != PSC_OK)
            continue;
        psp_message_t message = {.kind = PSP_WATCH,
                                 .u.watch = {.table = watch->table->number,
                                             .table_epoch = watch->table->epochs[s],
                                             .end = true,
                                             .wait_ms = 1,
                                             .max_rows = 1}};
        if (psw_client_ask(client, &message, s, s + 1, &source->last, NULL) == PSC_OK)
            source->last->dim = watch->table->dim;
    }
}

void embps_watch_end(embps_watch_t *watch)
{
    if (watch == NULL)
        return;
    say_end(watch);
    for (uint32_t s = 0; s < watch->n_sources; s++) {
        psw_request_t *const both[2] = {watch->sources[s].request, watch->sources[s].last};
        for (size_t i = 0; i < 2; i++) {
            /* An answer that nobody wants any more. */
            if (both[i] != NULL && psw_client_finish(watch->table->client, both[i], NULL) != PSC_OK)
                continue;
        }
    }
    psw_block_clear(&watch->block);
    psc_free(watch);
}
