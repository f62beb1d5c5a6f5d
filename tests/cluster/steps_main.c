/*
 * A client by address whose pushes follow from their numbers, so that whoever makes the same steps
 * has the same tables:
 *
 *     steps_main ADDRESS FROM TO
 *
 * Makes steps FROM to TO - 1 on four tables, each with an optimizer of its own that keeps state;
 * one has rows of 16 bits, one rows that come late. Table i is called after its optimizer.
 */
#include "embps.h"

#include "common/hash.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

enum { D = 16, N_TABLES = 4, BATCH = 1000, IDS = 20000 };

static embps_error_t error;

static void require(bool holds, const char *what)
{
    if (holds)
        return;
    (void)fprintf(stderr, "steps_main: %s (%s)\n", what,
                  error.code != 0 ? error.message : "no error");
    exit(1);
}

static void open_tables(embps_client_t *client, embps_table_t *tables[N_TABLES])
{
    static const char *const optimizers[N_TABLES] = {"adam", "ftrl", "momentum", "adagrad"};
    for (size_t t = 0; t < N_TABLES; t++) {
        embps_table_options_t options = EMBPS_TABLE_OPTIONS_DEFAULT;
        options.dim = D;
        options.init = "uniform";
        options.optimizer = optimizers[t];
        options.seed = 40 + t;
        options.precision = t == 2 ? "bf16" : "f32";
        options.admit_after = t == 3 ? 2 : 0;
        require(embps_table_open(client, optimizers[t], &options, &tables[t], &error) == 0, "open");
    }
}

/* The i-th number of a step's stream. */
static uint64_t draw(uint64_t step, size_t table, size_t i)
{
    return psc_mix64(psc_mix64(step * N_TABLES + table) + i);
}

static void make_step(embps_table_t *table, size_t t, uint64_t step)
{
    static uint64_t ids[BATCH];
    static float gradients[BATCH][D];
    for (size_t i = 0; i < BATCH; i++) {
        const uint64_t drawn = draw(step, t, i);
        ids[i] = drawn % (drawn >> 32 & 1 ? IDS : IDS / 20); /* some more often */
        for (size_t c = 0; c < D; c++)
            gradients[i][c] = (float)(psc_mix64(drawn + c) % 2001) * 0.001f - 1;
    }
    embps_table_set_step(table, step + 1);
    require(embps_push(table, EMBPS_GRADIENT, ids, BATCH, &gradients[0][0], 0.05f, &error) == 0,
            "push");
}

int main(int argc, char **argv)
{
    embps_connect_options_t options = EMBPS_CONNECT_OPTIONS_DEFAULT;
    embps_client_t *client = NULL;
    embps_table_t *tables[N_TABLES];
    require(argc == 4, "ADDRESS FROM TO");
    options.wait_ms = 60000;
    require(embps_connect(argv[1], &options, &client, &error) == 0, "connect");
    open_tables(client, tables);
    const uint64_t end = strtoull(argv[3], NULL, 10);
    for (uint64_t step = strtoull(argv[2], NULL, 10); step < end; step++) {
        for (size_t t = 0; t < N_TABLES; t++)
            make_step(tables[t], t, step);
    }
    require(embps_close(client, &error) == 0, "close");
    return 0;
}
