/*
 * Values that a table keeps in 16 bits are floats here which have been through the encoder and
 * back. Time is the least clock of all workers.
 */
#include "tests/support/row_oracle.h"

#include "common/alloc.h"
#include "common/hash.h"
#include "common/rng.h"
#include "ps/store/store.h"
#include "ps/table/precision.h"
#include "tests/support/cmocka.h"

#include <stdlib.h>
#include <string.h>

#define MAX_VALUES 8192u

/* Widens the table's rows until their records are as large as they may be. */
static void widen(oracle_table_t *table, size_t record_bytes)
{
    psc_error_t error = PSC_ERROR_INIT;
    uint32_t low = 1, high = (uint32_t)record_bytes;
    while (high - low > 1) {
        table->options.dim = low + (high - low) / 2;
        assert_int_equal(ps_table_define(&table->options, &table->definition, &error), PSC_OK);
        if (ps_store_record_bytes(ps_table_row_bytes(&table->definition)) <= record_bytes)
            low = table->options.dim;
        else
            high = table->options.dim;
    }
    table->options.dim = low;
    assert_int_equal(ps_table_define(&table->options, &table->definition, &error), PSC_OK);
    table->dim = low;
    table->k = table->definition.state_floats;
}

static float *floats_of(size_t n)
{
    float *floats = psc_alloc_zeroed(n != 0 ? n : 1, sizeof *floats);
    assert_non_null(floats);
    return floats;
}

static void add_table(oracle_t *oracle, const ps_optim_t *optim, psp_precision_t precision,
                      psp_precision_t state_precision, size_t record_bytes)
{
    size_t t = oracle->n_tables++;
    assert_true(t < ORACLE_TABLES_MAX);
    oracle_table_t *table = &oracle->tables[t];
    psp_open_table_t *options = &table->options;
    *options = (psp_open_table_t){.init = "normal",
                                  .seed = 11 + t,
                                  .precision = precision,
                                  .state_precision = state_precision,
                                  .per_row_steps = t % 5 == 0,
                                  .expire_after = t % 3 == 0 ? 4 : 0};
    (void)snprintf(options->name, sizeof options->name, "table %zu", t);
    (void)snprintf(options->optimizer, sizeof options->optimizer, "%s", optim->name);
    widen(table, record_bytes);
    if (state_precision != PSP_F32)
        table->m = optim->moment_floats(table->dim);
    assert_true(table->dim + table->k <= MAX_VALUES);
    table->initial.weights = floats_of(table->dim);
    table->initial.state = floats_of(table->k);
    for (uint32_t i = 0; i < ORACLE_IDS; i++) {
        oracle_row_t *row = &table->rows[i];
        row->id = i == 0 ? 0 : i == 1 ? UINT64_MAX : psc_mix64(i + 1000 * t);
        row->weights = floats_of(table->dim);
        row->state = floats_of(table->k);
    }
}

oracle_t *oracle_create(size_t record_bytes)
{
    oracle_t *oracle = psc_alloc_zeroed(1, sizeof *oracle);
    assert_non_null(oracle);
    const ps_optim_t *optim;
    for (size_t e = 0; (optim = ps_optim_at(e)) != NULL; e++) {
        for (size_t p = 0; p < PSP_PRECISIONS; p++) {
            psp_precision_t precision = (psp_precision_t)p;
            add_table(oracle, optim, precision, PSP_F32, record_bytes);
            if (optim->moment_floats != NULL && optim->moment_floats(4) != 0)
                add_table(oracle, optim, precision, PSP_BF16, record_bytes);
        }
    }
    return oracle;
}

void oracle_destroy(oracle_t *oracle)
{
    for (size_t t = 0; t < oracle->n_tables; t++) {
        oracle_table_t *table = &oracle->tables[t];
        psc_free(table->initial.weights);
        psc_free(table->initial.state);
        for (size_t i = 0; i < ORACLE_IDS; i++) {
            psc_free(table->rows[i].weights);
            psc_free(table->rows[i].state);
        }
    }
    psc_free(oracle);
}

/* What is left of values after they were stored. random NULL: to the nearest. */
static void keep(psp_precision_t precision, float *values, size_t n, const uint16_t *random)
{
    uint16_t stored[MAX_VALUES];
    if (precision == PSP_F32 || n == 0)
        return;
    const ps_precision_t *p = ps_precision_of(precision);
    if (random != NULL)
        p->encode_stochastic(stored, values, random, n);
    else
        p->encode(stored, values, n);
    p->decode(values, stored, n);
}

static void begin(oracle_table_t *table, oracle_row_t *row, size_t t)
{
    const ps_table_t *d = &table->definition;
    d->init->fill(row->weights, table->dim, table->options.seed, (uint32_t)t + 1, row->id,
                  d->init_params);
    keep(d->precision, row->weights, table->dim, NULL);
    d->optim->init_state(row->state, table->dim, d->optim_params);
    keep(d->state_precision, row->state, table->m, NULL);
    row->record = false;
    row->version = row->updates = 0;
}

typedef enum age { LIVE, EXPIRED, FORGOTTEN } age_t;

static age_t age_of(const oracle_t *oracle, const oracle_table_t *table, const oracle_row_t *row)
{
    uint64_t life = table->options.expire_after;
    if (!row->record)
        return FORGOTTEN;
    if (life == 0)
        return LIVE;
    uint64_t age = oracle->time - row->last;
    return age <= life ? LIVE : age <= 2 * life ? EXPIRED : FORGOTTEN;
}

/* 16 random bits for each column of weights and state. */
static void draw(const oracle_table_t *table, size_t t, const oracle_row_t *row, uint16_t *bits_out)
{
    for (size_t c = 0; c < table->dim + table->k; c += 8) {
        uint32_t words[4];
        psc_rng_row(table->options.seed, (uint32_t)t + 1, row->id, (uint32_t)c / 8, PSC_RNG_ROUND,
                    row->version, words);
        for (size_t i = 0; i < 8; i++)
            bits_out[c + i] = (uint16_t)(words[i / 2] >> (i % 2 * 16));
    }
}

static void change(oracle_table_t *table, size_t t, oracle_row_t *row, const oracle_push_t *push,
                   const float *values)
{
    uint16_t bits[MAX_VALUES + 8];
    const ps_table_t *d = &table->definition;
    draw(table, t, row, bits);
    if (push->kind == PSP_PUSH_GRADIENT) {
        bool own = table->options.per_row_steps || push->step == 0;
        ps_optim_step_t step = {.learning_rate = push->rate,
                                .step = own ? row->updates + 1 : push->step,
                                .params = d->optim_params};
        if (d->optim->prepare != NULL)
            d->optim->prepare(&step);
        d->optim->update(row->weights, row->state, values, table->dim, &step);
        keep(d->state_precision, row->state, table->m, bits + table->dim);
        row->updates++;
        table->n_gradients++;
    } else {
        for (size_t c = 0; c < table->dim; c++)
            row->weights[c] =
                push->kind == PSP_PUSH_DELTA ? row->weights[c] + values[c] : values[c];
    }
    keep(d->precision, row->weights, table->dim, push->kind == PSP_PUSH_ASSIGN ? NULL : bits);
    row->record = true;
    row->version++;
}

void oracle_apply(oracle_t *oracle, const oracle_push_t *push, bool *begun_out)
{
    oracle_table_t *table = &oracle->tables[push->table];
    bool done[ORACLE_BATCH] = {false};
    for (size_t i = 0; i < push->n; i++) {
        if (begun_out != NULL)
            begun_out[i] = false;
        if (done[i])
            continue;
        float values[MAX_VALUES];
        memcpy(values, push->values + i * table->dim, table->dim * sizeof *values);
        for (size_t j = i + 1; j < push->n; j++) {
            if (push->index[j] != push->index[i])
                continue;
            done[j] = true;
            const float *more = push->values + j * table->dim;
            for (size_t c = 0; c < table->dim; c++)
                values[c] = push->kind == PSP_PUSH_ASSIGN ? more[c] : values[c] + more[c];
        }
        oracle_row_t *row = &table->rows[push->index[i]];
        age_t age = age_of(oracle, table, row);
        if (age != LIVE)
            begin(table, row, push->table);
        if (begun_out != NULL)
            begun_out[i] = age == FORGOTTEN;
        change(table, push->table, row, push, values);
        row->last = oracle->time;
    }
}

psp_row_state_t oracle_expect(oracle_t *oracle, size_t t, uint32_t index, const float **weights_out)
{
    oracle_table_t *table = &oracle->tables[t];
    const oracle_row_t *row = &table->rows[index];
    age_t age = age_of(oracle, table, row);
    *weights_out = row->weights;
    if (age == LIVE)
        return PSP_ROW_PRESENT;
    table->initial.id = row->id;
    begin(table, &table->initial, t);
    *weights_out = table->initial.weights;
    return age == EXPIRED ? PSP_ROW_EXPIRED : PSP_ROW_INITIAL;
}

static uint64_t hash_floats(uint64_t hash, const float *values, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        hash = psc_mix64(hash ^ bits) + i;
    }
    return hash;
}

uint64_t oracle_hash(const oracle_table_t *table, const oracle_row_t *row)
{
    uint64_t hash = psc_mix64((uint64_t)row->version << 32 | row->updates);
    hash = hash_floats(hash, row->weights, table->dim);
    hash = hash_floats(hash, row->state, table->k);
    return hash != ORACLE_ABSENT ? hash : 1;
}

void oracle_adopt(oracle_table_t *table, oracle_row_t *row, const void *record)
{
    const ps_table_t *d = &table->definition;
    const uint8_t *bytes = record;
    ps_row_header_t header;
    memcpy(&header, bytes, sizeof header);
    assert_int_equal(header.id, row->id);
    bytes += sizeof header;
    ps_precision_of(d->precision)->decode(row->weights, bytes, table->dim);
    bytes += d->weight_bytes;
    ps_precision_of(d->state_precision)->decode(row->state, bytes, table->m);
    bytes += (table->m * 2 + 3) / 4 * 4;
    memcpy(row->state + table->m, bytes, (table->k - table->m) * sizeof(float));
    row->record = true;
    row->version = header.version;
    row->updates = header.update_count;
    row->last = header.last_clock;
}
