/*
 * embps-bench pulls: so many pulls of the same rows from a server that runs, and nothing else.
 *
 * For tools that look at a process from outside and have to know what it did: tests/bench/copies
 * compares two counts of pulls, so that what else either side does, which both runs do, cancels
 * out. The rows are pushed first.
 */
#include "common/alloc.h"
#include "common/options.h"
#include "embps.h"
#include "tests/bench/bench_commands.h"
#include "worker/programs/client_error.h"

#define PATIENCE_MS 600000 /* a tool may make a server very slow */
#define SPREAD_IDS UINT64_C(0x9e3779b97f4a7c15)

typedef struct pulls_options {
    const char *address;
    uint64_t rows, dim, pulls;
} pulls_options_t;

static const psc_option_t options_table[] = {
    {.name = "address",
     .argument = "HOST:PORT",
     .type = PSC_OPTION_TEXT,
     .offset = offsetof(pulls_options_t, address),
     .default_value = "127.0.0.1:7600",
     .help = "A server that listens."},
    {.name = "rows",
     .argument = "N",
     .type = PSC_OPTION_U64,
     .offset = offsetof(pulls_options_t, rows),
     .min = 1,
     .max = 100000,
     .default_value = "8192",
     .help = "Rows of a pull."},
    {.name = "dim",
     .argument = "N",
     .type = PSC_OPTION_U64,
     .offset = offsetof(pulls_options_t, dim),
     .min = 1,
     .max = 4096,
     .default_value = "128",
     .help = "Numbers of a row."},
    {.name = "pulls",
     .argument = "N",
     .type = PSC_OPTION_U64,
     .offset = offsetof(pulls_options_t, pulls),
     .min = 0,
     .max = 1000000,
     .default_value = "1",
     .help = "How many, one after another."},
};

static const psc_command_t command = {
    .name = "embps-bench pulls",
    .synopsis = "[options]",
    .summary = "so many pulls from a server that runs",
    .description = "Pushes rows to a server, and pulls them as often as it is told. For tools that "
                   "look at either process from outside.",
    .options = options_table,
    .n_options = sizeof options_table / sizeof options_table[0],
    .examples = "embps-bench pulls --address 127.0.0.1:7600 --pulls 10",
};

static int pull_all(const pulls_options_t *options, embps_client_t *client, const uint64_t *ids,
                    float *rows, embps_error_t *error)
{
    embps_table_options_t of_table = EMBPS_TABLE_OPTIONS_DEFAULT;
    embps_table_t *table;
    const size_t n = (size_t)options->rows;
    of_table.dim = (uint32_t)options->dim;
    int code = embps_table_open(client, "rows", &of_table, &table, error);
    if (code == 0)
        code = embps_push(table, EMBPS_DELTA, ids, n, rows, 0, error);
    for (uint64_t i = 0; code == 0 && i < options->pulls; i++)
        code = embps_pull(table, ids, n, rows, error);
    return code;
}

psc_status_t bench_pulls(int argc, char *const argv[], psc_error_t *error)
{
    pulls_options_t options = {0};
    psc_parse_result_t parsed;
    embps_client_t *client = NULL;
    embps_error_t what;
    psc_status_t st = psc_options_parse(&command, argc, argv, &options, NULL, NULL, &parsed, error);
    if (st != PSC_OK || parsed == PSC_PARSE_EXIT)
        return st;
    uint64_t *ids = psc_alloc_array((size_t)options.rows, sizeof *ids);
    float *rows = psc_alloc_zeroed((size_t)(options.rows * options.dim), sizeof *rows);
    if (ids == NULL || rows == NULL) {
        st = psc_error_set(error, PSC_NO_MEMORY, "no memory for the rows");
    } else {
        for (uint64_t i = 0; i < options.rows; i++)
            ids[i] = i * SPREAD_IDS;
        embps_connect_options_t of_connection = EMBPS_CONNECT_OPTIONS_DEFAULT;
        of_connection.wait_ms = PATIENCE_MS;
        int code = embps_connect(options.address, &of_connection, &client, &what);
        if (code == 0) {
            embps_set_timeout(client, PATIENCE_MS);
            code = pull_all(&options, client, ids, rows, &what);
        }
        if (code == 0)
            code = embps_close(client, &what);
        else
            embps_abandon(client, code);
        st = code == 0 ? PSC_OK : psw_error_import(&what, error);
    }
    psc_free(ids);
    psc_free(rows);
    return st;
}
