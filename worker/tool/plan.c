/*
 * embps plan: what a table will take in memory and on disk, before there are servers.
 *
 * All numbers come from the server's own formulas (ps/table_plan.h, the only header of ps/ that the
 * tool knows); here they are only printed. Nothing is opened, so the answer comes at once. Rows are
 * counted in thousands, bytes in powers of 1,024, as everywhere in the programs' options.
 */
#include "common/options.h"
#include "common/output.h"
#include "common/slots.h"
#include "ps/table_plan.h"
#include "worker/tool/commands.h"
#include "worker/tool/hit_output.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

typedef struct plan_options {
    const char *rows;
    uint64_t dim;
    const char *optimizer, *precision, *state_precision;
    uint64_t memory_bytes, n_servers;
    uint64_t admit_after, admit_counters, expire_after, expire_floor;
    bool admit_shared, json;
} plan_options_t;

static const char *const precisions[] = {"f32", "bf16", "f16", NULL};
static const char *const state_precisions[] = {"f32", "bf16", NULL};

static const psc_option_t options[] = {
    {.name = "rows",
     .argument = "N",
     .type = PSC_OPTION_TEXT,
     .offset = offsetof(plan_options_t, rows),
     .required = true,
     .help = "Rows of the table: a whole number; K, M and G are thousands, millions and billions."},
    {.name = "dim",
     .argument = "N",
     .type = PSC_OPTION_U64,
     .offset = offsetof(plan_options_t, dim),
     .min = 1,
     .max = 65536,
     .required = true,
     .help = "Numbers in a row."},
    {.name = "optimizer",
     .argument = "NAME",
     .type = PSC_OPTION_TEXT,
     .offset = offsetof(plan_options_t, optimizer),
     .default_value = "sgd",
     .help = "The table's optimizer, whose state stands beside the weights."},
    {.name = "precision",
     .argument = "NAME",
     .type = PSC_OPTION_TEXT,
     .offset = offsetof(plan_options_t, precision),
     .default_value = "f32",
     .choices = precisions,
     .help = "Of the weights: f32, bf16 or f16."},
    {.name = "state-precision",
     .argument = "NAME",
     .type = PSC_OPTION_TEXT,
     .offset = offsetof(plan_options_t, state_precision),
     .default_value = "f32",
     .choices = state_precisions,
     .help = "Of the optimizer's moments, if it has any: f32 or bf16."},
    {.name = "memory",
     .argument = "SIZE",
     .type = PSC_OPTION_SIZE,
     .offset = offsetof(plan_options_t, memory_bytes),
     .min = (double)PS_TABLE_PLAN_MIN_MEMORY,
     .max = 0x1p46,
     .default_value = "256M",
     .help = "Memory of each server: its --memory."},
    {.name = "servers",
     .argument = "N",
     .type = PSC_OPTION_U64,
     .offset = offsetof(plan_options_t, n_servers),
     .min = 1,
     .max = 4096,
     .default_value = "1",
     .help = "Servers that share the rows."},
    {.name = "admit-after",
     .argument = "N",
     .type = PSC_OPTION_U64,
     .offset = offsetof(plan_options_t, admit_after),
     .max = 255,
     .help = "The table keeps a row from its N-th push on (admit_after); default: from the first."},
    {.name = "admit-counters",
     .argument = "N",
     .type = PSC_OPTION_U64,
     .offset = offsetof(plan_options_t, admit_counters),
     .max = 262144,
     .help = "Counters of a slot for that (admit_counters); default: the servers' own."},
    {.name = "admit-shared",
     .type = PSC_OPTION_FLAG,
     .offset = offsetof(plan_options_t, admit_shared),
     .help = "Rows that are not kept yet share one row a slot (admit_shared)."},
    {.name = "expire-after",
     .argument = "N",
     .type = PSC_OPTION_U64,
     .offset = offsetof(plan_options_t, expire_after),
     .help = "Rows expire after N clocks without a push (expire_after)."},
    {.name = "expire-floor",
     .argument = "N",
     .type = PSC_OPTION_U64,
     .offset = offsetof(plan_options_t, expire_floor),
     .max = UINT32_MAX,
     .help = "So many rows of each slot never expire (expire_floor)."},
    {.name = "json",
     .type = PSC_OPTION_FLAG,
     .offset = offsetof(plan_options_t, json),
     .help = "Print JSON instead of text, sizes in bytes."},
};

static const psc_command_t command = {
    .name = "embps plan",
    .synopsis = "--rows N --dim N [options]",
    .summary = "Tells the memory and the disk that a table will take.",
    .description =
        "Bytes of a row in memory and on disk, how many rows servers of this memory hold there, "
        "what disk to set aside, and the smallest --memory. Memory is what the servers will count, "
        "to the byte; disk is an estimate. Tables that share servers share their memory.",
    .options = options,
    .n_options = sizeof options / sizeof options[0],
    .examples = "embps plan --rows 50M --dim 4096 --optimizer adam --precision bf16 --memory 600M "
                "--servers 4",
};

static psc_status_t parse_rows(const char *text, uint64_t *rows_out, psc_error_t *error)
{
    static const char units[] = "KMG";
    char *end = NULL;
    errno = 0;
    uint64_t rows = isdigit((unsigned char)text[0]) ? strtoull(text, &end, 10) : 0;
    bool good = end != NULL && errno == 0;
    if (good && *end != '\0') {
        const char *unit = strchr(units, toupper((unsigned char)*end));
        good = unit != NULL && end[1] == '\0';
        for (const char *u = units; good && u <= unit; u++) {
            good = rows <= UINT64_MAX / 1000;
            rows *= 1000;
        }
    }
    if (!good)
        return psc_error_set(error, PSC_INVALID_ARGUMENT,
                             "--rows %.60s is no number of rows such as 50000, 50K, 3M or 2G",
                             text);
    *rows_out = rows;
    return PSC_OK;
}

/* "12.3G": as --memory takes it, with up to four digits. */
static const char *size_text(uint64_t bytes, char text[24])
{
    static const char units[] = "KMGTPE";
    double value = (double)bytes;
    int unit = -1;
    while (value >= 1024 && unit < 5) {
        value /= 1024;
        unit++;
    }
    double beyond = value - (double)(uint64_t)value;
    bool whole = value >= 999.5 || beyond < 0.05 || beyond >= 0.95;
    (void)snprintf(text, 24, whole ? "%.0f%.1s" : "%.1f%.1s", value, unit >= 0 ? units + unit : "");
    return text;
}

/* "1,234,567". */
static const char *count_text(uint64_t n, char text[32])
{
    char digits[24];
    int length = snprintf(digits, sizeof digits, "%llu", (unsigned long long)n);
    char *out = text;
    for (int i = 0; i < length; i++) {
        if (i != 0 && (length - i) % 3 == 0)
            *out++ = ',';
        *out++ = digits[i];
    }
    *out = '\0';
    return text;
}

static void print_bytes(const char *what, double bytes)
{
    char text[32];
    (void)printf("  %-42s%16s\n", what, count_text((uint64_t)(bytes + 0.5), text));
}

static void print_size(const char *what, uint64_t of_one, uint64_t n_servers)
{
    char one[24], all[24];
    (void)printf("  %-42s%16s%16s\n", what, size_text(of_one, one),
                 size_text(of_one * n_servers, all));
}

static void print_count(const char *what, uint64_t of_one, uint64_t of_all)
{
    char one[32], all[32];
    (void)printf("  %-42s%16s%16s\n", what, count_text(of_one, one), count_text(of_all, all));
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static void print_text(const ps_table_plan_request_t *request, const ps_table_plan_t *plan)
{
    char text[32];
    uint64_t n = request->n_servers;
    uint64_t all_rows = request->rows + (plan->server_shared_rows != 0 ? PSC_SLOT_COUNT : 0);
    uint64_t server_rows = plan->server_rows + plan->server_shared_rows;
    size_t values = plan->header_bytes + plan->weight_bytes + plan->state_bytes;
    (void)printf("%s rows of %u numbers, weights %s, optimizer %s, moments %s\n\n",
                 count_text(request->rows, text), (unsigned)request->dim, request->precision,
                 request->optimizer, request->state_precision);
    (void)printf("  %-42s%16s\n", "A row", "bytes");
    print_bytes("header", (double)plan->header_bytes);
    print_bytes("weights", (double)plan->weight_bytes);
    print_bytes("optimizer's state", (double)plan->state_bytes);
    print_bytes("rounding", (double)(plan->store.record_bytes - values));
    print_bytes("its part of what is left of a page", plan->row_memory_bytes -
                                                          (double)plan->store.record_bytes -
                                                          (double)plan->store.book_row_bytes);
    print_bytes("index and policy", (double)plan->store.book_row_bytes);
    print_bytes("in memory, all of this", plan->row_memory_bytes);
    print_bytes("on disk, about", (double)plan->store.disk_row_bytes);
    (void)printf("\n  %-42s%16s%16s\n", "Servers", "one", "all");
    print_count("rows", plan->server_rows, request->rows);
    if (plan->server_shared_rows != 0)
        print_count("shared rows beside them", plan->server_shared_rows, PSC_SLOT_COUNT);
    print_size("--memory", request->memory_bytes, n);
    if (plan->server_growth_bytes != 0)
        print_size("of it for counts (admission, expiry)", plan->server_growth_bytes, n);
    print_size("of it for rows", plan->store.rows_bytes, n);
    print_size("resident at most", plan->server_resident_bytes, n);
    print_count("rows in memory at once", plan->server_hot_rows,
                least(plan->server_hot_rows * n, all_rows));
    print_size("disk, each row once, about", plan->server_live_disk_bytes, n);
    print_size("disk to set aside, an estimate", plan->server_disk_bytes, n);
    print_size("smallest --memory", plan->smallest_memory_bytes, n);
    if (plan->all_hot_memory_bytes != 0)
        print_size("--memory for all rows in memory", plan->all_hot_memory_bytes, n);
    else
        (void)printf("  %-42s%16s\n", "--memory for all rows in memory", "too much");
    if (plan->server_hot_rows == server_rows)
        (void)printf("\nAll rows stay in memory; the disk is written when the servers end.\n");
    else
        (void)printf("\n%.3g%% of the rows are in memory at once; the disk has the others. It may "
                     "take up to twice\nthe rows' bytes, and logs, while rows that changed are "
                     "written again.\n",
                     100.0 * (double)plan->server_hot_rows / (double)server_rows);
}

static json_t *to_json(const ps_table_plan_request_t *request, const ps_table_plan_t *plan)
{
    json_t *row = json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:f, s:I}", "header_bytes", (json_int_t)plan->header_bytes,
        "weight_bytes", (json_int_t)plan->weight_bytes, "state_bytes",
        (json_int_t)plan->state_bytes, "record_bytes", (json_int_t)plan->store.record_bytes,
        "book_bytes", (json_int_t)plan->store.book_row_bytes, "memory_bytes",
        plan->row_memory_bytes, "disk_bytes", (json_int_t)plan->store.disk_row_bytes);
    json_t *server = json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "rows",
        (json_int_t)plan->server_rows, "shared_rows", (json_int_t)plan->server_shared_rows,
        "growth_memory_bytes", (json_int_t)plan->server_growth_bytes, "memory_bytes",
        (json_int_t)request->memory_bytes, "rows_memory_bytes", (json_int_t)plan->store.rows_bytes,
        "resident_bytes", (json_int_t)plan->server_resident_bytes, "rows_in_memory",
        (json_int_t)plan->server_hot_rows, "live_disk_bytes",
        (json_int_t)plan->server_live_disk_bytes, "disk_bytes", (json_int_t)plan->server_disk_bytes,
        "smallest_memory_bytes", (json_int_t)plan->smallest_memory_bytes, "all_rows_memory_bytes",
        (json_int_t)plan->all_hot_memory_bytes);
    return json_pack("{s:I, s:i, s:s, s:s, s:s, s:i, s:o, s:o}", "rows", (json_int_t)request->rows,
                     "dim", (int)request->dim, "optimizer", request->optimizer, "precision",
                     request->precision, "state_precision", request->state_precision, "servers",
                     (int)request->n_servers, "row", row, "server", server);
}

psc_status_t psw_tool_plan(int argc, char *const argv[], psc_error_t *error)
{
    plan_options_t o = {0};
    psc_parse_result_t parsed;
    psc_status_t st = psc_options_parse(&command, argc, argv, &o, NULL, NULL, &parsed, error);
    if (st != PSC_OK || parsed == PSC_PARSE_EXIT)
        return st;
    ps_table_plan_request_t request = {.dim = (uint32_t)o.dim,
                                       .optimizer = o.optimizer,
                                       .precision = o.precision,
                                       .state_precision = o.state_precision,
                                       .memory_bytes = o.memory_bytes,
                                       .n_servers = (uint32_t)o.n_servers,
                                       .admit_after = (uint32_t)o.admit_after,
                                       .admit_counters = (uint32_t)o.admit_counters,
                                       .admit_shared = o.admit_shared,
                                       .expire_after = o.expire_after,
                                       .expire_floor = (uint32_t)o.expire_floor};
    ps_table_plan_t plan;
    st = parse_rows(o.rows, &request.rows, error);
    if (st == PSC_OK)
        st = ps_table_plan(&request, &plan, error);
    if (st != PSC_OK)
        return st;
    if (o.json)
        return psw_json_print(to_json(&request, &plan), error);
    print_text(&request, &plan);
    return psc_output_flush(error);
}
