/*
 * Training over a shard in this process: the pipeline against the plain loop, and bits that must
 * not depend on memory or repetition.
 */
#include "worker/train/lookahead.h"
#include "worker/train/trainer.h"

#include "common/alloc.h"
#include "common/file.h"
#include "common/rng.h"
#include "tests/support/cmocka.h"
#include "worker/client.h"
#include "worker/train/run.h"

#include <ftw.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DIM 20u /* not a multiple of 16: rows are padded */
#define STRIDE 32u
#define N_LINES 900u

typedef struct place {
    char folder[200];
    char text[256], data[256], out[256], context[256];
} place_t;

static int remove_entry(const char *path, const struct stat *info, int type, struct FTW *walk)
{
    (void)info;
    (void)type;
    (void)walk;
    return remove(path);
}

static void remove_tree(const char *path)
{
    (void)nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

/* A text with something to learn: words of a group stand together. */
static void write_text(const char *path)
{
    FILE *stream = fopen(path, "w");
    assert_non_null(stream);
    uint64_t draw = 0;
    for (uint32_t line = 0; line < N_LINES; line++) {
        uint64_t group = psc_rng_at(77, draw++) % 40;
        for (int i = 0; i < 12; i++)
            (void)fprintf(stream, "g%02uw%02u ", (unsigned)group,
                          (unsigned)(psc_rng_at(77, draw++) % 20));
        (void)fputc('\n', stream);
    }
    assert_int_equal(fclose(stream), 0);
}

static void enter(place_t *place)
{
    const char *folder = getenv("TMPDIR");
    (void)snprintf(place->folder, sizeof place->folder, "%s/embps-trainer.XXXXXX",
                   folder != NULL && strlen(folder) < 150 ? folder : "/tmp");
    assert_non_null(mkdtemp(place->folder));
    (void)snprintf(place->text, sizeof place->text, "%s/text", place->folder);
    (void)snprintf(place->data, sizeof place->data, "%s/data", place->folder);
    (void)snprintf(place->out, sizeof place->out, "%s/out", place->folder);
    (void)snprintf(place->context, sizeof place->context, "%s/context", place->folder);
    write_text(place->text);
}

static void leave(const place_t *place)
{
    remove_tree(place->folder);
}

/* A corpus of one worker, counted and ready. */
typedef struct bench {
    psw_train_options_t options;
    psw_stop_t stop;
    psw_setup_t setup;
    psw_part_t part;
    const char *paths[1];
} bench_t;

static void bench_open(bench_t *bench, const place_t *place, const psw_model_t *model, bool plain)
{
    psw_counter_t *counter;
    *bench = (bench_t){0};
    bench->paths[0] = place->text;
    bench->options = (psw_train_options_t){.model = model,
                                           .corpus = {.items = bench->paths, .n = 1},
                                           .out = place->out,
                                           .dim = DIM,
                                           .window = 4,
                                           .negative = 3,
                                           .min_count = 5,
                                           .epochs = 3,
                                           .seed = 9,
                                           .batch_words = 700,
                                           .sample = 1e-2,
                                           .alpha = 0.2,
                                           .plain = plain,
                                           .staleness_clocks = EMBPS_ASYNC};
    atomic_init(&bench->stop.requested, false);
    assert_int_equal(psw_setup_open(&bench->setup, &bench->options, true, NULL), PSC_OK);
    assert_int_equal(psw_counter_create(&counter, NULL), PSC_OK);
    assert_int_equal(
        psw_setup_count(&bench->setup, 0, 1, counter, &bench->stop, &bench->part, NULL), PSC_OK);
    assert_int_equal(psw_setup_finish(&bench->setup, counter, bench->part.words, false, NULL),
                     PSC_OK);
    psw_counter_destroy(counter);
}

static embps_client_t *connect_to(const char *data)
{
    embps_client_t *client;
    embps_error_t error;
    embps_local_options_t local = EMBPS_LOCAL_OPTIONS_DEFAULT;
    local.data = data;
    local.memory_bytes = 16 << 20;
    if (embps_connect_local(&local, &client, &error) != 0)
        fail_msg("%s", error.message);
    return client;
}

/* All rows of a table. */
static float *pull_all(embps_table_t *table, uint32_t n)
{
    uint64_t *ids = psc_alloc_array(n, sizeof *ids);
    float *rows = psc_alloc_array((size_t)n * DIM, sizeof *rows);
    assert_non_null(ids);
    assert_non_null(rows);
    for (uint32_t i = 0; i < n; i++)
        ids[i] = i;
    assert_int_equal(embps_pull(table, ids, n, rows, NULL), 0);
    psc_free(ids);
    return rows;
}

/* One table's rows of a batch, pulled and padded. */
static float *pull_rows(embps_table_t *table, const psw_rows_t *rows, float *pulled)
{
    float *padded = psc_alloc_aligned(((size_t)rows->n * STRIDE + 1) * sizeof *padded);
    assert_non_null(padded);
    memset(padded, 0, (size_t)rows->n * STRIDE * sizeof *padded);
    if (rows->n > 0)
        assert_int_equal(embps_pull(table, rows->ids, rows->n, pulled, NULL), 0);
    for (uint32_t i = 0; i < rows->n; i++)
        memcpy(padded + (size_t)i * STRIDE, pulled + (size_t)i * DIM, DIM * sizeof *padded);
    return padded;
}

static void push_rows(embps_table_t *table, const psw_rows_t *rows, const float *pulled,
                      float *padded)
{
    float *deltas = psc_alloc_array((size_t)rows->n * DIM, sizeof *deltas);
    assert_non_null(deltas);
    for (uint32_t i = 0; i < rows->n; i++) {
        for (uint32_t k = 0; k < DIM; k++)
            deltas[(size_t)i * DIM + k] =
                padded[(size_t)i * STRIDE + k] - pulled[(size_t)i * DIM + k];
    }
    if (rows->n > 0)
        assert_int_equal(embps_push(table, EMBPS_DELTA, rows->ids, rows->n, deltas, 0, NULL), 0);
    psc_free(deltas);
    psc_free(padded);
}

/* The loop without a pipeline: pull, train, push, each waited for. */
static void train_plainly(const bench_t *bench, const psw_tables_t *tables)
{
    const psw_train_options_t *options = &bench->options;
    psw_reader_t *reader;
    psw_builder_t *builder;
    psw_train_batch_t *batch;
    float *inputs[8], *outputs[4];
    psw_local_t local = {
        .stride = STRIDE, .negative = 3, .input_pointers = inputs, .output_pointers = outputs};
    assert_int_equal(psw_reader_create(bench->setup.corpus, 0, UINT64_MAX, &reader, NULL), PSC_OK);
    psw_builder_options_t how = {.vocab = bench->setup.vocab,
                                 .sampler = &bench->setup.sampler,
                                 .reader = reader,
                                 .share_words = bench->part.words,
                                 .seed = options->seed,
                                 .epochs = 3,
                                 .window = 4,
                                 .negative = 3,
                                 .batch_words = 700,
                                 .plain = options->plain,
                                 .alpha = options->alpha};
    assert_int_equal(psw_builder_create(&how, &builder, NULL), PSC_OK);
    assert_int_equal(psw_train_batch_create(builder, &batch, NULL), PSC_OK);
    assert_int_equal(psw_kernel_create(STRIDE, 8, 4, &local.kernel, NULL), PSC_OK);
    float *pulled_in = psc_alloc_array((size_t)1000 * DIM, sizeof(float));
    float *pulled_out = psc_alloc_array((size_t)1000 * DIM, sizeof(float));
    for (bool more = true;;) {
        assert_int_equal(psw_builder_next(builder, batch, &more, NULL), PSC_OK);
        if (!more)
            break;
        local.batch = batch;
        local.inputs = pull_rows(tables->in, &batch->input_rows, pulled_in);
        local.outputs = pull_rows(tables->out, &batch->output_rows, pulled_out);
        for (uint32_t i = 0; i < batch->n_windows; i++)
            (void)(options->plain ? options->model->plain
                                  : options->model->matrix)(&local, &batch->windows[i], false);
        push_rows(tables->in, &batch->input_rows, pulled_in, local.inputs);
        push_rows(tables->out, &batch->output_rows, pulled_out, local.outputs);
    }
    psc_free(pulled_in);
    psc_free(pulled_out);
    psw_kernel_destroy(local.kernel);
    psw_train_batch_destroy(batch);
    psw_builder_destroy(builder);
    psw_reader_destroy(reader);
}

static void find_announced(void *context, const char *name, uint64_t value)
{
    if (strcmp(name, "rows.announced") == 0)
        *(uint64_t *)context = value;
}

static void check_pipeline(const psw_model_t *model, bool plain, uint32_t staleness,
                           uint32_t prefetch)
{
    place_t place;
    bench_t bench;
    float *rows[2][2];
    enter(&place);
    bench_open(&bench, &place, model, plain);
    bench.options.staleness_clocks = staleness;
    bench.options.prefetch = prefetch;
    uint32_t n = psw_vocab_size(bench.setup.vocab);
    for (int piped = 0; piped < 2; piped++) {
        psw_tables_t tables;
        psw_train_counts_t counts;
        psc_error_t error = PSC_ERROR_INIT;
        embps_client_t *client = connect_to(place.data);
        if (piped) {
            if (psw_setup_train(&bench.setup, client, 0, &bench.part, &bench.stop, false, NULL,
                                NULL, &tables, &counts, &error) != PSC_OK)
                fail_msg("%s", error.message);
            assert_int_equal(counts.words, bench.part.words * 3);
            assert_int_equal(counts.total_words, counts.words);
            uint64_t announced = UINT64_MAX;
            assert_int_equal(embps_stats(client, find_announced, &announced, NULL), 0);
            assert_int_equal(announced != 0, prefetch != 0);
        } else {
            const psw_tables_options_t options = {.dim = DIM, .seed = 9};
            assert_int_equal(psw_tables_open(client, &options, &tables, NULL), PSC_OK);
            train_plainly(&bench, &tables);
        }
        rows[piped][0] = pull_all(tables.in, n);
        rows[piped][1] = pull_all(tables.out, n);
        assert_int_equal(embps_close(client, NULL), 0);
        remove_tree(place.data);
    }
    float sum = 0;
    for (int t = 0; t < 2; t++) {
        assert_memory_equal(rows[0][t], rows[1][t], (size_t)n * DIM * sizeof(float));
        for (size_t i = 0; i < (size_t)n * DIM; i++)
            sum += rows[0][t][i] * rows[0][t][i];
        psc_free(rows[0][t]);
        psc_free(rows[1][t]);
    }
    assert_true(sum > 100); /* something was learnt */
    psw_setup_clear(&bench.setup);
    leave(&place);
}

static void the_pipeline_gives_the_bits_of_the_plain_loop(void **state)
{
    (void)state;
    size_t n;
    const psw_model_t *const *models = psw_models(&n);
    for (size_t i = 0; i < n; i++) {
        check_pipeline(models[i], false, EMBPS_ASYNC, 0);
        if (models[i]->plain != NULL)
            check_pipeline(models[i], true, EMBPS_ASYNC, 0);
    }
}

static void one_worker_has_nobody_to_wait_for_at_any_staleness(void **state)
{
    (void)state;
    for (uint32_t staleness = 0; staleness < 3; staleness++)
        check_pipeline(psw_model_find("skipgram"), false, staleness, 0);
}

static void batches_that_are_announced_are_the_same(void **state)
{
    (void)state;
    check_pipeline(psw_model_find("skipgram"), false, EMBPS_ASYNC, 1);
    check_pipeline(psw_model_find("skipgram"), false, 0, 3);
    check_pipeline(psw_model_find("cbow"), false, EMBPS_ASYNC, PSW_LOOKAHEAD_MAX);
}

typedef struct losses {
    psw_train_counts_t last;
    double first_loss, last_loss;
    int n;
} losses_t;

static void note_loss(void *context, const psw_train_counts_t *counts)
{
    losses_t *losses = context;
    if (counts->words - losses->last.words < 8000)
        return;
    double loss =
        (counts->loss - losses->last.loss) / (double)(counts->loss_pairs - losses->last.loss_pairs);
    if (losses->n++ == 0)
        losses->first_loss = loss;
    losses->last_loss = loss;
    losses->last = *counts;
}

static void the_loss_falls(void **state)
{
    (void)state;
    size_t n;
    const psw_model_t *const *models = psw_models(&n);
    for (size_t i = 0; i < n; i++) {
        place_t place;
        bench_t bench;
        losses_t losses = {0};
        psw_tables_t tables;
        psw_train_counts_t counts;
        enter(&place);
        bench_open(&bench, &place, models[i], false);
        embps_client_t *client = connect_to(place.data);
        assert_int_equal(psw_setup_train(&bench.setup, client, 0, &bench.part, &bench.stop, false,
                                         note_loss, &losses, &tables, &counts, NULL),
                         PSC_OK);
        assert_int_equal(embps_close(client, NULL), 0);
        assert_true(losses.n >= 3);
        assert_true(losses.last_loss < losses.first_loss * 0.98);
        assert_true(losses.last_loss > 0);
        psw_setup_clear(&bench.setup);
        leave(&place);
    }
}

static void a_wish_to_stop_ends_the_training_in_order(void **state)
{
    (void)state;
    place_t place;
    bench_t bench;
    psw_tables_t tables;
    psw_train_counts_t counts;
    psc_error_t error = PSC_ERROR_INIT;
    enter(&place);
    bench_open(&bench, &place, psw_model_find("skipgram"), false);
    embps_client_t *client = connect_to(place.data);
    psw_stop_request(&bench.stop);
    assert_int_equal(psw_setup_train(&bench.setup, client, 0, &bench.part, &bench.stop, false, NULL,
                                     NULL, &tables, &counts, &error),
                     PSC_INTERRUPTED);
    assert_int_equal(embps_close(client, NULL), 0);
    psw_setup_clear(&bench.setup);
    leave(&place);
}

/* embps-train --local with these words more; its two files. */
static void run_program(const place_t *place, const char *precision, const char *memory,
                        const char *threads, const char *staleness, char **out, size_t *out_size,
                        char **context, size_t *context_size)
{
    char *argv[] = {"skipgram",      "--local",
                    "--corpus",      (char *)(uintptr_t)place->text,
                    "--out",         (char *)(uintptr_t)place->out,
                    "--out-context", (char *)(uintptr_t)place->context,
                    "--data",        (char *)(uintptr_t)place->data,
                    "--precision",   (char *)(uintptr_t)precision,
                    "--memory",      (char *)(uintptr_t)memory,
                    "--threads",     (char *)(uintptr_t)threads,
                    "--staleness",   (char *)(uintptr_t)staleness,
                    "--dim",         "20",
                    "--epochs",      "2",
                    "--quiet"};
    psw_train_options_t options;
    psc_parse_result_t result;
    psc_error_t error = PSC_ERROR_INIT;
    psw_stop_t stop;
    if (psw_train_options_parse(psw_model_find("skipgram"), (int)(sizeof argv / sizeof argv[0]),
                                argv, &options, &result, &error) != PSC_OK)
        fail_msg("%s", error.message);
    atomic_init(&stop.requested, false);
    assert_int_equal(psw_run_local(&options, &stop), 0);
    assert_int_equal(psc_file_read(place->out, 1 << 24, out, out_size, NULL), PSC_OK);
    assert_int_equal(psc_file_read(place->context, 1 << 24, context, context_size, NULL), PSC_OK);
    remove_tree(place->data);
}

static void one_thread_gives_the_same_bytes_whatever_the_memory(void **state)
{
    (void)state;
    static const char *const precisions[] = {"f32", "bf16", "f16"};
    static const char *const memory[] = {"64M", "64M", "8M"};
    for (int p = 0; p < 3; p++) {
        place_t place;
        char *out[3], *context[3];
        size_t out_size[3], context_size[3];
        enter(&place);
        for (int i = 0; i < 3; i++)
            run_program(&place, precisions[p], memory[i], "1", "async", &out[i], &out_size[i],
                        &context[i], &context_size[i]);
        for (int i = 1; i < 3; i++) {
            assert_int_equal(out_size[i], out_size[0]);
            assert_memory_equal(out[i], out[0], out_size[0]);
            assert_int_equal(context_size[i], context_size[0]);
            assert_memory_equal(context[i], context[0], context_size[0]);
        }
        assert_memory_equal(out[0] + strcspn(out[0], " "), " 20\n", 4);
        for (int i = 0; i < 3; i++) {
            psc_free(out[i]);
            psc_free(context[i]);
        }
        leave(&place);
    }
}

static void several_threads_train_every_word(void **state)
{
    (void)state;
    static const char *const modes[] = {"async", "1", "7"};
    for (int i = 0; i < 3; i++) {
        place_t place;
        char *out, *context;
        size_t out_size, context_size;
        enter(&place);
        run_program(&place, "f32", "64M", "3", modes[i], &out, &out_size, &context, &context_size);
        assert_memory_equal(out + strcspn(out, " "), " 20\n", 4);
        psc_free(out);
        psc_free(context);
        leave(&place);
    }
}

static void threads_in_step_give_the_same_bytes_each_time(void **state)
{
    (void)state;
    place_t place;
    char *out[2], *context[2];
    size_t out_size[2], context_size[2];
    enter(&place);
    for (int i = 0; i < 2; i++)
        run_program(&place, "f32", i == 0 ? "64M" : "8M", "3", "0", &out[i], &out_size[i],
                    &context[i], &context_size[i]);
    assert_int_equal(out_size[1], out_size[0]);
    assert_memory_equal(out[1], out[0], out_size[0]);
    assert_int_equal(context_size[1], context_size[0]);
    assert_memory_equal(context[1], context[0], context_size[0]);
    for (int i = 0; i < 2; i++) {
        psc_free(out[i]);
        psc_free(context[i]);
    }
    leave(&place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_pipeline_gives_the_bits_of_the_plain_loop),
        cmocka_unit_test(one_worker_has_nobody_to_wait_for_at_any_staleness),
        cmocka_unit_test(batches_that_are_announced_are_the_same),
        cmocka_unit_test(the_loss_falls),
        cmocka_unit_test(a_wish_to_stop_ends_the_training_in_order),
        cmocka_unit_test(one_thread_gives_the_same_bytes_whatever_the_memory),
        cmocka_unit_test(several_threads_train_every_word),
        cmocka_unit_test(threads_in_step_give_the_same_bytes_each_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
