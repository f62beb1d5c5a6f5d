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
    uint32_t n_sources, turn;
    psw_block_t block; /* that was handed on last */
    psc_error_t error; /* the first one */
    source_t sources[];
};

static psc_status_t ask(embps_export_t *export, uint32_t server, const psw_block_t *last,
                        psc_error_t *error)
{
    embps_client_t *client = export->table->client;
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
    psc_status_t st = psw_client_ask(client, &message, server, server + 1, request, error);
    if (st != PSC_OK)
        return st;
    bool moved;
    (*request)->dim = export->table->dim;
    return psw_driver_step(&client->driver, &moved, error);
}

static psc_status_t start(embps_table_t *table, uint32_t flags, embps_export_t **export_out,
                          psc_error_t *error)
{
    if (table == NULL || export_out == NULL || (flags & ~EMBPS_EXPORT_STATE) != 0)
        return psc_error_set(error, PSC_INVALID_ARGUMENT,
                             "embps_export_start needs a table, a place for the export, and flags "
                             "0 or EMBPS_EXPORT_STATE");
    embps_client_t *client = table->client;
    psc_status_t st = psw_cached_flush_all(client, error);
    if (st != PSC_OK)
        return st;
    const uint32_t n = psw_core_n_servers(client->driver.core);
    embps_export_t *export = psc_alloc_zeroed(1, sizeof *export + n * sizeof export->sources[0]);
    if (export == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "no memory for an export");
    export->table = table;
    export->want_state = (flags & EMBPS_EXPORT_STATE) != 0;
    export->n_sources = n;
    export->error = (psc_error_t)PSC_ERROR_INIT;
    for (uint32_t s = 0; s < n && st == PSC_OK; s++)
        st = ask(export, s, NULL, error);
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
        if (!over && take(export, &what) != PSC_OK) {
            export->error = what;
            break;
        }
        if (over)
            psw_block_clear(&export->block);
        const psw_block_t *block = &export->block;
        if (!over && block->n == 0)
            continue;
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
    for (uint32_t s = 0; s < export->n_sources; s++) {
        psw_request_t *request = export->sources[s].request;
        /* An answer that nobody wants any more. */
        if (request != NULL && psw_client_finish(export->table->client, request, NULL) != PSC_OK)
            continue;
    }
    psw_block_clear(&export->block);
    psc_free(export);
}
