/*
 * Vocabulary against a naive sort, the same whatever the number of workers, and hostile files.
 */
#include "worker/train/vocab.h"

#include "common/alloc.h"
#include "common/clock.h"
#include "common/file.h"
#include "common/rng.h"
#include "tests/support/cmocka.h"
#include "worker/train/corpus.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define N_WORDS 3000u

static uint64_t seed(void)
{
    const char *given = getenv("EMBPS_TEST_SEED");
    uint64_t value = given != NULL ? strtoull(given, NULL, 10) : psc_clock_us();
    printf("seed %llu\n", (unsigned long long)value);
    return value;
}

/* The i-th word: some are prefixes of others, some hold odd bytes. */
static size_t make_word(uint32_t i, char *word)
{
    static const char tails[] = {'a', (char)0xc3, '\0', 'z'};
    size_t size = 0;
    for (uint32_t rest = i + 1; rest > 0; rest /= 4)
        word[size++] = tails[rest % 4];
    return size;
}

static void add(psw_counter_t *counter, uint32_t i, uint64_t n)
{
    char word[32];
    size_t size = make_word(i, word);
    assert_int_equal(psw_counter_add(counter, word, size, n, NULL), PSC_OK);
}

static psw_counter_t *new_counter(void)
{
    psw_counter_t *counter;
    assert_int_equal(psw_counter_create(&counter, NULL), PSC_OK);
    return counter;
}

static psw_vocab_t *build(const psw_counter_t *counter, uint64_t min_count)
{
    psw_vocab_t *vocab;
    assert_int_equal(psw_vocab_build(counter, min_count, &vocab, NULL), PSC_OK);
    return vocab;
}

/* What every worker gives, one after another. */
typedef struct gathering {
    psw_counter_t **counters;
    uint32_t n;
} gathering_t;

static psc_status_t gather(void *context, const void *bytes, size_t size, char **bytes_out,
                           size_t *sizes_out, psc_error_t *error)
{
    (void)bytes;
    (void)size;
    gathering_t *all = context;
    char *joined = NULL;
    size_t used = 0;
    for (uint32_t i = 0; i < all->n; i++) {
        char *packed;
        psc_status_t st = psw_counter_pack(all->counters[i], &packed, &sizes_out[i], error);
        assert_int_equal(st, PSC_OK);
        joined = psc_realloc_array(joined, used + sizes_out[i] + 1, 1);
        assert_non_null(joined);
        memcpy(joined + used, packed, sizes_out[i]);
        used += sizes_out[i];
        psc_free(packed);
    }
    *bytes_out = joined;
    return PSC_OK;
}

static void ids_go_by_falling_count_then_by_bytes(void **state)
{
    (void)state;
    uint64_t key = seed();
    static uint64_t counts[N_WORDS];
    memset(counts, 0, sizeof counts);
    psw_counter_t *counter = new_counter();
    uint64_t kept = 0, total = 0;
    for (uint32_t i = 0; i < 40000; i++) {
        uint64_t bits = psc_rng_at(key, i);
        uint32_t word = (uint32_t)((bits % N_WORDS) * ((bits >> 32) % N_WORDS) / N_WORDS);
        counts[word]++;
        add(counter, word, 1);
    }
    for (uint32_t i = 0; i < N_WORDS; i++) {
        kept += counts[i] >= 4;
        total += counts[i] >= 4 ? counts[i] : 0;
    }
    psw_vocab_t *vocab = build(counter, 4);
    assert_int_equal(psw_vocab_size(vocab), kept);
    assert_int_equal(psw_vocab_total(vocab), total);
    for (uint32_t i = 0; i < N_WORDS; i++) {
        char word[32];
        size_t size = make_word(i, word), found_size;
        uint32_t id = psw_vocab_lookup(vocab, word, size);
        if (counts[i] < 4) {
            assert_true(id == PSW_VOCAB_NONE);
            continue;
        }
        assert_in_range(id, 0, kept - 1);
        assert_int_equal(psw_vocab_count(vocab, id), counts[i]);
        const char *found = psw_vocab_word(vocab, id, &found_size);
        assert_int_equal(found_size, size);
        assert_memory_equal(found, word, size);
    }
    for (uint32_t id = 1; id < kept; id++) {
        size_t a_size, b_size;
        const char *a = psw_vocab_word(vocab, id - 1, &a_size);
        const char *b = psw_vocab_word(vocab, id, &b_size);
        uint64_t a_count = psw_vocab_count(vocab, id - 1), b_count = psw_vocab_count(vocab, id);
        assert_true(a_count >= b_count);
        if (a_count == b_count) {
            int order = memcmp(a, b, a_size < b_size ? a_size : b_size);
            assert_true(order < 0 || (order == 0 && a_size < b_size));
        }
    }
    psw_vocab_destroy(vocab);
    psw_counter_destroy(counter);
}

static void any_number_of_workers_gives_the_same_ids(void **state)
{
    (void)state;
    uint64_t key = seed(), fingerprint = 0;
    for (uint32_t n = 1; n <= 5; n++) {
        psw_counter_t *counters[5], *all;
        for (uint32_t w = 0; w < n; w++)
            counters[w] = new_counter();
        for (uint32_t i = 0; i < 20000; i++)
            add(counters[i % n], (uint32_t)(psc_rng_at(key, i) % N_WORDS), 1);
        gathering_t gathering = {.counters = counters, .n = n};
        assert_int_equal(psw_vocab_gather(counters[0], n, gather, &gathering, &all, NULL), PSC_OK);
        assert_int_equal(psw_counter_total(all), 20000);
        psw_vocab_t *vocab = build(all, 5);
        if (n == 1)
            fingerprint = psw_vocab_fingerprint(vocab);
        assert_true(psw_vocab_fingerprint(vocab) == fingerprint);
        psw_vocab_destroy(vocab);
        psw_counter_destroy(all);
        for (uint32_t w = 0; w < n; w++)
            psw_counter_destroy(counters[w]);
    }
}

static void sums_of_counts_do_not_wrap(void **state)
{
    (void)state;
    psw_counter_t *counter = new_counter();
    add(counter, 1, UINT64_C(1) << 63);
    add(counter, 2, UINT64_C(1) << 63);
    add(counter, 3, 5);
    assert_true(psw_counter_total(counter) == UINT64_MAX);
    psw_vocab_t *vocab = build(counter, 1);
    assert_true(psw_vocab_total(vocab) == UINT64_MAX);
    psw_vocab_destroy(vocab);
    add(counter, 1, UINT64_C(1) << 63);
    assert_true(psw_counter_at(counter, 0).count == UINT64_MAX);
    psw_counter_destroy(counter);
}

static void damaged_counts_of_a_worker_are_refused(void **state)
{
    (void)state;
    psw_counter_t *counter = new_counter(), *other = new_counter();
    add(counter, 100, 7);
    char *packed;
    size_t size;
    assert_int_equal(psw_counter_pack(counter, &packed, &size, NULL), PSC_OK);
    for (size_t cut = 1; cut < size; cut++)
        assert_int_equal(psw_counter_unpack(other, packed, cut, NULL), PSC_PROTOCOL);
    memset(packed + 8, 0xff, 4);
    assert_int_equal(psw_counter_unpack(other, packed, size, NULL), PSC_PROTOCOL);
    memset(packed + 8, 0, 4);
    assert_int_equal(psw_counter_unpack(other, packed, size, NULL), PSC_PROTOCOL);
    assert_int_equal(psw_counter_distinct(other), 0);
    psc_free(packed);
    psw_counter_destroy(counter);
    psw_counter_destroy(other);
}

static void temporary(char *path, size_t size)
{
    const char *folder = getenv("TMPDIR");
    (void)snprintf(path, size, "%s/embps-vocab.XXXXXX", folder != NULL ? folder : "/tmp");
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
}

static void a_saved_vocabulary_reads_back_the_same(void **state)
{
    (void)state;
    char path[256];
    temporary(path, sizeof path);
    psw_counter_t *counter = new_counter(), *read = new_counter();
    for (uint32_t i = 0; i < N_WORDS; i++)
        add(counter, i, 1 + i % 50);
    psw_vocab_t *vocab = build(counter, 3);
    assert_int_equal(psw_vocab_save(vocab, path, NULL), PSC_OK);
    psc_error_t error = PSC_ERROR_INIT;
    if (psw_vocab_read(path, read, &error) != PSC_OK)
        fail_msg("%s", error.message);
    char *bytes = NULL, *file = NULL; /* what a checkpoint has is such a file */
    size_t n = 0, size = 0;
    assert_int_equal(psw_vocab_write(vocab, &bytes, &n, NULL), PSC_OK);
    assert_int_equal(psc_file_read(path, (size_t)1 << 24, &file, &size, NULL), PSC_OK);
    assert_int_equal(n, size);
    assert_memory_equal(bytes, file, n);
    psc_free(bytes);
    psc_free(file);
    psw_vocab_t *again = build(read, 1);
    assert_true(psw_vocab_fingerprint(vocab) == psw_vocab_fingerprint(again));
    assert_int_equal(psw_vocab_size(vocab), psw_vocab_size(again));
    psw_vocab_destroy(vocab);
    psw_vocab_destroy(again);
    psw_counter_destroy(counter);
    psw_counter_destroy(read);
    unlink(path);
}

static psc_status_t read_text(const char *text, size_t size, psc_error_t *error, size_t *n_out)
{
    char path[256];
    temporary(path, sizeof path);
    assert_int_equal(psc_file_write(path, text, size, NULL), PSC_OK);
    psw_counter_t *counter = new_counter();
    psc_status_t st = psw_vocab_read(path, counter, error);
    *n_out = psw_counter_distinct(counter);
    psw_counter_destroy(counter);
    unlink(path);
    return st;
}

static void damaged_vocabulary_files_are_refused_with_the_line(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "good 3\nbad\n",       "good 3\nbad \n",    "good 3\n 4\n",
        "good 3\n\n",          "good 3\nbad 4x\n",  "good 3\nbad -4\n",
        "good 3\nbad 4 \n",    "good 3\nbad 4\r\n", "good 3\nbad 99999999999999999999\n",
        "good 3\nbad  4\n",    "good 3\ngood 4\n",  "good 3\nbad 0\n",
        "good 3\nbad 4",       "good 3\nbad\t4\n",  "good 3\nbad 9223372036854775809\n",
        "good 3\nbad two 4\n", "good 3\nbad 0x4\n", "good 3\nbad +4\n",
    };
    size_t n;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        psc_error_t error = PSC_ERROR_INIT;
        if (read_text(bad[i], strlen(bad[i]), &error, &n) != PSC_CORRUPT)
            fail_msg("taken: %s", bad[i]);
        assert_non_null(strstr(error.message, ":2: "));
    }
    psc_error_t error = PSC_ERROR_INIT;
    assert_int_equal(read_text("</s> 0\na 9223372036854775808\n", 29, &error, &n), PSC_OK);
    assert_int_equal(n, 1);
    assert_int_equal(read_text("", 0, &error, &n), PSC_OK);
    assert_int_equal(n, 0);
    static const char number[] = {'x', ' ', '1', '\n'};
    char line[6000];
    memset(line, 'x', sizeof line);
    memcpy(line + 4096, number + 1, 3);
    assert_int_equal(read_text(line, 4099, &error, &n), PSC_OK);
    memcpy(line + 4096, number, 4);
    assert_int_equal(read_text(line, 4100, &error, &n), PSC_CORRUPT);
    memset(line, 'x', sizeof line);
    assert_int_equal(read_text(line, sizeof line, &error, &n), PSC_CORRUPT);
    psw_counter_t *counter = new_counter();
    assert_int_equal(psw_vocab_read("/nonexistent/vocab", counter, &error), PSC_NOT_FOUND);
    psw_counter_destroy(counter);
}

static void memory_that_runs_out_is_an_error_and_leaks_nothing(void **state)
{
    (void)state;
    bool whole = false;
    for (unsigned long n = 1; !whole; n++) {
        psw_counter_t *counter = NULL;
        psw_vocab_t *vocab = NULL;
        psc_alloc_fail_at(n);
        psc_status_t st = psw_counter_create(&counter, NULL);
        for (uint32_t i = 0; st == PSC_OK && i < N_WORDS; i++) {
            char word[32];
            size_t size = make_word(i, word);
            st = psw_counter_add(counter, word, size, 1, NULL);
        }
        if (st == PSC_OK)
            st = psw_vocab_build(counter, 1, &vocab, NULL);
        whole = st == PSC_OK;
        psc_alloc_fail_at(0);
        assert_true(whole || st == PSC_NO_MEMORY);
        psw_vocab_destroy(vocab);
        psw_counter_destroy(counter);
        assert_in_range(n, 1, 100);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_go_by_falling_count_then_by_bytes),
        cmocka_unit_test(any_number_of_workers_gives_the_same_ids),
        cmocka_unit_test(sums_of_counts_do_not_wrap),
        cmocka_unit_test(damaged_counts_of_a_worker_are_refused),
        cmocka_unit_test(a_saved_vocabulary_reads_back_the_same),
        cmocka_unit_test(damaged_vocabulary_files_are_refused_with_the_line),
        cmocka_unit_test(memory_that_runs_out_is_an_error_and_leaks_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
