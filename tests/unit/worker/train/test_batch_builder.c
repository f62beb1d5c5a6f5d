/*
 * Batches against a naive reading of the same text, for any size of a batch.
 */
#include "worker/train/batch_builder.h"

#include "common/alloc.h"
#include "common/clock.h"
#include "common/file.h"
#include "tests/support/cmocka.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define N_WORDS 60u
#define MAX_TEXT 8000u
#define LINE_MAX_WORDS 20u
#define WINDOW 3u
#define NEGATIVE 4u
#define EPOCHS 2u
#define LINE_END UINT32_MAX

/* One pair or window as ids: what two ways of making it must agree on. */
typedef struct plan {
    uint32_t *items; /* centre, first context .., LINE_END, outputs .., LINE_END */
    float *rates;
    size_t n, n_rates;
} plan_t;

typedef struct fixture {
    char path[256];
    uint32_t text[MAX_TEXT]; /* word numbers and LINE_END */
    size_t n_text;
    uint64_t n_words;
    psw_corpus_t *corpus;
    psw_reader_t *reader;
    psw_vocab_t *vocab;
    psw_sampler_t sampler;
} fixture_t;

static uint64_t seed(void)
{
    const char *given = getenv("EMBPS_TEST_SEED");
    uint64_t value = given != NULL ? strtoull(given, NULL, 10) : psc_clock_us();
    printf("seed %llu\n", (unsigned long long)value);
    return value;
}

/* Words seen once (numbers above 50) stay outside the vocabulary. */
static void write_text(fixture_t *f, uint64_t key, uint32_t line_words)
{
    psw_counter_t *counter;
    const char *folder = getenv("TMPDIR");
    (void)snprintf(f->path, sizeof f->path, "%s/embps-batch.XXXXXX",
                   folder != NULL ? folder : "/tmp");
    int fd = mkstemp(f->path);
    assert_true(fd >= 0);
    FILE *stream = fdopen(fd, "w");
    assert_non_null(stream);
    assert_int_equal(psw_counter_create(&counter, NULL), PSC_OK);
    uint32_t rare = 50;
    for (size_t i = 0, line = 0; i < MAX_TEXT - 1; i++) {
        uint64_t bits = psc_rng_at(key, i);
        if (line == line_words || (line_words <= LINE_MAX_WORDS && bits % 10 == 0)) {
            f->text[f->n_text++] = LINE_END;
            (void)fputc('\n', stream);
            line = 0;
            continue;
        }
        uint32_t word = (uint32_t)((bits >> 8) % 50 * ((bits >> 40) % 50) / 50);
        if (bits % 400 == 7 && rare < N_WORDS)
            word = rare++;
        char name[8];
        int size = snprintf(name, sizeof name, "w%02u", word);
        (void)fprintf(stream, "%s ", name);
        assert_int_equal(psw_counter_add(counter, name, (size_t)size, 1, NULL), PSC_OK);
        f->text[f->n_text++] = word;
        f->n_words++;
        line++;
    }
    f->text[f->n_text++] = LINE_END;
    assert_int_equal(fclose(stream), 0);
    assert_int_equal(psw_vocab_build(counter, 2, &f->vocab, NULL), PSC_OK);
    psw_counter_destroy(counter);
}

static fixture_t *make(uint64_t key, uint32_t line_words)
{
    fixture_t *f = psc_alloc_zeroed(1, sizeof *f);
    assert_non_null(f);
    write_text(f, key, line_words);
    const char *paths[] = {f->path};
    assert_int_equal(psw_corpus_open(paths, 1, &f->corpus, NULL), PSC_OK);
    assert_int_equal(psw_reader_create(f->corpus, 0, UINT64_MAX, &f->reader, NULL), PSC_OK);
    assert_int_equal(psw_sampler_init(&f->sampler, f->vocab, 0.02, NULL), PSC_OK);
    return f;
}

static void unmake(fixture_t *f)
{
    psw_reader_destroy(f->reader);
    psw_corpus_close(f->corpus);
    psw_sampler_clear(&f->sampler);
    psw_vocab_destroy(f->vocab);
    unlink(f->path);
    psc_free(f);
}

static psw_builder_options_t options_of(const fixture_t *f, uint32_t batch_words, bool plain)
{
    return (psw_builder_options_t){.vocab = f->vocab,
                                   .sampler = &f->sampler,
                                   .reader = f->reader,
                                   .share_words = f->n_words,
                                   .seed = 5,
                                   .worker = 2,
                                   .epochs = EPOCHS,
                                   .window = WINDOW,
                                   .negative = NEGATIVE,
                                   .batch_words = batch_words,
                                   .plain = plain,
                                   .alpha = 0.05};
}

static plan_t new_plan(void)
{
    size_t most = (size_t)MAX_TEXT * EPOCHS * (4 + 2 * WINDOW + 2 * WINDOW * (NEGATIVE + 1));
    plan_t plan = {.items = psc_alloc_array(most, sizeof(uint32_t)),
                   .rates = psc_alloc_array((size_t)MAX_TEXT * EPOCHS, sizeof(float))};
    assert_non_null(plan.items);
    assert_non_null(plan.rates);
    return plan;
}

static void free_plan(plan_t *plan)
{
    psc_free(plan->items);
    psc_free(plan->rates);
}

static void put(plan_t *plan, uint32_t item)
{
    plan->items[plan->n++] = item;
}

/* A sentence by the words of the issue: sub-sample first, then windows, then negatives. */
static void plan_sentence(const fixture_t *f, plan_t *plan, bool plain, uint32_t epoch,
                          const uint32_t *ids, const uint64_t *positions, size_t n)
{
    uint64_t stream = psc_rng_stream(5, 2, epoch);
    uint64_t draws = 1 + (plain ? 2 * WINDOW : 1) * (NEGATIVE + 1);
    for (size_t i = 0; i < n && n > 1; i++) {
        uint64_t first = positions[i] * draws;
        uint32_t reach = psw_sampler_reach((uint32_t)psc_rng_at(stream, first), WINDOW);
        size_t contexts = 0;
        put(plan, ids[i]);
        for (size_t j = 0; j < n; j++) {
            if (j != i && j + reach >= i && j <= i + reach) {
                put(plan, ids[j]);
                contexts++;
            }
        }
        put(plan, LINE_END);
        uint64_t counter = first + 1;
        for (size_t t = 0; t < (plain ? contexts : 1); t++) {
            put(plan, ids[i]);
            for (uint32_t k = 0; k < NEGATIVE; k++) {
                uint32_t negative =
                    psw_sampler_negative(&f->sampler, psc_rng_at(stream, counter++));
                if (negative != ids[i])
                    put(plan, negative);
            }
        }
        put(plan, LINE_END);
        double done = (double)epoch * (double)f->n_words + (double)positions[i];
        double share = 1.0 - done / (EPOCHS * (double)f->n_words);
        plan->rates[plan->n_rates++] = (float)(0.05 * (share > 1e-4 ? share : 1e-4));
    }
}

static plan_t expected_plan(const fixture_t *f, bool plain)
{
    plan_t plan = new_plan();
    uint64_t draws = 1 + (plain ? 2 * WINDOW : 1) * (NEGATIVE + 1);
    static uint32_t ids[1000];
    static uint64_t positions[1000];
    for (uint32_t epoch = 0; epoch < EPOCHS; epoch++) {
        uint64_t position = 0, stream = psc_rng_stream(5, 2, epoch);
        size_t n = 0;
        for (size_t i = 0; i < f->n_text; i++) {
            if (f->text[i] != LINE_END) {
                char name[8];
                int size = snprintf(name, sizeof name, "w%02u", f->text[i]);
                uint32_t id = psw_vocab_lookup(f->vocab, name, (size_t)size);
                uint64_t bits = psc_rng_at(stream, position * draws);
                if (id != PSW_VOCAB_NONE &&
                    psw_sampler_keeps(&f->sampler, id, (uint32_t)(bits >> 32))) {
                    ids[n] = id;
                    positions[n++] = position;
                }
                position++;
            }
            if (f->text[i] == LINE_END || n == 1000) {
                plan_sentence(f, &plan, plain, epoch, ids, positions, n);
                n = 0;
            }
        }
    }
    return plan;
}

static void add_batch(plan_t *plan, const psw_train_batch_t *batch, bool plain)
{
    for (uint32_t w = 0; w < batch->n_windows; w++) {
        const psw_window_t *window = &batch->windows[w];
        const uint64_t *in = batch->input_rows.ids, *out = batch->output_rows.ids;
        put(plan, (uint32_t)in[batch->words[window->centre]]);
        for (uint32_t i = window->first; i <= window->last; i++) {
            if (i != window->centre)
                put(plan, (uint32_t)in[batch->words[i]]);
        }
        put(plan, LINE_END);
        uint32_t times = plain ? window->last - window->first : 1;
        for (uint32_t k = 0; k < times * (NEGATIVE + 1); k++) {
            uint32_t slot = batch->outputs[window->outputs + k];
            if (slot != PSW_SLOT_NONE)
                put(plan, (uint32_t)out[slot]);
        }
        put(plan, LINE_END);
        plan->rates[plan->n_rates++] = window->rate;
    }
}

/* Distinct ids, and the place of each in the batch before. */
static void check_rows(const psw_rows_t *rows, const uint64_t *before, size_t n_before)
{
    for (uint32_t i = 0; i < rows->n; i++) {
        uint32_t expected = PSW_SLOT_NONE;
        for (uint32_t j = 0; j < i; j++)
            assert_true(rows->ids[i] != rows->ids[j]);
        for (uint32_t j = 0; j < n_before; j++) {
            if (before[j] == rows->ids[i])
                expected = j;
        }
        assert_int_equal(rows->previous[i], expected);
    }
    assert_in_range(rows->n, 0, rows->capacity);
}

static plan_t built_plan(const fixture_t *f, uint32_t batch_words, bool plain)
{
    plan_t plan = new_plan();
    psw_builder_options_t options = options_of(f, batch_words, plain);
    psw_builder_t *builder;
    psw_train_batch_t *batch;
    uint64_t in[N_WORDS], out[N_WORDS], words = 0;
    uint32_t n_in = 0, n_out = 0;
    bool more = true;
    psw_reader_rewind(f->reader);
    assert_int_equal(psw_builder_create(&options, &builder, NULL), PSC_OK);
    assert_int_equal(psw_train_batch_create(builder, &batch, NULL), PSC_OK);
    for (;;) {
        psc_error_t error = PSC_ERROR_INIT;
        if (psw_builder_next(builder, batch, &more, &error) != PSC_OK)
            fail_msg("%s", error.message);
        if (!more)
            break;
        assert_int_equal(batch->epoch * f->n_words + batch->position, words);
        words += batch->raw_words;
        assert_in_range(batch->raw_words, 0, 2 * (uint64_t)batch_words);
        check_rows(&batch->input_rows, in, n_in);
        check_rows(&batch->output_rows, out, n_out);
        n_in = batch->input_rows.n;
        n_out = batch->output_rows.n;
        memcpy(in, batch->input_rows.ids, n_in * sizeof *in);
        memcpy(out, batch->output_rows.ids, n_out * sizeof *out);
        add_batch(&plan, batch, plain);
    }
    assert_int_equal(words, f->n_words * EPOCHS);
    psw_train_batch_destroy(batch);
    psw_builder_destroy(builder);
    return plan;
}

static void check_plans(const fixture_t *f, uint32_t batch_words, bool plain)
{
    plan_t expected = expected_plan(f, plain), built = built_plan(f, batch_words, plain);
    assert_int_equal(built.n, expected.n);
    assert_memory_equal(built.items, expected.items, expected.n * sizeof(uint32_t));
    assert_int_equal(built.n_rates, expected.n_rates);
    for (size_t i = 0; i < expected.n_rates; i++) {
        /* A product by the reciprocal against a quotient: an ulp or two of a double, rounded. */
        float difference = built.rates[i] - expected.rates[i];
        assert_true(difference < 1e-8f && difference > -1e-8f);
    }
    free_plan(&expected);
    free_plan(&built);
}

static void any_size_of_a_batch_gives_the_same_windows(void **state)
{
    (void)state;
    fixture_t *f = make(seed(), LINE_MAX_WORDS);
    static const uint32_t sizes[] = {LINE_MAX_WORDS, 33, 200, 5000, 100000};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        check_plans(f, sizes[i], false);
        check_plans(f, sizes[i], true);
    }
    unmake(f);
}

static void one_line_without_end_is_cut_at_a_thousand_kept_words(void **state)
{
    (void)state;
    fixture_t *f = make(seed(), UINT32_MAX);
    check_plans(f, 4000, false);
    unmake(f);
}

static void the_smallest_batches_hold_two_words_at_most(void **state)
{
    (void)state;
    fixture_t *f = make(1, LINE_MAX_WORDS);
    plan_t built = built_plan(f, 1, false);
    assert_true(built.n_rates > 0); /* two kept words share a batch now and then */
    free_plan(&built);
    unmake(f);
}

/* What comes behind the first n batches, which are passed over, or built like all others. */
static plan_t plan_behind(const fixture_t *f, uint32_t n, bool skips, bool plain)
{
    plan_t plan = new_plan();
    psw_builder_options_t options = options_of(f, 300, plain);
    psw_builder_t *builder;
    psw_train_batch_t *batch;
    bool more = true;
    psw_reader_rewind(f->reader);
    assert_int_equal(psw_builder_create(&options, &builder, NULL), PSC_OK);
    assert_int_equal(psw_train_batch_create(builder, &batch, NULL), PSC_OK);
    for (uint32_t i = 0; more; i++) {
        uint64_t words = 0, windows = 0;
        if (i < n && skips)
            assert_int_equal(psw_builder_skip(builder, &words, &windows, &more, NULL), PSC_OK);
        else
            assert_int_equal(psw_builder_next(builder, batch, &more, NULL), PSC_OK);
        assert_true(windows <= words);
        if (more && i >= n)
            add_batch(&plan, batch, plain);
    }
    psw_train_batch_destroy(batch);
    psw_builder_destroy(builder);
    return plan;
}

static void batches_that_are_passed_over_change_nothing_of_those_behind(void **state)
{
    (void)state;
    fixture_t *f = make(seed(), LINE_MAX_WORDS);
    for (uint32_t n = 0; n < 60; n += 1 + n / 2) { /* past the end, too */
        plan_t built = plan_behind(f, n, false, n % 2 == 0);
        plan_t passed = plan_behind(f, n, true, n % 2 == 0);
        assert_int_equal(passed.n, built.n);
        assert_memory_equal(passed.items, built.items, built.n * sizeof(uint32_t));
        assert_int_equal(passed.n_rates, built.n_rates);
        assert_memory_equal(passed.rates, built.rates, built.n_rates * sizeof(float));
        free_plan(&built);
        free_plan(&passed);
    }
    unmake(f);
}

static void a_share_with_other_words_than_counted_is_an_error(void **state)
{
    (void)state;
    fixture_t *f = make(1, LINE_MAX_WORDS);
    psw_builder_options_t options = options_of(f, 1000, false);
    options.share_words++;
    psw_builder_t *builder;
    psw_train_batch_t *batch;
    bool more = true;
    psc_error_t error = PSC_ERROR_INIT;
    assert_int_equal(psw_builder_create(&options, &builder, NULL), PSC_OK);
    assert_int_equal(psw_train_batch_create(builder, &batch, NULL), PSC_OK);
    psc_status_t st;
    do
        st = psw_builder_next(builder, batch, &more, &error);
    while (st == PSC_OK && more);
    assert_int_equal(st, PSC_IO);
    assert_non_null(strstr(error.message, "changed"));
    psw_train_batch_destroy(batch);
    psw_builder_destroy(builder);
    unmake(f);
}

static void an_empty_share_has_no_batch(void **state)
{
    (void)state;
    fixture_t *f = make(1, LINE_MAX_WORDS);
    psw_builder_options_t options = options_of(f, 1000, false);
    options.share_words = 0;
    psw_builder_t *builder;
    psw_train_batch_t *batch;
    bool more = true;
    assert_int_equal(psw_builder_create(&options, &builder, NULL), PSC_OK);
    assert_int_equal(psw_train_batch_create(builder, &batch, NULL), PSC_OK);
    assert_int_equal(psw_builder_next(builder, batch, &more, NULL), PSC_OK);
    assert_false(more);
    psw_train_batch_destroy(batch);
    psw_builder_destroy(builder);
    unmake(f);
}

static void memory_that_runs_out_is_an_error_and_leaks_nothing(void **state)
{
    (void)state;
    fixture_t *f = make(1, LINE_MAX_WORDS);
    psw_builder_options_t options = options_of(f, 1000, false);
    bool whole = false;
    for (unsigned long n = 1; !whole; n++) {
        psw_builder_t *builder = NULL;
        psw_train_batch_t *batch = NULL;
        psc_alloc_fail_at(n);
        psc_status_t st = psw_builder_create(&options, &builder, NULL);
        if (st == PSC_OK)
            st = psw_train_batch_create(builder, &batch, NULL);
        psc_alloc_fail_at(0);
        whole = st == PSC_OK;
        assert_true(whole || st == PSC_NO_MEMORY);
        psw_train_batch_destroy(batch);
        psw_builder_destroy(builder);
        assert_in_range(n, 1, 20);
    }
    unmake(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_size_of_a_batch_gives_the_same_windows),
        cmocka_unit_test(one_line_without_end_is_cut_at_a_thousand_kept_words),
        cmocka_unit_test(the_smallest_batches_hold_two_words_at_most),
        cmocka_unit_test(batches_that_are_passed_over_change_nothing_of_those_behind),
        cmocka_unit_test(a_share_with_other_words_than_counted_is_an_error),
        cmocka_unit_test(an_empty_share_has_no_batch),
        cmocka_unit_test(memory_that_runs_out_is_an_error_and_leaks_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
