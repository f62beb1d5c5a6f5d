/*
 * Exports: the blocks of all servers, in turn.
 *
 * Each server is asked for its next block as soon as the last one is handed on, so that it makes
 * the one while the program is busy with the other; no more than one a server is under way or here,
 * which is all the memory that an export takes. Servers are waited for in turn, so that the order
 * of the blocks depends on nothing but the servers' own.
 *
 * What the client's cache has accumulated leaves first: an export shows what was pushed before it.
 * Threads: the client's.
 */
#include "common/alloc.h"
#include "worker/cached_rows.h"
#include "worker/client_state.h"

typedef struct source {
    psw_request_t *request; /* for its next block; NULL: it has none left */
} source_t;

struct embps_export {
    embps_table_t *table;
    bool want_state;
    uint64_t relaid; /* psw_core_relaid: servers are meant by number */
    bool told;       /* blocks were handed on: it cannot begin anew */
    uint32_t n_sources, turn;
    psw_block_t block; /* that was handed on last */
    psc_error_t error; /* the first one */
    source_t *sources; /* [n_sources] */
};

static psc_status_t ask(embps_export_t *export, uint32_t server, const psw_block_t *last,
                        psc_error_t *error)
{
    embps_client_t *client = export->table->client;
    psc_status_t st = psw_client_check_servers(client, export->relaid, "export", error);
    if (st != PSC_OK)
        return st;
    psp_message_t message = {.kind = PSP_EXPORT};
    psp_export_t *asked = &message.u.export;
    asked->table = export->table->number;
    asked->table_epoch = export->table->epochs[server];
    asked->want_state = export->want_state;
    if (last != NULL) {
        asked->cursor_size = last->next_size;
        memcpy(asked->cursor, last->next, last->next_size);
    }
    psw_request_t **request = &export->sources[server].request;
    st = psw_client_ask(client, &message, server, server + 1, request, error);
    if (st != PSC_OK)
        return st;
    bool moved;
    (*request)->dim = export->table->dim;
    return psw_driver_step(&client->driver, &moved, error);
}

static void end_sources(embps_export_t *export)
{
    for (uint32_t s = 0; s < export->n_sources; s++) {
        psw_request_t *request = export->sources[s].request;
        /* An answer that nobody wants any more. */
        if (request != NULL && psw_client_finish(export->table->client, request, NULL) != PSC_OK)
            continue;
    }
    psc_free(export->sources);
    export->sources = NULL;
    export->n_sources = export->turn = 0;
}

/* Asks all servers that are there now, from the beginning. */
static psc_status_t begin(embps_export_t *export, psc_error_t *error)
{
    const psw_core_t *core = export->table->client->driver.core;
    psc_status_t st;
    uint64_t relaid = export->relaid = psw_core_relaid(core);
    do {
        const uint32_t n = psw_core_n_servers(core);
        end_sources(export);
        export->relaid = relaid;
        export->sources = psc_alloc_zeroed(n, sizeof *export->sources);
        if (export->sources == NULL)
            return psc_error_set(error, PSC_NO_MEMORY, "no memory for an export");
        export->n_sources = n;
        st = PSC_OK;
        for (uint32_t s = 0; s < n && st == PSC_OK; s++)
            st = ask(export, s, NULL, error);
    } while (psw_client_again(export->table->client, st, &relaid));
    return st;
}

static psc_status_t start(embps_table_t *table, uint32_t flags, embps_export_t **export_out,
                          psc_error_t *error)
{
    if (table == NULL || export_out == NULL || (flags & ~EMBPS_EXPORT_STATE) != 0)
        return psc_error_set(error, PSC_INVALID_ARGUMENT,
                             "embps_export_start needs a table, a place for the export, and flags "
                             "0 or EMBPS_EXPORT_STATE");
    psc_status_t st = psw_cached_flush_all(table->client, error);
    if (st != PSC_OK)
        return st;
    embps_export_t *export = psc_alloc_zeroed(1, sizeof *export);
    if (export == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "no memory for an export");
    export->table = table;
    export->want_state = (flags & EMBPS_EXPORT_STATE) != 0;
    export->error = (psc_error_t)PSC_ERROR_INIT;
    st = begin(export, error);
    if (st != PSC_OK) {
        embps_export_end(export);
        return st;
    }
    *export_out = export;
    return PSC_OK;
}

int embps_export_start(embps_table_t *table, uint32_t flags, embps_export_t **export_out,
                       embps_error_t *error)
{
    psc_error_t what = PSC_ERROR_INIT;
    return start(table, flags, export_out, &what) == PSC_OK ? 0 : psw_error_export(&what, error);
}

/* Takes the block of the server whose turn it is, and asks it for the next one. */
static psc_status_t take(embps_export_t *export, psc_error_t *error)
{
    embps_client_t *client = export->table->client;
    const uint32_t server = export->turn;
    psw_request_t *request = export->sources[server].request;
    export->turn = (server + 1) % export->n_sources;
    psw_block_clear(&export->block);
    if (request == NULL)
        return PSC_OK;
    psc_status_t st = psw_driver_wait(&client->driver, request, error);
    export->sources[server].request = NULL;
    export->block = request->block;
    request->block = (psw_block_t){0};
    psc_status_t finished = psw_client_finish(client, request, error);
    st = st != PSC_OK ? st : finished;
    return st == PSC_OK && export->block.next_size != 0 ? ask(export, server, &export->block, error)
                                                        : st;
}

static bool is_over(const embps_export_t *export)
{
    for (uint32_t s = 0; s < export->n_sources; s++) {
        if (export->sources[s].request != NULL)
            return false;
    }
    return true;
}

int embps_export_next(embps_export_t *export, embps_block_t *block_out, embps_error_t *error)
{
    while (export->error.code == PSC_OK) {
        const bool over = is_over(export);
        psc_error_t what = PSC_ERROR_INIT;
        psc_status_t st = over ? PSC_OK : take(export, &what);
        uint64_t relaid = export->relaid;
        if (!export->told && psw_client_again(export->table->client, st, &relaid)) {
            st = begin(export, &what);
            if (st == PSC_OK)
                continue;
        }
        if (st != PSC_OK) {
            export->error = what;
            break;
        }
        if (over)
            psw_block_clear(&export->block);
        const psw_block_t *block = &export->block;
        if (!over && block->n == 0)
            continue;
        export->told = true;
        *block_out = (embps_block_t){.size = sizeof *block_out,
                                     .n = block->n,
                                     .dim = export->table->dim,
                                     .state_floats = block->state_floats,
                                     .ids = block->ids,
                                     .rows = block->rows,
                                     .state = block->state_floats != 0 ? block->state : NULL,
                                     .counts = block->counts};
        return 0;
    }
    return psw_error_export(&export->error, error);
}

void embps_export_end(embps_export_t *export)
{
    if (export == NULL)
        return;
    end_sources(export);
    psw_block_clear(&export->block);
    psc_free(export);
}
