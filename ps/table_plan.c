/*
 * A table is defined by ps_table_define, as OpenTable does it, and its row's bytes are given to the
 * store's plan; there are no sizes of optimizers or precisions here.
 *
 * A server owns whole slots, one in 16,384 of all rows each. The plan is for a server with the most
 * of them, every slot with the same number of rows; hashes make that true within a percent once
 * slots have thousands of rows. What admission and expiry count with is taken off the memory as the
 * server takes it (ps_growth_bytes); shared rows are rows like others, one for each slot.
 */
#include "ps/table_plan.h"

#include "common/slots.h"
#include "ps/table/growth.h"
#include "ps/table/schema.h"

#include <inttypes.h>
#include <stdio.h>

#define MAX_ROWS ((uint64_t)1 << 40)

static psc_status_t find_precision(const char *name, const char *option,
                                   psp_precision_t *precision_out, psc_error_t *error)
{
    if (psp_precision_find(name, precision_out))
        return PSC_OK;
    return psc_error_set(error, PSC_INVALID_ARGUMENT,
                         "there is no %s \"%.60s\"; there are: f32, bf16, f16", option, name);
}

static psc_status_t define(const ps_table_plan_request_t *request, ps_table_t *table_out,
                           psc_error_t *error)
{
    psp_open_table_t options = {.name = "planned",
                                .dim = request->dim,
                                .init = "zeros",
                                .admit_after = request->admit_after,
                                .admit_counters = request->admit_counters,
                                .admit_shared = request->admit_shared,
                                .expire_after = request->expire_after,
                                .expire_rare_after = request->expire_rare_after,
                                .expire_rare_below = request->expire_rare_below,
                                .expire_floor = request->expire_floor};
    (void)snprintf(options.optimizer, sizeof options.optimizer, "%s", request->optimizer);
    psc_status_t st = find_precision(request->precision, "precision", &options.precision, error);
    if (st == PSC_OK)
        st = find_precision(request->state_precision, "state_precision", &options.state_precision,
                            error);
    return st == PSC_OK ? ps_table_define(&options, table_out, error) : st;
}

static psc_status_t check(const ps_table_plan_request_t *request, psc_error_t *error)
{
    if (request->rows > MAX_ROWS)
        return psc_error_set(error, PSC_INVALID_ARGUMENT,
                             "%" PRIu64 " rows are more than can be planned for, %" PRIu64,
                             request->rows, MAX_ROWS);
    if (request->n_servers == 0 || request->n_servers > PSC_MAX_SERVERS)
        return psc_error_set(error, PSC_INVALID_ARGUMENT, "%" PRIu32 " servers: 1 to %u can be",
                             request->n_servers, PSC_MAX_SERVERS);
    if (request->memory_bytes < PS_STORE_MIN_MEMORY)
        return psc_error_set(error, PSC_INVALID_ARGUMENT,
                             "memory of %" PRIu64 " bytes is too little: at least %" PRIu64
                             " are needed",
                             request->memory_bytes, PS_STORE_MIN_MEMORY);
    return PSC_OK;
}

psc_status_t ps_table_plan(const ps_table_plan_request_t *request, ps_table_plan_t *plan_out,
                           psc_error_t *error)
{
    ps_table_t table;
    psc_status_t st = check(request, error);
    if (st == PSC_OK)
        st = define(request, &table, error);
    if (st != PSC_OK)
        return st;
    size_t row_bytes = ps_table_row_bytes(&table);
    uint64_t slots = (PSC_SLOT_COUNT + request->n_servers - 1) / request->n_servers;
    uint64_t growth_bytes = ps_growth_bytes(&table, slots);
    ps_table_plan_t plan = {.header_bytes = sizeof(ps_row_header_t),
                            .weight_bytes = table.weight_bytes,
                            .state_bytes = table.state_bytes,
                            .server_growth_bytes = growth_bytes,
                            .server_shared_rows = table.admit_shared ? slots : 0};
    ps_store_plan(request->memory_bytes, growth_bytes, row_bytes, &plan.store);
    plan.smallest_memory_bytes = ps_store_plan_memory(growth_bytes, row_bytes, 0);
    if (!plan.store.works && plan.smallest_memory_bytes == 0)
        return psc_error_set(error, PSC_INVALID_ARGUMENT,
                             "rows of %zu bytes are too large for any memory", row_bytes);
    if (!plan.store.works)
        return psc_error_set(error, PSC_INVALID_ARGUMENT,
                             "a memory of %" PRIu64 " bytes is too little for rows of %zu bytes; "
                             "the smallest that works is %" PRIu64 "M",
                             request->memory_bytes, row_bytes, plan.smallest_memory_bytes >> 20);
    plan.row_memory_bytes = (double)plan.store.page_bytes / (double)plan.store.page_rows +
                            (double)plan.store.book_row_bytes;
    plan.server_rows = (request->rows * slots + PSC_SLOT_COUNT - 1) / PSC_SLOT_COUNT;
    uint64_t all_rows = plan.server_rows + plan.server_shared_rows;
    plan.server_hot_rows = all_rows < plan.store.max_rows ? all_rows : plan.store.max_rows;
    plan.server_resident_bytes = request->memory_bytes + PS_TABLE_PLAN_BESIDE_BYTES;
    plan.server_live_disk_bytes = all_rows * plan.store.disk_row_bytes;
    plan.server_disk_bytes = ps_store_plan_disk(request->memory_bytes, row_bytes, all_rows);
    plan.all_hot_memory_bytes = ps_store_plan_memory(growth_bytes, row_bytes, all_rows);
    *plan_out = plan;
    return PSC_OK;
}
