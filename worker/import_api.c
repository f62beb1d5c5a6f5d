/*
 * Imports: the rows of a block, sent to their owners.
 *
 * What can be wrong with a call is found before its first message, as for a push. Rows with counts
 * are what an export told: they go back as they are, whatever pushes had made of them, since a
 * table that can be exported must be one that can be imported. A program's own values must be
 * finite, like those of a push. The rows of one server go in messages as long as they may be, in
 * the order of the block; a call waits while more is queued for a server than its window takes, so
 * that it needs no second copy of the block, and then until all is answered. Copies of the table's
 * rows in the client's cache are dropped, since the rows are others now.
 *
 * Threads: the client's.
 */
#include "worker/cached_rows.h"
#include "worker/client_state.h"

static psc_status_t check_finite(const embps_block_t *block, const float *values, size_t width,
                                 const char *what, psc_error_t *error)
{
    const size_t n_values = block->n * width;
    const size_t at = psw_batch_find_not_finite(values, n_values);
    if (at == n_values)
        return PSC_OK;
    const uint64_t id = block->ids[at / width];
    psc_status_t st = psc_error_set(error, PSC_INVALID_ARGUMENT,
                                    "import: the %s of id %llu has a value that is not finite in "
                                    "column %zu; nothing was sent",
                                    what, (unsigned long long)id, at % width);
    if (error != NULL)
        error->id = id;
    return st;
}

static psc_status_t check(const embps_table_t *table, const embps_block_t *block,
                          psc_error_t *error)
{
    if (block == NULL || block->size != sizeof *block)
        return psc_error_set(error, PSC_INVALID_ARGUMENT,
                             "import: no block, or one that does not begin with "
                             "EMBPS_BLOCK_DEFAULT");
    psc_status_t st = psw_check_rows("import", table, block->ids, block->n, block->rows, error);
    if (st != PSC_OK)
        return st;
    if (block->dim != table->dim)
        return psc_error_set(error, PSC_MISMATCH, "import: rows of dim %u into a table of dim %u",
                             block->dim, table->dim);
    if (block->state_floats != 0 && block->state == NULL && block->n != 0)
        return psc_error_set(error, PSC_INVALID_ARGUMENT,
                             "import: state_floats is %u, but there is no state",
                             block->state_floats);
    if (block->counts != NULL)
        return PSC_OK;
    st = check_finite(block, block->rows, block->dim, "row", error);
    if (st == PSC_OK && block->state_floats != 0)
        st = check_finite(block, block->state, block->state_floats, "state", error);
    return st;
}

static void write_rows(const embps_block_t *from, const uint32_t *order, size_t n,
                       const psp_block_t *to)
{
    const size_t row_bytes = from->dim * sizeof(float);
    const size_t state_bytes = from->state_floats * sizeof(float);
    for (size_t j = 0; j < n; j++) {
        const size_t i = order[j];
        memcpy(to->ids + j * sizeof(uint64_t), &from->ids[i], sizeof(uint64_t));
        memcpy(to->rows + j * row_bytes, from->rows + i * from->dim, row_bytes);
        if (state_bytes != 0)
            memcpy(to->state + j * state_bytes, from->state + i * from->state_floats, state_bytes);
        if (from->counts != NULL)
            memcpy(to->counts + j * 2 * sizeof(uint32_t), from->counts + 2 * i,
                   2 * sizeof(uint32_t));
    }
}

/* n rows for a server. */
static psc_status_t send_part(const embps_table_t *table, const embps_block_t *block,
                              psw_request_t *request, uint32_t server, const uint32_t *order,
                              size_t n, psc_error_t *error)
{
    psw_driver_t *driver = &table->client->driver;
    const psp_import_t import = {.rows = {.table = table->number,
                                          .table_epoch = table->epochs[server],
                                          .dim = table->dim,
                                          .n = n},
                                 .state_floats = block->state_floats,
                                 .counts = (const uint8_t *)block->counts};
    psw_part_t part;
    psp_buffer_t *buffer;
    psp_block_t places;
    psc_status_t st =
        psw_driver_wait_room(driver, server, psw_core_window_bytes(driver->core), error);
    if (st == PSC_OK)
        st = psw_core_part(driver->core, request, server, &part, error);
    if (st == PSC_OK)
        st = psp_import_begin(psw_core_pool(driver->core), &part.header, &import, &buffer, &places,
                              error);
    if (st != PSC_OK)
        return st;
    write_rows(block, order, n, &places);
    psw_core_enqueue(driver->core, &part, buffer, 0, 0, 0);
    bool moved;
    return psw_driver_step(driver, &moved, error);
}

static psc_status_t send_all(const embps_table_t *table, const embps_block_t *block,
                             psw_request_t *request, psc_error_t *error)
{
    psw_issuer_t *issuer = &table->client->issuer;
    psw_distinct_t distinct;
    const uint32_t *start = NULL;
    size_t most = psp_rows_per_block(table->dim, block->state_floats,
                                     psw_core_max_message_bytes(issuer->core));
    if (table->max_rows != 0 && table->max_rows < most)
        most = table->max_rows;
    psc_status_t st =
        psw_batch_hash(issuer->batch, table->number, block->ids, block->n, &distinct, error);
    if (st == PSC_OK)
        st = psw_request_reserve_order(request, block->n, error);
    if (st == PSC_OK)
        st = psw_router_split(issuer->router, psw_core_map(issuer->core), distinct.hashes, NULL,
                              block->n, request->order, &start, error);
    for (uint32_t s = 0; st == PSC_OK && s < psw_core_n_servers(issuer->core); s++) {
        for (size_t at = start[s]; st == PSC_OK && at < start[s + 1];) {
            const size_t left = start[s + 1] - at, n = left < most ? left : most;
            st = send_part(table, block, request, s, request->order + at, n, error);
            at += n;
        }
    }
    return st;
}

static psc_status_t import_block(embps_table_t *table, const embps_block_t *block,
                                 uint64_t *created_out, psc_error_t *error)
{
    psw_request_t *request;
    embps_client_t *client = table->client;
    psw_core_t *core = client->driver.core;
    if (psw_core_clock(core) == PSP_CLOCK_END)
        return psc_error_set(error, PSC_INVALID_ARGUMENT,
                             "import: this client's last clock has ended (embps_last_clock)");
    psc_status_t st = psw_cached_flush_all(client, error);
    if (st == PSC_OK)
        st = psw_core_request(core, PSP_IMPORT, &request, error);
    if (st != PSC_OK)
        return st;
    psc_error_t what = PSC_ERROR_INIT;
    st = send_all(table, block, request, &what);
    if (st != PSC_OK) {
        psw_core_give_up(core, request, &what, error);
        return st;
    }
    psw_core_seal(core, request);
    st = psw_driver_wait(&client->driver, request, error);
    psw_cached_reopened(client, table->number, true);
    if (created_out != NULL)
        *created_out = request->imported.created;
    psc_status_t finished = psw_client_finish(client, request, error);
    return st != PSC_OK ? st : finished;
}

int embps_import(embps_table_t *table, const embps_block_t *block, uint64_t *created_out,
                 embps_error_t *error)
{
    psc_error_t what = PSC_ERROR_INIT;
    psc_status_t st = check(table, block, &what);
    if (st != PSC_OK)
        return psw_error_export(&what, error);
    uint64_t relaid = psw_core_relaid(table->client->driver.core);
    do { /* the same rows may be put there twice */
        st = import_block(table, block, created_out, &what);
    } while (psw_client_again(table->client, st, &relaid));
    return st == PSC_OK ? 0 : psw_error_export(&what, error);
}
