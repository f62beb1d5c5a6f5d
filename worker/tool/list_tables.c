/*
 * embps tables: the tables of running servers, and how they were made.
 */
#include "common/output.h"
#include "worker/programs/client_error.h"
#include "worker/programs/json_real.h"
#include "worker/tool/address_options.h"
#include "worker/tool/commands.h"
#include "worker/tool/hit_output.h"

#include <inttypes.h>
#include <jansson.h>
#include <string.h>

static const psc_command_t command = {
    .name = "embps tables",
    .synopsis = "ADDRESS [options]",
    .summary = "Lists the tables of running servers.",
    .description = "ADDRESS is that of one of the servers (embps-server --listen). Rows are those "
                   "that came into being since the servers began.",
    .operands = "ADDRESS",
    .min_operands = 1,
    .max_operands = 1,
    .examples = "embps tables 127.0.0.1:50051",
};

static json_t *numbers(const double *values, uint32_t n)
{
    json_t *all = json_array();
    for (uint32_t i = 0; i < n; i++)
        (void)json_array_append_new(all, psw_json_real(values[i]));
    return all;
}

static void add_table(void *context, const char *name, const embps_table_options_t *options,
                      uint64_t n_rows_created)
{
    json_t *table =
        json_pack("{s:o, s:I, s:o, s:o, s:o, s:o, s:s, s:s, s:I}", "name",
                  psw_json_text(name, strlen(name)), "dim", (json_int_t)options->dim, "init",
                  psw_json_text(options->init, strlen(options->init)), "init_params",
                  numbers(options->init_params, options->n_init_params), "optimizer",
                  psw_json_text(options->optimizer, strlen(options->optimizer)), "optimizer_params",
                  numbers(options->optimizer_params, options->n_optimizer_params), "precision",
                  options->precision, "state_precision", options->state_precision, "rows_created",
                  (json_int_t)n_rows_created);
    (void)json_array_append_new(context, table);
}

static void print_table(void *context, const char *name, const embps_table_options_t *options,
                        uint64_t n_rows_created)
{
    psw_shown_t shown, init, optimizer;
    (void)context;
    (void)psw_show(name, &shown);
    (void)printf("%-*s%8" PRIu32 "  %-18s%-22s%-6s%16" PRIu64 "\n", psw_shown_width(shown.text, 24),
                 shown.text, options->dim, psw_show(options->init, &init),
                 psw_show(options->optimizer, &optimizer), options->precision, n_rows_created);
}

static psc_status_t print_tables(const psw_visit_t *visit, psc_error_t *error)
{
    embps_error_t what;
    json_t *all = visit->options.json ? json_array() : NULL;
    if (all == NULL)
        (void)printf("%-24s%8s  %-18s%-22s%-6s%16s\n", "table", "dim", "init", "optimizer", "",
                     "rows");
    const int code = embps_tables(visit->client, all != NULL ? add_table : print_table, all, &what);
    if (code != 0) {
        json_decref(all);
        return psw_error_import(&what, error);
    }
    return visit->options.json ? psw_json_print(all, error) : psc_output_flush(error);
}

psc_status_t psw_tool_tables(int argc, char *const argv[], psc_error_t *error)
{
    return psw_visit(&command, argc, argv, print_tables, error);
}
