/* worker/tool: correlation, test files, search and look-up, each against an oracle of its own. */
#include "worker/tool/commands.h"
#include "worker/tool/questions.h"
#include "worker/tool/similarity.h"
#include "worker/tool/vector_search.h"
#include "worker/tool/word_lookup.h"

#include "common/alloc.h"
#include "tests/support/cmocka.h"
#include "tests/support/test_seed.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

/* A set of named vectors; normalised. */
static psw_vectors_t *make_set(const char *const *words, const float *rows, size_t n, size_t dim)
{
    psc_error_t error = PSC_ERROR_INIT;
    psw_vectors_t *vectors;
    assert_int_equal(psw_vectors_create(dim, &vectors, &error), PSC_OK);
    for (size_t i = 0; i < n; i++) {
        bool added;
        assert_int_equal(
            psw_vectors_add(vectors, words[i], strlen(words[i]), rows + i * dim, &added, &error),
            PSC_OK);
        assert_true(added);
    }
    psw_vectors_normalize(vectors);
    return vectors;
}

/* A file that lasts until close_text. */
typedef struct text_file {
    FILE *file;
    char path[64];
} text_file_t;

static text_file_t open_text(const char *text)
{
    text_file_t t = {.file = tmpfile()};
    assert_non_null(t.file);
    assert_true(fputs(text, t.file) >= 0);
    assert_int_equal(fflush(t.file), 0);
    (void)snprintf(t.path, sizeof t.path, "/proc/self/fd/%d", fileno(t.file));
    return t;
}

static void close_text(text_file_t *t)
{
    (void)fclose(t->file);
}

/*
 * Expected values: exact rational arithmetic over the definition (Pearson's correlation of ranks, a
 * rank being the number of smaller values plus half of one more than the number of equal ones), in
 * Python's fractions. The first example is the one of Wikipedia's article on Spearman's
 * coefficient, -29/165.
 */
static void spearman_is_that_of_exact_arithmetic(void **state)
{
    (void)state;
    static const struct {
        double a[10];
        double b[10];
        size_t n;
        double expected;
    } cases[] = {
        {{106, 100, 86, 101, 99, 103, 97, 113, 112, 110},
         {7, 27, 2, 50, 28, 29, 20, 12, 6, 17},
         10,
         -29.0 / 165},
        {{1, 2, 2, 3, 3, 3, 4, 10}, {2, 1, 1, 5, 4, 4, 4, 9}, 8, 65.0 / 79},
        {{1, 2, 2, 3, 3, 3, 4, 10}, {9, 4, 4, 4, 5, 1, 1, 2}, 8, -54.0 / 79},
        {{0.5, -1, 3, 3}, {1, 1, 2, -7}, 4, 0.0},
        {{1, 2}, {5, 9}, 2, 1.0},
    };
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        bool defined;
        double got;
        psc_error_t error = PSC_ERROR_INIT;
        assert_int_equal(psw_spearman(cases[k].a, cases[k].b, cases[k].n, &defined, &got, &error),
                         PSC_OK);
        assert_true(defined);
        assert_true(fabs(got - cases[k].expected) < 1e-14);
    }
}

static void spearman_of_too_little_is_undefined(void **state)
{
    (void)state;
    static const double equal[] = {2, 2, 2};
    static const double rising[] = {1, 2, 3};
    psc_error_t error = PSC_ERROR_INIT;
    bool defined = true;
    double got;
    assert_int_equal(psw_spearman(equal, rising, 3, &defined, &got, &error), PSC_OK);
    assert_false(defined);
    defined = true;
    assert_int_equal(psw_spearman(rising, rising, 1, &defined, &got, &error), PSC_OK);
    assert_false(defined);
    defined = true;
    assert_int_equal(psw_spearman(rising, rising, 0, &defined, &got, &error), PSC_OK);
    assert_false(defined);
}

static const char *const words[] = {"one", "two", "three", "four", "Upper"};
static const float angles[] = {1, 0, 1, 0.2f, 1, 0.5f, 0, 1, -1, 0};

static void similarity_files_of_every_form_are_read(void **state)
{
    (void)state;
    psw_vectors_t *vectors = make_set(words, angles, 5, 2);
    static const char *const forms[] = {
        "one\ttwo\t9\none\tthree\t7\none\tfour\t2\none\tmissing\t1\n",
        "one\ttwo\t9.0\r\none\tthree\t7.0\r\none\tfour\t2.0\r\nmissing\tone\t1.0",
        "Word 1,Word 2,Human (mean)\none,two,9\none,three,7\none,four,2\nmissing,x,1\n",
        "one two 9\n# a comment\n\none three 7\n  one   four   2\none missing 1\n",
        ("word1\tword2\tPOS\tscore\none\ttwo\tN\t9\t1\none\tthree\tN\t7\t1\none\tfour\tA\t2\t3\n"
         "missing\tfour\tA\t2\t3\n"),
        "\xef\xbb\xbfOne\ttwo\t9\none\tTHREE\t7\none\tfour\t2\nupper\tone\t3\n",
    };
    for (size_t k = 0; k < sizeof forms / sizeof forms[0]; k++) {
        text_file_t file = open_text(forms[k]);
        psc_error_t error = PSC_ERROR_INIT;
        psw_similarity_t result;
        if (psw_similarity_run(vectors, 5, file.path, &result, &error) != PSC_OK)
            fail_msg("%s", error.message);
        assert_int_equal(result.n_pairs, 4);
        assert_int_equal(result.n_used, 3);
        assert_int_equal(result.n_lowered, k == 5 ? 2 : 0);
        assert_true(result.defined && fabs(result.spearman - 1.0) < 1e-12);
        close_text(&file);
    }
    psw_vectors_destroy(vectors);
}

static void damaged_test_files_are_refused_with_their_line(void **state)
{
    (void)state;
    psw_vectors_t *vectors = make_set(words, angles, 5, 2);
    static const struct {
        const char *text;
        const char *says;
    } pairs[] = {{"one two 1\none two\n", "line 2"},
                 {"one two 1\n\none\ttwo\tx\n", "line 3"},
                 {"", "no pair"},
                 {"heading\n", "no pair"}},
      questions[] = {{": s\none two three\n", "line 2"},
                     {"one two three four one\n", "line 1"},
                     {": s\n", "no question"}};
    for (size_t k = 0; k < sizeof pairs / sizeof pairs[0]; k++) {
        text_file_t file = open_text(pairs[k].text);
        psc_error_t error = PSC_ERROR_INIT;
        psw_similarity_t result;
        assert_int_equal(psw_similarity_run(vectors, 5, file.path, &result, &error), PSC_CORRUPT);
        assert_non_null(strstr(error.message, pairs[k].says));
        close_text(&file);
    }
    for (size_t k = 0; k < sizeof questions / sizeof questions[0]; k++) {
        text_file_t file = open_text(questions[k].text);
        psc_error_t error = PSC_ERROR_INIT;
        psw_questions_t result = {0};
        assert_int_equal(psw_questions_run(vectors, 5, file.path, &result, &error), PSC_CORRUPT);
        assert_non_null(strstr(error.message, questions[k].says));
        close_text(&file);
    }
    psw_vectors_destroy(vectors);
}

/* Words on a grid: x is a country, y is what of it; answers are exact. */
static void analogies_are_counted_by_section(void **state)
{
    (void)state;
    static const char *const grid[] = {"paris", "france", "rome", "italy", "oslo", "norway", "far"};
    static const float rows[] = {1, 0, 0, 0, 1, 0, 0, 1, 0, 1, 0, 0, 0, 1,
                                 0, 1, 0, 0, 1, 0, 0, 0, 1, 1, 0, 0, 0, -1};
    psw_vectors_t *vectors = make_set(grid, rows, 7, 4);
    text_file_t file = open_text("Paris France Rome Italy\n"
                                 ": capitals and more\r\n"
                                 "paris france oslo norway\r\n"
                                 "paris france oslo italy\n"
                                 "paris france oslo sweden\n"
                                 "\n// a comment\n"
                                 ": none known\n"
                                 "a b c d");
    psc_error_t error = PSC_ERROR_INIT;
    psw_questions_t q;
    if (psw_questions_run(vectors, 7, file.path, &q, &error) != PSC_OK)
        fail_msg("%s", error.message);
    assert_int_equal(q.n_sections, 3);
    assert_string_equal(q.sections[0].name, "");
    assert_int_equal(q.sections[0].n_right, 1);
    assert_string_equal(q.sections[1].name, "capitals and more");
    assert_int_equal(q.sections[1].n_questions, 3);
    assert_int_equal(q.sections[1].n_known, 2);
    assert_int_equal(q.sections[1].n_right, 1);
    assert_int_equal(q.sections[2].n_known, 0);
    assert_int_equal(q.total.n_questions, 5);
    assert_int_equal(q.total.n_known, 3);
    assert_int_equal(q.total.n_right, 2);
    assert_int_equal(q.n_lowered, 1);
    psw_questions_free(&q);
    /* Restricted to the first five rows, norway is unknown. */
    assert_int_equal(psw_questions_run(vectors, 5, file.path, &q, &error), PSC_OK);
    assert_int_equal(q.total.n_known, 2);
    psw_questions_free(&q);
    close_text(&file);
    psw_vectors_destroy(vectors);
}

/* Best rows by plain selection over double dot products, exclusions left out. */
static void check_search(const psw_vectors_t *vectors, size_t n_rows, const float *query,
                         const psw_excluded_t *excluded, const psw_hit_t *hits, size_t n,
                         size_t top)
{
    size_t possible = 0;
    double worst = n > 0 ? (double)hits[n - 1].score : 0.0;
    for (size_t row = 0; row < n_rows; row++) {
        bool out = false;
        for (size_t k = 0; k < excluded->n; k++)
            out = out || excluded->rows[k] == row;
        bool found = false;
        double score = 0;
        for (size_t c = 0; c < psw_vectors_dim(vectors); c++)
            score += (double)query[c] * (double)psw_vectors_row(vectors, row)[c];
        for (size_t k = 0; k < n; k++) {
            if (hits[k].row != row)
                continue;
            assert_true(fabs((double)hits[k].score - score) < 1e-5);
            found = true;
        }
        assert_false(out && found);
        possible += out ? 0 : 1;
        if (!out && !found)
            assert_true(score <= worst + 1e-5);
    }
    assert_int_equal(n, possible < top ? possible : top);
    for (size_t k = 1; k < n; k++)
        assert_true(hits[k - 1].score > hits[k].score ||
                    (hits[k - 1].score == hits[k].score && hits[k - 1].row < hits[k].row));
}

static void search_finds_what_brute_force_finds(void **state)
{
    (void)state;
    test_random_t random = test_random_start();
    enum { N = 700, DIM = 19, QUERIES = 130, TOP = 7 };
    psc_error_t error = PSC_ERROR_INIT;
    psw_vectors_t *vectors;
    assert_int_equal(psw_vectors_create(DIM, &vectors, &error), PSC_OK);
    for (size_t i = 0; i < N; i++) {
        float row[DIM];
        char word[16];
        for (size_t c = 0; c < DIM; c++) /* coarse values, so that scores tie */
            row[c] = (float)test_below(&random, 3) - 1.0f;
        bool added;
        int size = snprintf(word, sizeof word, "w%zu", i);
        assert_int_equal(psw_vectors_add(vectors, word, (size_t)size, row, &added, &error), PSC_OK);
    }
    psw_vectors_normalize(vectors);
    static const size_t rows_searched[] = {1, 2, 5, 255, 256, 257, N};
    size_t stride = psw_vectors_stride(vectors);
    for (size_t r = 0; r < 7; r++) {
        size_t n_rows = rows_searched[r];
        static psw_excluded_t excluded[QUERIES];
        static psw_hit_t hits[QUERIES * TOP];
        size_t found[QUERIES];
        for (size_t q = 0; q < QUERIES; q++) {
            excluded[q].n = test_below(&random, 4);
            for (size_t k = 0; k < 3; k++)
                excluded[q].rows[k] = test_below(&random, n_rows);
        }
        /* The queries are rows of the set, so some score exactly alike. */
        const float *queries = psw_vectors_row(vectors, N - QUERIES);
        assert_int_equal(
            psw_search(vectors, n_rows, queries, QUERIES, excluded, TOP, hits, found, &error),
            PSC_OK);
        for (size_t q = 0; q < QUERIES; q++)
            check_search(vectors, n_rows, queries + q * stride, &excluded[q], hits + q * TOP,
                         found[q], TOP);
    }
    psw_vectors_destroy(vectors);
}

static void words_are_looked_up_as_they_are_and_in_lower_case(void **state)
{
    (void)state;
    psw_vectors_t *vectors = make_set(words, angles, 5, 2);
    size_t row;
    assert_int_equal(psw_word_lookup(vectors, 5, "Upper", 5, &row), PSW_LOOKUP_AS_IS);
    assert_int_equal(row, 4);
    assert_int_equal(psw_word_lookup(vectors, 5, "upper", 5, &row), PSW_LOOKUP_NONE);
    assert_int_equal(psw_word_lookup(vectors, 5, "ONE", 3, &row), PSW_LOOKUP_LOWERED);
    assert_int_equal(row, 0);
    assert_int_equal(psw_word_lookup(vectors, 2, "three", 5, &row), PSW_LOOKUP_NONE);
    psw_vectors_destroy(vectors);
}

static void an_unknown_word_brings_those_that_are_close(void **state)
{
    (void)state;
    psw_vectors_t *vectors = make_set(words, angles, 5, 2);
    size_t rows[PSW_MOST_ALTERNATIVES];
    assert_true(psw_word_alternatives(vectors, "thre", 4, rows) >= 1);
    assert_int_equal(rows[0], 2);
    assert_true(psw_word_alternatives(vectors, "tow", 3, rows) >= 1);
    assert_int_equal(rows[0], 1);
    assert_int_equal(psw_word_alternatives(vectors, "xylophone", 9, rows), 0);
    psc_error_t error = PSC_ERROR_INIT;
    assert_int_equal(psw_unknown_word(vectors, "file.txt", "foour", &error), PSC_NOT_FOUND);
    assert_non_null(strstr(error.message, "\"foour\" is not among the 5 words of file.txt"));
    assert_non_null(strstr(error.message, "four"));
    psw_vectors_destroy(vectors);
}

static void short_memory_is_an_error_at_every_allocation(void **state)
{
    (void)state;
    psw_vectors_t *vectors = make_set(words, angles, 5, 2);
    text_file_t pairs = open_text("one two 3\none three 2\n");
    text_file_t questions = open_text(": s\none two three four\n");
    for (unsigned long n = 1;; n++) {
        psc_error_t error = PSC_ERROR_INIT;
        psw_similarity_t similarity;
        psw_questions_t q = {0};
        psc_alloc_fail_at(n);
        psc_status_t st = psw_similarity_run(vectors, 5, pairs.path, &similarity, &error);
        if (st == PSC_OK)
            st = psw_questions_run(vectors, 5, questions.path, &q, &error);
        psc_alloc_fail_at(0);
        psw_questions_free(&q);
        if (st == PSC_OK) {
            assert_true(n > 8);
            break;
        }
        assert_int_equal(st, PSC_NO_MEMORY);
    }
    close_text(&pairs);
    close_text(&questions);
    psw_vectors_destroy(vectors);
}

static void wrong_command_lines_are_refused(void **state)
{
    (void)state;
    char *const none[] = {(char[]){"x"}, NULL};
    char *const no_word[] = {(char[]){"x"}, (char[]){"--vectors"}, (char[]){"f"}, NULL};
    psc_error_t error = PSC_ERROR_INIT;
    assert_int_equal(psw_tool_nearest(1, none, &error), PSC_INVALID_ARGUMENT);
    assert_int_equal(psw_tool_nearest(3, no_word, &error), PSC_INVALID_ARGUMENT);
    assert_int_equal(psw_tool_analogy(3, no_word, &error), PSC_INVALID_ARGUMENT);
    assert_int_equal(psw_tool_eval(3, no_word, &error), PSC_INVALID_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spearman_is_that_of_exact_arithmetic),
        cmocka_unit_test(spearman_of_too_little_is_undefined),
        cmocka_unit_test(similarity_files_of_every_form_are_read),
        cmocka_unit_test(damaged_test_files_are_refused_with_their_line),
        cmocka_unit_test(analogies_are_counted_by_section),
        cmocka_unit_test(search_finds_what_brute_force_finds),
        cmocka_unit_test(words_are_looked_up_as_they_are_and_in_lower_case),
        cmocka_unit_test(an_unknown_word_brings_those_that_are_close),
        cmocka_unit_test(short_memory_is_an_error_at_every_allocation),
        cmocka_unit_test(wrong_command_lines_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
