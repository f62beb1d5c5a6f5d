/*
 * Tables that exist, for programs that did not make them.
 *
 * Server 0 has every table, so it is asked what there is; the others are asked by name, since one
 * may not have a table yet of which server 0 has just given the number. To open a table that was
 * found is to open it with the options that were told, which every server then compares.
 */
#include "worker/client_state.h"
#include "worker/table_options.h"

#include <inttypes.h>

static psc_status_t ask_once(embps_client_t *client, psp_message_t *message, uint32_t first,
                             uint32_t n_servers, psp_find_table_reply_t *found_out,
                             psc_error_t *error)
{
    psw_request_t *request;
    psc_status_t st = psw_client_ask(client, message, first, n_servers, &request, error);
    if (st != PSC_OK)
        return st;
    st = psw_driver_wait(&client->driver, request, error);
    *found_out = request->found;
    psc_status_t finished = psw_client_finish(client, request, error);
    return st != PSC_OK ? st : finished;
}

/* Server 0, or all the others; name NULL: the table after number `after`. */
static psc_status_t ask(embps_client_t *client, const char *name, uint32_t after, bool others,
                        psp_find_table_reply_t *found_out, psc_error_t *error)
{
    psp_message_t message = {.kind = PSP_FIND_TABLE, .u.find_table.after = after};
    uint64_t relaid = psw_core_relaid(client->driver.core);
    psc_status_t st = PSC_OK;
    if (name != NULL)
        st = psw_copy_name("table name", name, message.u.find_table.name, error);
    if (st != PSC_OK)
        return st;
    do {
        const uint32_t n_servers = psw_core_n_servers(client->driver.core);
        *found_out = (psp_find_table_reply_t){.found = false};
        if (others && n_servers == 1)
            return PSC_OK;
        st = ask_once(client, &message, others ? 1 : 0, others ? n_servers : 1, found_out, error);
    } while (psw_client_again(client, st, &relaid));
    return st;
}

void psw_table_options(const psp_open_table_t *from, embps_table_options_t *out)
{
    *out = (embps_table_options_t)EMBPS_TABLE_OPTIONS_DEFAULT;
    out->init = from->init;
    out->optimizer = from->optimizer;
    out->n_init_params = from->n_init_params;
    out->n_optimizer_params = from->n_optimizer_params;
    memcpy(out->init_params, from->init_params, sizeof out->init_params);
    memcpy(out->optimizer_params, from->optimizer_params, sizeof out->optimizer_params);
    out->precision = psp_precision_name(from->precision);
    out->state_precision = psp_precision_name(from->state_precision);
#define COPY(option) out->option = from->option;
    PSP_TABLE_WHOLE_OPTIONS(COPY)
    PSP_TABLE_REAL_OPTIONS(COPY)
#undef COPY
}

_Static_assert(sizeof(((embps_table_options_t *)0)->init_params) ==
                   sizeof(((psp_open_table_t *)0)->init_params),
               "as many parameters on the wire as in embps.h");

int embps_table_find(embps_client_t *client, const char *name, embps_table_t **table_out,
                     embps_error_t *error)
{
    psc_error_t what = PSC_ERROR_INIT;
    psp_find_table_reply_t found;
    if (client == NULL || table_out == NULL || name == NULL) {
        (void)psc_error_set(&what, PSC_INVALID_ARGUMENT,
                            "embps_table_find needs a client, a name and a place for the table");
        return psw_error_export(&what, error);
    }
    psc_status_t st = ask(client, name, 0, false, &found, &what);
    if (st == PSC_OK && !found.found)
        st = psc_error_set(&what, PSC_NOT_FOUND, "there is no table %s", name);
    if (st != PSC_OK)
        return psw_error_export(&what, error);
    embps_table_options_t options;
    psw_table_options(&found.options, &options);
    return embps_table_open(client, name, &options, table_out, error);
}

int embps_tables(embps_client_t *client, embps_table_fn fn, void *context, embps_error_t *error)
{
    psc_error_t what = PSC_ERROR_INIT;
    uint32_t after = 0;
    for (;;) {
        psp_find_table_reply_t found, others = {.rows_created = 0};
        psc_status_t st = ask(client, NULL, after, false, &found, &what);
        if (st == PSC_OK && found.found && found.options.table <= after)
            st =
                psc_error_set(&what, PSC_PROTOCOL,
                              "server 0 told table %" PRIu32 " when it was asked for the one after "
                              "%" PRIu32,
                              found.options.table, after);
        if (st == PSC_OK && found.found)
            st = ask(client, found.options.name, 0, true, &others, &what);
        if (st != PSC_OK)
            return psw_error_export(&what, error);
        if (!found.found)
            return 0;
        embps_table_options_t options;
        psw_table_options(&found.options, &options);
        fn(context, found.options.name, &options, found.rows_created + others.rows_created);
        after = found.options.table;
    }
}
