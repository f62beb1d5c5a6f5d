/*
 * embps get: rows of a table of running servers. Reading creates nothing.
 */
#include "common/alloc.h"
#include "common/output.h"
#include "worker/programs/client_error.h"
#include "worker/programs/json_real.h"
#include "worker/tool/address_options.h"
#include "worker/tool/commands.h"
#include "worker/tool/hit_output.h"
#include "worker/tool/word_list.h"

#include <inttypes.h>
#include <jansson.h>

#define OTHER_WORDS 2u /* address and table */

static const psc_command_t command = {
    .name = "embps get",
    .synopsis = "ADDRESS TABLE ID... [options]",
    .summary = "Shows rows of a table of running servers.",
    .description = "ADDRESS is that of one of the servers (embps-server --listen), an ID a whole "
                   "number below 2^64. A row that was never pushed is shown with its initial "
                   "value; it is not created.",
    .operands = "ADDRESS TABLE ID...",
    .min_operands = OTHER_WORDS + 1,
    .examples = "embps get 127.0.0.1:50051 words 7 42",
};

static const char *const states[] = {[EMBPS_ROW_PRESENT] = "present",
                                     [EMBPS_ROW_INITIAL] = "initial",
                                     [EMBPS_ROW_NOT_ADMITTED] = "not admitted",
                                     [EMBPS_ROW_EXPIRED] = "expired"};

typedef struct rows {
    size_t n;
    uint32_t dim;
    uint64_t *ids;   /* [n] */
    uint8_t *states; /* [n] */
    float *values;   /* [n, dim] */
} rows_t;

static void free_rows(rows_t *rows)
{
    psc_free(rows->ids);
    psc_free(rows->states);
    psc_free(rows->values);
}

static psc_status_t pull(const psw_visit_t *visit, rows_t *rows, psc_error_t *error)
{
    embps_error_t what;
    embps_table_t *table;
    size_t n_values;
    psc_status_t st = psw_visit_table(visit, visit->words.items[1], &table, error);
    if (st != PSC_OK)
        return st;
    rows->dim = embps_table_dim(table);
    rows->states = psc_alloc_array(rows->n, sizeof *rows->states);
    if (psc_size_multiply(rows->n, rows->dim, &n_values))
        rows->values = psc_alloc_array(n_values, sizeof *rows->values);
    if (rows->states == NULL || rows->values == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "no memory for %zu rows", rows->n);
    const int code =
        embps_pull_states(table, rows->ids, rows->n, rows->values, rows->states, 0, &what);
    return code == 0 ? PSC_OK : psw_error_import(&what, error);
}

static psc_status_t print_json(const rows_t *rows, psc_error_t *error)
{
    json_t *all = json_array();
    for (size_t i = 0; i < rows->n; i++) {
        char id[24]; /* as text: not every reader of JSON has whole numbers of 64 bits */
        json_t *values = json_array();
        (void)snprintf(id, sizeof id, "%" PRIu64, rows->ids[i]);
        for (size_t c = 0; c < rows->dim; c++) {
            const float value = rows->values[i * rows->dim + c];
            (void)json_array_append_new(values, psw_json_real((double)value));
        }
        (void)json_array_append_new(all, json_pack("{s:s, s:s, s:o}", "id", id, "state",
                                                   states[rows->states[i]], "row", values));
    }
    return psw_json_print(all, error);
}

static psc_status_t print_text(const rows_t *rows, psc_error_t *error)
{
    for (size_t i = 0; i < rows->n; i++) {
        (void)printf("%" PRIu64 "  %s ", rows->ids[i], states[rows->states[i]]);
        for (size_t c = 0; c < rows->dim; c++)
            (void)printf(" %.9g", (double)rows->values[i * rows->dim + c]);
        (void)printf("\n");
    }
    return psc_output_flush(error);
}

static psc_status_t read_rows(const psw_visit_t *visit, rows_t *rows, psc_error_t *error)
{
    psc_status_t st = PSC_OK;
    rows->n = visit->words.n - OTHER_WORDS;
    rows->ids = psc_alloc_array(rows->n, sizeof *rows->ids);
    if (rows->ids == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "no memory for %zu ids", rows->n);
    for (size_t i = 0; st == PSC_OK && i < rows->n; i++)
        st = psw_parse_id("get", visit->words.items[OTHER_WORDS + i], &rows->ids[i], error);
    return st == PSC_OK ? pull(visit, rows, error) : st;
}

static psc_status_t get(const psw_visit_t *visit, psc_error_t *error)
{
    rows_t rows = {0};
    psc_status_t st = read_rows(visit, &rows, error);
    if (st == PSC_OK && rows.states != NULL && rows.values != NULL)
        st = visit->options.json ? print_json(&rows, error) : print_text(&rows, error);
    free_rows(&rows);
    return st;
}

psc_status_t psw_tool_get(int argc, char *const argv[], psc_error_t *error)
{
    return psw_visit(&command, argc, argv, get, error);
}
