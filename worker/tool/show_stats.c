/*
 * embps status and embps stats: what servers say of themselves.
 *
 * stats prints every counter, summed over the servers. status prints the few of them that tell at
 * once whether all is well. Neither opens a table.
 */
#include "common/output.h"
#include "worker/programs/client_error.h"
#include "worker/tool/address_options.h"
#include "worker/tool/commands.h"
#include "worker/tool/hit_output.h"

#include <inttypes.h>
#include <jansson.h>
#include <string.h>

static const psc_command_t stats_command = {
    .name = "embps stats",
    .synopsis = "ADDRESS [options]",
    .summary = "Shows all counters of running servers.",
    .description = "ADDRESS is that of one of the servers (embps-server --listen); counters are "
                   "sums over all of them.",
    .operands = "ADDRESS",
    .min_operands = 1,
    .max_operands = 1,
    .examples = "embps stats 127.0.0.1:50051",
};

static const psc_command_t status_command = {
    .name = "embps status",
    .synopsis = "ADDRESS [options]",
    .summary = "Shows how running servers fare.",
    .description = "ADDRESS is that of one of the servers (embps-server --listen); numbers are "
                   "sums over all of them.",
    .operands = "ADDRESS",
    .min_operands = 1,
    .max_operands = 1,
    .examples = "embps status 127.0.0.1:50051",
};

/* Counters of the servers that status shows. */
static const struct {
    const char *counter, *label;
} shown[] = {
    {"store.rows_hot", "rows in memory"},
    {"store.bytes_hot", "bytes of them"},
    {"store.bytes_budget", "bytes at most"},
    {"rows.created", "rows created"},
    {"rows.pulled", "rows pulled"},
    {"rows.pushed", "rows pushed"},
    {"store.cold_reads", "rows from disk"},
    {"requests.refused", "requests refused"},
    {"guests", "guests so far"},
    {"bytes.in", "bytes received"},
    {"bytes.out", "bytes sent"},
};
enum { N_SHOWN = sizeof shown / sizeof shown[0] };

static bool is_of_servers(const char *name)
{
    return strncmp(name, "client.", strlen("client.")) != 0;
}

static void add_counter(void *context, const char *name, uint64_t value)
{
    if (is_of_servers(name))
        (void)json_object_set_new(context, name, json_integer((json_int_t)value));
}

static void print_counter(void *context, const char *name, uint64_t value)
{
    psw_shown_t room;
    (void)context;
    if (is_of_servers(name))
        (void)printf("%-32s%16" PRIu64 "\n", psw_show(name, &room), value);
}

static void keep_shown(void *context, const char *name, uint64_t value)
{
    uint64_t *values = context;
    for (size_t i = 0; i < N_SHOWN; i++) {
        if (strcmp(shown[i].counter, name) == 0)
            values[i] = value;
    }
}

static psc_status_t count(const psw_visit_t *visit, embps_counter_fn fn, void *context,
                          psc_error_t *error)
{
    embps_error_t what;
    const int code = embps_stats(visit->client, fn, context, &what);
    return code == 0 ? PSC_OK : psw_error_import(&what, error);
}

static psc_status_t print_stats(const psw_visit_t *visit, psc_error_t *error)
{
    json_t *all = visit->options.json ? json_object() : NULL;
    psc_status_t st = count(visit, all != NULL ? add_counter : print_counter, all, error);
    if (st != PSC_OK) {
        json_decref(all);
        return st;
    }
    return visit->options.json ? psw_json_print(all, error) : psc_output_flush(error);
}

psc_status_t psw_tool_stats(int argc, char *const argv[], psc_error_t *error)
{
    return psw_visit(&stats_command, argc, argv, print_stats, error);
}

static psc_status_t print_status(const psw_visit_t *visit, psc_error_t *error)
{
    uint64_t values[N_SHOWN] = {0};
    char run[20];
    psc_status_t st = count(visit, keep_shown, values, error);
    if (st != PSC_OK)
        return st;
    (void)snprintf(run, sizeof run, "%016" PRIx64, embps_cluster(visit->client));
    if (visit->options.json) {
        json_t *all =
            json_pack("{s:s, s:i}", "run", run, "servers", (int)embps_server_count(visit->client));
        for (size_t i = 0; i < N_SHOWN; i++)
            (void)json_object_set_new(all, shown[i].counter, json_integer((json_int_t)values[i]));
        return psw_json_print(all, error);
    }
    (void)printf("%-20s%20s\n%-20s%20" PRIu32 "\n", "run", run, "servers",
                 embps_server_count(visit->client));
    for (size_t i = 0; i < N_SHOWN; i++)
        (void)printf("%-20s%20" PRIu64 "\n", shown[i].label, values[i]);
    return psc_output_flush(error);
}

psc_status_t psw_tool_status(int argc, char *const argv[], psc_error_t *error)
{
    return psw_visit(&status_command, argc, argv, print_status, error);
}
