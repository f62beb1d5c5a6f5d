/*
 * What a client expects of a row in its own column: at least what it found when it connected and
 * has pushed since, and at most all that it ever pushed. A client that lost its connection for
 * good, or was killed, does not know what became of its last calls: from then on it is uncertain,
 * and its expectations are those two bounds. One that is not knows the value to the last push.
 */
#include "tests/sim/sim_clients.h"

#include "common/alloc.h"
#include "tests/sim/sim_net.h"
#include "tests/sim/sim_servers.h"
#include "worker/include/embps.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { CALLS = 6 };

#define AGAIN_US UINT64_C(300000)
#define CONNECT_MS 20000u

typedef struct call {
    embps_request_t *request; /* NULL: none */
    bool is_pull;
    uint64_t at; /* starts of servers when it began */
    size_t n;
    uint64_t *ids;
    float *rows, *least; /* least: of the own column */
} call_t;

typedef struct client {
    sim_process_t process;
    uint32_t column;
    bool uncertain;
    bool told;                 /* of an end, over the present connection */
    uint64_t found_at;         /* starts of servers when it was found what there is */
    size_t n_pushes;           /* ever */
    float issued[SIM_IDS_MAX]; /* ever */
    float since[SIM_IDS_MAX];  /* pushed since it was found */
    float found[SIM_IDS_MAX];
    embps_client_t *client;
    embps_table_t *table;
    call_t calls[CALLS];
} client_t;

static struct {
    sim_clients_options_t options;
    client_t clients[SIM_CLIENTS_MAX];
    sim_process_t reader;
    bool stopping;
    uint64_t n_calls, n_told;
} all;

/* ---- a connection ---- */

static bool is_over(const client_t *client)
{
    return client->process.dead;
}

static psc_status_t open_table(embps_client_t *connected, embps_table_t **table_out,
                               embps_error_t *error)
{
    embps_table_options_t options = EMBPS_TABLE_OPTIONS_DEFAULT;
    options.dim = all.options.dim;
    return (psc_status_t)embps_table_open(connected, "rows", &options, table_out, error);
}

static psc_status_t connect_to(embps_client_t **client_out, embps_table_t **table_out,
                               embps_error_t *error)
{
    embps_connect_options_t options = EMBPS_CONNECT_OPTIONS_DEFAULT;
    options.wait_ms = CONNECT_MS;
    psc_status_t st = (psc_status_t)embps_connect(sim_net_address(0), &options, client_out, error);
    if (st != PSC_OK)
        return st;
    st = open_table(*client_out, table_out, error);
    if (st != PSC_OK) {
        (void)embps_close(*client_out, NULL);
        *client_out = NULL;
    }
    return st;
}

/* Rows of all ids, batch by batch; fn gets each. */
static psc_status_t read_all(embps_table_t *table,
                             void (*fn)(void *context, uint64_t id, const float *row),
                             void *context, embps_error_t *error)
{
    const size_t batch = all.options.batch;
    uint64_t *ids = psc_alloc_array(batch, sizeof *ids);
    float *rows = psc_alloc_array(batch, all.options.dim * sizeof *rows);
    psc_status_t st = PSC_OK;
    SIM_CHECK(ids != NULL && rows != NULL);
    for (size_t begin = 0; st == PSC_OK && begin < all.options.n_ids; begin += batch) {
        const size_t left = all.options.n_ids - begin, n = left < batch ? left : batch;
        for (size_t i = 0; i < n; i++)
            ids[i] = begin + i;
        st = (psc_status_t)embps_pull(table, ids, n, rows, error);
        for (size_t i = 0; st == PSC_OK && i < n; i++)
            fn(context, ids[i], rows + i * all.options.dim);
    }
    psc_free(ids);
    psc_free(rows);
    return st;
}

static void tell(client_t *client, const char *what, const char *message)
{
    if (!client->process.dead)
        sim_log("%s %s: %.150s", client->process.label, what, message);
    client->uncertain = client->told = true;
    sim_model_told(client->column);
    all.n_told++;
}

static bool is_certain(const client_t *client)
{
    return !client->uncertain && !sim_model_lost_in_silence(client->column);
}

static void find_row(void *context, uint64_t id, const float *row)
{
    client_t *client = context;
    const float value = row[client->column];
    if (value > client->issued[id] || (is_certain(client) && value != client->issued[id]))
        sim_fail("%s finds %g in row %" PRIu64 ", and had pushed %g", client->process.label,
                 (double)value, id, (double)client->issued[id]);
    client->found[id] = value;
    client->since[id] = 0;
}

/* ---- calls ---- */

static bool end_call(client_t *client, call_t *call);

static bool end_calls(client_t *client)
{
    bool fine = true;
    for (size_t i = 0; i < CALLS; i++) {
        if (client->calls[i].request != NULL)
            fine = end_call(client, &client->calls[i]) && fine;
    }
    return fine;
}

/* A pull has less than was pushed before it: one of these pushes must have been refused, which its
 * own end tells. */
static void find_refusal(client_t *client, uint64_t id, float value, float least)
{
    if (end_calls(client) && !client->told)
        sim_fail("%s reads %g in row %" PRIu64 ", which is at least %g", client->process.label,
                 (double)value, id, (double)least);
}

/* The end of a call. False: the connection is of no use any more. */
static bool end_call(client_t *client, call_t *call)
{
    embps_error_t error = {.code = 0};
    embps_request_t *request = call->request;
    call->request = NULL;
    if (embps_wait(request, &error) != 0) {
        tell(client, "is told", error.message);
        return false;
    }
    all.n_calls++;
    for (size_t i = 0; call->is_pull && i < call->n; i++) {
        const float value = call->rows[i * all.options.dim + client->column];
        const bool known = call->at == sim_model_starts() && !client->told;
        if (value > client->issued[call->ids[i]])
            sim_fail("%s reads %g in row %" PRIu64 ", which is at most %g", client->process.label,
                     (double)value, call->ids[i], (double)client->issued[call->ids[i]]);
        if (known && value < call->least[i])
            find_refusal(client, call->ids[i], value, call->least[i]);
    }
    return !client->told;
}

/* Of the own column: servers that went back know no more of what was there before. */
static float least(const client_t *client, uint64_t id)
{
    const bool same = client->found_at == sim_model_starts();
    return client->since[id] + (same ? client->found[id] : 0);
}

static bool begin_call(client_t *client, call_t *call)
{
    embps_error_t error = {.code = 0};
    const size_t dim = all.options.dim;
    int failed;
    call->n = 1 + sim_below(all.options.batch);
    call->is_pull = sim_one_in(3);
    call->at = sim_model_starts();
    for (size_t i = 0; i < call->n; i++)
        call->ids[i] = sim_below(all.options.n_ids);
    if (call->is_pull) {
        for (size_t i = 0; i < call->n; i++)
            call->least[i] = least(client, call->ids[i]);
        failed =
            embps_pull_start(client->table, call->ids, call->n, call->rows, &call->request, &error);
    } else {
        float sum = 0;
        memset(call->rows, 0, call->n * dim * sizeof(float));
        for (size_t i = 0; i < call->n; i++) {
            const float value = (float)(1 + sim_below(3));
            call->rows[i * dim + client->column] = value;
            client->issued[call->ids[i]] += value;
            client->since[call->ids[i]] += value;
            sum += value;
        }
        sim_model_call(client->column, ++client->n_pushes, sum);
        failed = embps_push_start(client->table, EMBPS_DELTA, call->ids, call->n, call->rows,
                                  (float)client->n_pushes, &call->request, &error);
    }
    if (failed == 0)
        return true;
    tell(client, "is told", error.message);
    call->request = NULL;
    return false;
}

/* A checkpoint has what this client pushed before. */
static void check_saved(const client_t *client, const char *name, const float *expected)
{
    for (uint64_t id = 0; id < all.options.n_ids; id++) {
        const float value = sim_model_saved(name, id, client->column);
        if (value != expected[id])
            sim_fail("checkpoint %s, which %s has asked for, has %g in row %" PRIu64 ", not %g",
                     name, client->process.label, (double)value, id, (double)expected[id]);
    }
}

/* False: the connection is of no use any more. */
static bool make_checkpoint(client_t *client)
{
    static float expected[SIM_CLIENTS_MAX][SIM_IDS_MAX];
    char name[EMBPS_CHECKPOINT_NAME_BYTES];
    embps_error_t error = {.code = 0};
    float *mine = expected[client->column];
    if (!end_calls(client))
        return false;
    memcpy(mine, client->issued, sizeof client->issued);
    const size_t n = sim_below(2) * sizeof(float) * all.options.n_ids;
    if (embps_checkpoint(client->client, n != 0 ? mine : NULL, n, name, &error) == 0) {
        sim_log("%s has made %s", client->process.label, name);
        if (is_certain(client))
            check_saved(client, name, mine);
        return true;
    }
    if (!client->process.dead)
        sim_log("%s made no checkpoint: %.150s", client->process.label, error.message);
    return true; /* whether it is of use, the next call tells */
}

/* ---- a life ---- */

static void work(client_t *client)
{
    bool fine = true;
    while (fine && !all.stopping && !is_over(client)) {
        call_t *call = &client->calls[sim_below(CALLS)];
        if (sim_one_in(all.options.checkpoint_one_in))
            fine = make_checkpoint(client);
        else if (call->request != NULL)
            fine = end_call(client, call);
        else
            fine = begin_call(client, call);
        if (sim_one_in(4))
            sim_wait_until(sim_now() + sim_below(all.options.nap_us + 1));
        if (sim_one_in(150))
            break; /* it closes, and comes again */
    }
    (void)end_calls(client);
}

/* One connection. */
static void live(client_t *client)
{
    embps_error_t error = {.code = 0};
    if (connect_to(&client->client, &client->table, &error) != PSC_OK) {
        if (!client->process.dead)
            sim_log("%s cannot connect: %.150s", client->process.label, error.message);
        sim_wait_until(sim_now() + sim_below(AGAIN_US));
        return;
    }
    sim_log("%s is connected", client->process.label);
    client->found_at = sim_model_starts();
    client->told = false;
    if (read_all(client->table, find_row, client, &error) == PSC_OK)
        work(client);
    else if (!client->process.dead)
        sim_log("%s cannot read: %.150s", client->process.label, error.message);
    sim_model_leave(client->column);
    if (embps_close(client->client, &error) != 0) {
        tell(client, "closes badly", error.message);
    } else if (sim_model_must_tell(client->column)) {
        sim_fail("%s was not told that what was acknowledged is lost", client->process.label);
    }
    client->client = NULL;
}

static void run_client(void *argument)
{
    client_t *client = argument;
    const size_t batch = all.options.batch;
    for (size_t i = 0; i < CALLS; i++) {
        call_t *call = &client->calls[i];
        call->ids = psc_alloc_array(batch, sizeof *call->ids);
        call->rows = psc_alloc_array(batch, all.options.dim * sizeof *call->rows);
        call->least = psc_alloc_array(batch, sizeof *call->least);
        SIM_CHECK(call->ids != NULL && call->rows != NULL && call->least != NULL);
    }
    while (!all.stopping && !is_over(client))
        live(client);
    for (size_t i = 0; i < CALLS; i++) {
        psc_free(client->calls[i].ids);
        psc_free(client->calls[i].rows);
        psc_free(client->calls[i].least);
    }
}

void sim_clients_begin(const sim_clients_options_t *options)
{
    memset(&all, 0, sizeof all);
    all.options = *options;
    for (uint32_t i = 0; i < options->n; i++) {
        client_t *client = &all.clients[i];
        client->column = i;
        (void)snprintf(client->process.label, sizeof client->process.label, "client %" PRIu32, i);
    }
}

void sim_client_start(uint32_t number)
{
    client_t *client = &all.clients[number];
    client->process.dead = false;
    client->process.dead_us = 0;
    (void)sim_task_start(&client->process, run_client, client);
}

bool sim_client_runs(uint32_t number)
{
    return all.clients[number].process.n_tasks != 0;
}

void sim_client_kill(uint32_t number)
{
    sim_kill(&all.clients[number].process);
    all.clients[number].uncertain = true;
    sim_model_told(number);
}

void sim_client_pause(uint32_t number, uint64_t until_us)
{
    all.clients[number].process.stopped_until_us = until_us;
    sim_model_silent(number);
}

void sim_clients_stop(void)
{
    all.stopping = true;
}

void sim_clients_count(uint64_t *n_calls_out, uint64_t *n_told_out)
{
    *n_calls_out = all.n_calls;
    *n_told_out = all.n_told;
}

/* ---- the end ---- */

static void compare_row(void *context, uint64_t id, const float *row)
{
    (void)context;
    for (uint32_t c = 0; c < all.options.n; c++) {
        const client_t *client = &all.clients[c];
        if (row[c] != sim_model_value(id, c))
            sim_fail("row %" PRIu64 " has %g of client %" PRIu32 ", and pushes that count make %g",
                     id, (double)row[c], c, (double)sim_model_value(id, c));
        if (is_certain(client) && row[c] != client->issued[id])
            sim_fail("row %" PRIu64 " has %g of client %" PRIu32
                     ", which pushed %g and was told of no loss",
                     id, (double)row[c], c, (double)client->issued[id]);
    }
}

static void run_reader(void *argument)
{
    embps_client_t *client;
    embps_table_t *table;
    embps_error_t error = {.code = 0};
    (void)argument;
    if (connect_to(&client, &table, &error) != PSC_OK ||
        read_all(table, compare_row, NULL, &error) != PSC_OK)
        sim_fail("the table cannot be read at the end: %s", error.message);
    if (embps_close(client, &error) != 0)
        sim_fail("whoever only read cannot leave: %s", error.message);
}

void sim_reader_start(void)
{
    (void)snprintf(all.reader.label, sizeof all.reader.label, "reader");
    (void)sim_task_start(&all.reader, run_reader, NULL);
}

bool sim_reader_runs(void)
{
    return all.reader.n_tasks != 0;
}
