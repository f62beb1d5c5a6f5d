/*
 * embps top: what running servers are doing, refreshed like top.
 *
 * Rates are differences of the servers' counters. Which rows are hot is found here, from a watch of
 * the table (embps_watch_next): a row counts once in each answer that tells it, so a row that is
 * pushed many times between two answers counts less than it might. It costs the servers 8 bytes
 * written a pushed row of that table, and nothing when no table is named.
 *
 * Servers that end in order end the watches that wait there. Where they go on, so does this: it
 * watches anew, for AGAIN_US at most, and says so. Their counters then begin at 0. One thread.
 */
#include "common/clock.h"
#include "common/log.h"
#include "common/output.h"
#include "worker/programs/client_error.h"
#include "worker/programs/json_real.h"
#include "worker/tool/address_options.h"
#include "worker/tool/commands.h"
#include "worker/tool/hit_output.h"
#include "worker/tool/hot_rows.h"

#include <inttypes.h>
#include <jansson.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define AGAIN_US ((uint64_t)60 * 1000000)
#define AGAIN_PAUSE_US 100000u

typedef struct top_options {
    psw_address_options_t address; /* first */
    double interval_s;
    bool once;
    const char *table;
    uint64_t n_rows;
} top_options_t;

static const psc_option_t options[] = {
    {.name = "interval",
     .argument = "SECONDS",
     .type = PSC_OPTION_DOUBLE,
     .offset = offsetof(top_options_t, interval_s),
     .min = 0.1,
     .max = 3600,
     .default_value = "2",
     .help = "Between two looks."},
    {.name = "once",
     .type = PSC_OPTION_FLAG,
     .offset = offsetof(top_options_t, once),
     .help = "Show one interval and end."},
    {.name = "table",
     .argument = "TABLE",
     .type = PSC_OPTION_TEXT,
     .offset = offsetof(top_options_t, table),
     .help = "Show the rows of this table that pushes reach most often, too."},
    {.name = "rows",
     .argument = "N",
     .type = PSC_OPTION_U64,
     .offset = offsetof(top_options_t, n_rows),
     .min = 1,
     .max = PSW_HOT_ROWS,
     .default_value = "10",
     .help = "How many of them."},
};

static const psc_command_t command = {
    .name = "embps top",
    .synopsis = "ADDRESS [options]",
    .summary = "Shows what running servers do, again and again.",
    .description =
        "ADDRESS is that of one of the servers (embps-server --listen); numbers are sums over all "
        "of them. On a terminal the screen is refreshed, elsewhere one report follows the other; "
        "with --json each is a line. When servers end in order and are started again, watching "
        "begins anew.",
    .options = options,
    .n_options = sizeof options / sizeof options[0],
    .operands = "ADDRESS",
    .min_operands = 1,
    .max_operands = 1,
    .examples = "embps top 127.0.0.1:50051 --table words",
};

/* Counters that are shown: as they are, or how fast they grow. */
static const struct {
    const char *counter, *label;
    bool is_rate;
} shown[] = {
    {"rows.pulled", "rows pulled / s", true},
    {"rows.pushed", "rows pushed / s", true},
    {"requests.pull", "pulls / s", true},
    {"requests.push", "pushes / s", true},
    {"rows.created", "rows created / s", true},
    {"store.cold_reads", "rows from disk / s", true},
    {"bytes.in", "bytes received / s", true},
    {"bytes.out", "bytes sent / s", true},
    {"store.rows_hot", "rows in memory", false},
    {"store.bytes_hot", "bytes of them", false},
    {"store.bytes_budget", "bytes at most", false},
};
enum { N_SHOWN = sizeof shown / sizeof shown[0] };

typedef struct sample {
    uint64_t at_us;
    uint64_t values[N_SHOWN];
} sample_t;

typedef struct top {
    const psw_visit_t *visit;
    const top_options_t *options;
    embps_table_t *table; /* NULL: none */
    embps_watch_t *watch; /* NULL: no table */
    psw_hot_rows_t hot;
    bool lost;
} top_t;

static void keep_shown(void *context, const char *name, uint64_t value)
{
    sample_t *sample = context;
    for (size_t i = 0; i < N_SHOWN; i++) {
        if (strcmp(shown[i].counter, name) == 0)
            sample->values[i] = value;
    }
}

static psc_status_t look(const top_t *top, sample_t *sample, psc_error_t *error)
{
    embps_error_t what;
    *sample = (sample_t){.at_us = psc_clock_us()};
    return embps_stats(top->visit->client, keep_shown, sample, &what) == 0
               ? PSC_OK
               : psw_error_import(&what, error);
}

static void nap(uint64_t us)
{
    const struct timespec left = {.tv_sec = (time_t)(us / 1000000),
                                  .tv_nsec = (long)(us % 1000000 * 1000)};
    (void)nanosleep(&left, NULL);
}

/* The watch failed, for this reason. What is pushed until there is another one is not told. */
static psc_status_t watch_again(top_t *top, embps_error_t *why, psc_error_t *error)
{
    const uint64_t until_us = psc_clock_us() + AGAIN_US;
    psw_shown_t name;
    embps_watch_end(top->watch);
    top->watch = NULL;
    if (why->code == EMBPS_INTERRUPTED)
        psc_log(PSC_LOG_WARN, "%s: watching %s begins anew", why->message,
                psw_show(top->options->table, &name));
    while (why->code == EMBPS_INTERRUPTED && psc_clock_us() < until_us) {
        if (embps_watch_start(top->table, 0, &top->watch, why) == 0) {
            top->lost = true;
            return PSC_OK;
        }
        nap(AGAIN_PAUSE_US);
    }
    return psw_error_import(why, error);
}

/* Until until_us, listening to pushes if a table is watched. */
static psc_status_t pass_time(top_t *top, uint64_t until_us, psc_error_t *error)
{
    top->hot.n = 0;
    top->lost = false;
    for (uint64_t now_us = psc_clock_us(); now_us < until_us; now_us = psc_clock_us()) {
        const uint64_t left_us = until_us - now_us;
        if (top->watch == NULL) {
            nap(left_us);
            continue;
        }
        embps_error_t what;
        embps_block_t block;
        bool lost;
        if (embps_watch_next(top->watch, (uint32_t)(left_us / 1000 + 1), &block, &lost, &what) !=
            0) {
            psc_status_t st = watch_again(top, &what, error);
            if (st != PSC_OK)
                return st;
            continue;
        }
        top->lost = top->lost || lost;
        for (size_t i = 0; i < block.n; i++)
            psw_hot_rows_add(&top->hot, block.ids[i]);
    }
    return PSC_OK;
}

static double value_of(size_t i, const sample_t *before, const sample_t *now)
{
    const double seconds = (double)(now->at_us - before->at_us) * 1e-6;
    if (!shown[i].is_rate)
        return (double)now->values[i];
    const bool anew = now->values[i] < before->values[i]; /* servers were started again */
    return (double)(now->values[i] - (anew ? 0 : before->values[i])) / seconds;
}

static psc_status_t print_json(const top_t *top, const sample_t *before, const sample_t *now,
                               psc_error_t *error)
{
    psw_hot_row_t best[PSW_HOT_ROWS];
    json_t *all = json_object();
    for (size_t i = 0; i < N_SHOWN; i++)
        (void)json_object_set_new(all, shown[i].counter, psw_json_real(value_of(i, before, now)));
    if (top->watch != NULL) {
        json_t *rows = json_array();
        const size_t n = psw_hot_rows_best(&top->hot, best, (size_t)top->options->n_rows);
        for (size_t i = 0; i < n; i++) {
            char id[24]; /* as text: not every reader of JSON has whole numbers of 64 bits */
            (void)snprintf(id, sizeof id, "%" PRIu64, best[i].id);
            (void)json_array_append_new(rows, json_pack("{s:s, s:I, s:I}", "id", id, "told",
                                                        (json_int_t)best[i].count, "excess",
                                                        (json_int_t)best[i].excess));
        }
        (void)json_object_set_new(all, "hot", rows);
        (void)json_object_set_new(all, "lost", json_boolean(top->lost));
    }
    const bool written =
        all != NULL &&
        json_dumpf(all, stdout, JSON_COMPACT | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(15)) ==
            0 &&
        putchar('\n') != EOF;
    json_decref(all);
    psc_status_t st = psc_output_flush(error);
    return st != PSC_OK || written ? st : psc_error_set(error, PSC_IO, "cannot write the output");
}

static psc_status_t print_text(const top_t *top, const sample_t *before, const sample_t *now,
                               psc_error_t *error)
{
    psw_hot_row_t best[PSW_HOT_ROWS];
    const bool terminal = isatty(STDOUT_FILENO) == 1 && !top->options->once;
    if (terminal)
        (void)printf("\033[H\033[J"); /* home, and an empty screen */
    psw_shown_t name;
    const uint32_t n_servers = embps_server_count(top->visit->client);
    (void)printf("run %016" PRIx64 ", %" PRIu32 " %s, over %.1f s\n",
                 embps_cluster(top->visit->client), n_servers,
                 n_servers == 1 ? "server" : "servers",
                 (double)(now->at_us - before->at_us) * 1e-6);
    for (size_t i = 0; i < N_SHOWN; i++)
        (void)printf("%-20s%20.0f\n", shown[i].label, value_of(i, before, now));
    if (top->watch != NULL) {
        const size_t n = psw_hot_rows_best(&top->hot, best, (size_t)top->options->n_rows);
        if (n == 0)
            (void)printf("\nno row of %s was pushed\n", psw_show(top->options->table, &name));
        else
            (void)printf("\n%-20s%20s%s\n", "row", "told as pushed",
                         top->lost ? "  (there were more than could be told)" : "");
        for (size_t i = 0; i < n; i++)
            (void)printf("%-20" PRIu64 "%20" PRIu64 "\n", best[i].id, best[i].count);
    }
    if (!terminal && !top->options->once)
        (void)printf("\n");
    return psc_output_flush(error);
}

static psc_status_t repeat(top_t *top, psc_error_t *error)
{
    const uint64_t interval_us = (uint64_t)(top->options->interval_s * 1e6);
    sample_t before, now;
    psc_status_t st = look(top, &before, error);
    while (st == PSC_OK) {
        st = pass_time(top, before.at_us + interval_us, error);
        if (st == PSC_OK)
            st = look(top, &now, error);
        if (st == PSC_OK)
            st = top->visit->options.json ? print_json(top, &before, &now, error)
                                          : print_text(top, &before, &now, error);
        if (top->options->once)
            break;
        before = now;
    }
    return st;
}

static psc_status_t show(const psw_visit_t *visit, psc_error_t *error)
{
    top_t top = {.visit = visit, .options = visit->own};
    embps_error_t what;
    psc_status_t st = PSC_OK;
    if (top.options->table != NULL) {
        st = psw_visit_table(visit, top.options->table, &top.table, error);
        if (st == PSC_OK && embps_watch_start(top.table, 0, &top.watch, &what) != 0)
            st = psw_error_import(&what, error);
    }
    if (st == PSC_OK)
        st = repeat(&top, error);
    embps_watch_end(top.watch);
    return st;
}

psc_status_t psw_tool_top(int argc, char *const argv[], psc_error_t *error)
{
    top_options_t values;
    return psw_visit_with(&command, &values, argc, argv, show, error);
}
