/*
 * OpenTable: creates a table or finds it, and checks that it is the one that was meant.
 *
 * Server 0 gives the numbers; a worker asks it first (table 0) and then tells the others the
 * number, so that a table has the same number everywhere although servers never talk to each other.
 * Several workers may do so at once: whoever comes second finds the table and compares.
 *
 * A new table's name must be one that can be shown; server 0 sees to it, and the others follow its
 * number. Tables that are there, and those of a checkpoint, keep the names that they have.
 */
#include "ps/serve/serve.h"

#include "common/alloc.h"
#include "common/text.h"

#include <inttypes.h>
#include <string.h>

static ps_table_t *find_by_name(const ps_shard_t *shard, const char *name)
{
    for (uint32_t i = 1; i < shard->n_tables; i++) {
        if (shard->tables[i] != NULL && strcmp(shard->tables[i]->name, name) == 0)
            return shard->tables[i];
    }
    return NULL;
}

/* Room for a table of this number, and for one row of it. */
static psc_status_t reserve(ps_shard_t *shard, uint32_t number, const ps_table_t *wanted,
                            psc_error_t *error)
{
    if (number >= shard->n_tables) {
        ps_table_t **tables = psc_realloc_array(shard->tables, number + 1, sizeof(ps_table_t *));
        if (tables == NULL)
            return psc_error_set(error, PSC_NO_MEMORY, "out of memory for a table");
        for (uint32_t i = shard->n_tables; i <= number; i++)
            tables[i] = NULL;
        shard->tables = tables;
        shard->n_tables = number + 1;
    }
    return ps_row_scratch_reserve(&shard->scratch_row, wanted, error);
}

/* The table, and its companion. */
static psc_status_t add_to_store(ps_shard_t *shard, const ps_table_t *table, psc_error_t *error)
{
    ps_store_t *store = shard->options.store;
    size_t row_bytes = ps_table_row_bytes(table);
    psc_status_t st = ps_store_table_add(store, table->number, row_bytes, error);
    if (st == PSC_OK && ps_growth_shares(table->growth))
        st = ps_store_table_add(store, table->growth->companion.number, row_bytes, error);
    return st;
}

psc_status_t ps_serve_make_table(ps_shard_t *shard, uint32_t number, const ps_table_t *wanted,
                                 ps_table_t **table_out, psc_error_t *error)
{
    psc_status_t st = reserve(shard, number, wanted, error);
    if (st != PSC_OK)
        return st;
    ps_table_t *table = psc_alloc(sizeof *table);
    if (table == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "out of memory for a table");
    *table = *wanted;
    table->number = (uint16_t)number;
    table->epoch = 1;
    st = ps_growth_create(table, &shard->map, shard->options.rank, ps_shard_time(shard),
                          shard->options.store, &table->growth, error);
    if (st == PSC_OK)
        st = add_to_store(shard, table, error);
    if (st != PSC_OK) {
        ps_growth_destroy(table->growth, shard->options.store);
        psc_free(table);
        return st;
    }
    /* All rows of one message are in memory at once, together with those that they share: the store
     * may ask for fewer than would fit. */
    size_t of_message = psp_rows_per_message(table->dim, shard->options.max_message_bytes);
    size_t of_store = ps_store_max_batch(shard->options.store, table->number);
    if (ps_growth_shares(table->growth))
        of_store /= 2;
    table->max_rows = of_message < of_store ? of_message : of_store;
    shard->tables[number] = table;
    *table_out = table;
    return PSC_OK;
}

static psc_status_t check_name(const char *name, psc_error_t *error)
{
    const size_t length = strlen(name), at = psc_text_find_hidden(name, length);
    if (at == length)
        return PSC_OK;
    return psc_error_set(error, PSC_INVALID_ARGUMENT,
                         "table name: byte 0x%02x at offset %zu is a control character or no UTF-8",
                         (unsigned)(uint8_t)name[at], at);
}

/* The number of a new table. */
static psc_status_t choose_number(const ps_shard_t *shard, const psp_open_table_t *options,
                                  uint32_t *number_out, psc_error_t *error)
{
    uint32_t number = options->table;
    if (number == 0 && shard->options.rank == 0)
        number = shard->n_tables != 0 ? shard->n_tables : 1;
    if (number == 0)
        return psc_error_set(error, PSC_PROTOCOL,
                             "table %.80s has no number yet: server 0 gives it", options->name);
    if (number > PS_TABLES_MAX)
        return psc_error_set(error, PSC_INVALID_ARGUMENT,
                             "table %.80s would have number %" PRIu32 ", the last is %u",
                             options->name, number, PS_TABLES_MAX);
    if (number < shard->n_tables && shard->tables[number] != NULL)
        return psc_error_set(error, PSC_MISMATCH,
                             "table %.80s was given number %" PRIu32 ", which here is table %.80s",
                             options->name, number, shard->tables[number]->name);
    *number_out = number;
    return PSC_OK;
}

psc_status_t ps_serve_open_table(ps_shard_t *shard, ps_session_t *session, ps_request_t *request,
                                 psc_error_t *error)
{
    (void)session;
    const psp_open_table_t *options = &request->message.u.open_table;
    ps_table_t wanted;
    psc_status_t st = ps_table_define(options, &wanted, error);
    if (st != PSC_OK)
        return st;
    ps_table_t *table = find_by_name(shard, wanted.name);
    if (table != NULL) {
        st = ps_permit_table(request, table->name, PSP_RIGHT_ANY, error);
        if (st == PSC_OK)
            st = ps_table_compare(table, &wanted, error);
        if (st == PSC_OK && options->table != 0 && options->table != table->number)
            st = psc_error_set(error, PSC_MISMATCH, "table %.80s has number %u here, not %" PRIu32,
                               table->name, table->number, options->table);
    } else {
        uint32_t number = 0;
        st = ps_permit_change(shard, "a new table", error);
        if (st == PSC_OK)
            st = ps_permit_table(request, wanted.name, PSP_RIGHT_ADMIN, error);
        if (st == PSC_OK && shard->options.rank == 0)
            st = check_name(wanted.name, error);
        if (st == PSC_OK)
            st = choose_number(shard, options, &number, error);
        if (st == PSC_OK)
            st = ps_serve_make_table(shard, number, &wanted, &table, error);
        if (st == PSC_OK)
            ps_logger_table(shard, table);
    }
    if (st != PSC_OK)
        return st;
    psp_message_t reply = {
        .kind = PSP_OPEN_TABLE_REPLY,
        .u.open_table_reply = {.table = table->number,
                               .table_epoch = table->epoch,
                               .max_rows = (uint32_t)table->max_rows},
    };
    return ps_shard_reply(shard, request, &reply, error);
}
