/* worker/vectors: what is written reads back; real files of many tools; hostile files. */
#include "worker/vectors/vector_set.h"
#include "worker/vectors/word2vec.h"

#include "common/alloc.h"
#include "tests/support/shared_data.h"
#include "tests/support/test_seed.h"

#include "tests/support/cmocka.h"
#include <fcntl.h>
#include <math.h>
#include <string.h>

/* Loads bytes as if they were a file of name "/proc/self/fd/N". */
static psc_status_t load_bytes(const char *bytes, size_t size, psw_vectors_t **vectors_out,
                               psc_error_t *error)
{
    FILE *file = tmpfile();
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fflush(file), 0);
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fileno(file));
    psc_status_t st = psw_vectors_load(path, vectors_out, error);
    (void)fclose(file);
    return st;
}

static psw_vectors_t *must_load(const char *bytes, size_t size)
{
    psc_error_t error = PSC_ERROR_INIT;
    psw_vectors_t *vectors = NULL;
    if (load_bytes(bytes, size, &vectors, &error) != PSC_OK)
        fail_msg("%s", error.message);
    return vectors;
}

/* The text must be refused with code, in words that hold each of the two. */
static void refused(const char *bytes, size_t size, psc_status_t code, const char *word1,
                    const char *word2)
{
    psc_error_t error = PSC_ERROR_INIT;
    psw_vectors_t *vectors = NULL;
    psc_status_t st = load_bytes(bytes, size, &vectors, &error);
    if (st != code || strstr(error.message, word1) == NULL || strstr(error.message, word2) == NULL)
        fail_msg("%d: %s", (int)st, error.message);
    assert_null(vectors);
}

static void refused_text(const char *text, const char *word1, const char *word2)
{
    refused(text, strlen(text), PSC_CORRUPT, word1, word2);
}

static bool value_is(const psw_vectors_t *vectors, const char *word, size_t column, double value)
{
    size_t row;
    return psw_vectors_find(vectors, word, strlen(word), &row) &&
           psw_vectors_row(vectors, row)[column] == (float)value;
}

static void a_float_reads_back_from_its_text(void **state)
{
    (void)state;
    test_random_t random = test_random_start();
    for (int k = 0; k < 300000; k++) {
        uint32_t bits = (uint32_t)test_next(&random);
        if (k % 2 == 0) /* sizes as vectors have them */
            bits = (bits & 0x807fffffu) | (uint32_t)(105 + test_below(&random, 40)) << 23;
        float value;
        memcpy(&value, &bits, sizeof value);
        char text[PSW_FLOAT_TEXT_SIZE];
        size_t size = psw_float_print(value, text);
        assert_int_equal(size, strlen(text));
        float back = strtof(text, NULL);
        if (isnan(value))
            assert_true(isnan(back));
        else
            assert_memory_equal(&back, &value, sizeof value);
    }
}

static void a_float_has_no_digits_that_say_nothing(void **state)
{
    (void)state;
    static const struct {
        float value;
        const char *text;
    } cases[] = {{0.0f, "0"},
                 {-0.0f, "-0"},
                 {1.0f, "1"},
                 {-1.5f, "-1.5"},
                 {0.1f, "0.1"},
                 {100.0f, "100"},
                 {123456.0f, "123456"},
                 {0.0001f, "0.0001"},
                 {-0.025f, "-0.025"},
                 {1.0f / 3, "0.33333334"},
                 {99.99999f, "99.99999"}};
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        char text[PSW_FLOAT_TEXT_SIZE];
        (void)psw_float_print(cases[k].value, text);
        assert_string_equal(text, cases[k].text);
    }
}

/* n words, some of them not UTF-8, and their rows through writer and reader. */
static void round_trip(test_random_t *random, bool binary, size_t n, uint32_t dim)
{
    char *bytes = NULL;
    size_t size = 0;
    FILE *stream = open_memstream(&bytes, &size);
    assert_non_null(stream);
    psc_error_t error = PSC_ERROR_INIT;
    psw_vectors_writer_t *writer;
    assert_int_equal(psw_vectors_writer_open(stream, binary, n, dim, &writer, &error), PSC_OK);
    float *rows = psc_alloc_array(n * dim + 1, sizeof *rows);
    assert_non_null(rows);
    for (size_t i = 0; i < n; i++) {
        for (size_t c = 0; c < dim; c++)
            rows[i * dim + c] = test_float(random);
        char word[32];
        int word_size = snprintf(word, sizeof word, "\xc3word\xff%zu", i);
        assert_int_equal(
            psw_vectors_writer_row(writer, word, (size_t)word_size, rows + i * dim, &error),
            PSC_OK);
    }
    assert_int_equal(psw_vectors_writer_close(writer, &error), PSC_OK);
    (void)fclose(stream);

    psw_vectors_t *vectors = must_load(bytes, size);
    assert_string_equal(psw_vectors_format(vectors), binary ? "word2vec binary" : "word2vec text");
    assert_int_equal(psw_vectors_count(vectors), n);
    assert_int_equal(psw_vectors_dim(vectors), dim);
    for (size_t i = 0; i < n; i++) {
        char word[32];
        int word_size = snprintf(word, sizeof word, "\xc3word\xff%zu", i);
        size_t row;
        assert_true(psw_vectors_find(vectors, word, (size_t)word_size, &row));
        assert_int_equal(row, i);
        assert_memory_equal(psw_vectors_row(vectors, i), rows + i * dim, dim * sizeof *rows);
    }
    psw_vectors_destroy(vectors);
    psc_free(rows);
    free(bytes); /* open_memstream's */
}

static void what_the_writer_writes_the_reader_reads(void **state)
{
    (void)state;
    test_random_t random = test_random_start();
    static const size_t counts[] = {0, 1, 2, 1000};
    static const uint32_t dims[] = {3, 16, 100, 301};
    for (size_t n = 0; n < 4; n++)
        for (size_t d = 0; d < 4; d++) {
            round_trip(&random, false, counts[n], dims[d]);
            if (counts[n] > 0)
                round_trip(&random, true, counts[n], dims[d]);
        }
    round_trip(&random, true, 3, 20000); /* rows larger than every buffer */
    round_trip(&random, false, 3, 20000);
}

/* The lowest byte of the first float is a line end in one of 256 files. */
static void a_binary_row_may_begin_with_the_byte_of_a_line_end(void **state)
{
    (void)state;
    static const uint32_t dims[] = {2, 3, 16, 100};
    for (size_t k = 0; k < sizeof dims / sizeof dims[0]; k++) {
        for (size_t place = 0; place < 2; place++) {
            char bytes[600];
            size_t size = (size_t)snprintf(bytes, sizeof bytes, "1 %u\nword ", dims[k]);
            for (uint32_t c = 0; c < dims[k]; c++, size += sizeof(float)) {
                uint32_t bits = c == place ? 0x3e12ab0au : 0x3e80c3d1u;
                memcpy(bytes + size, &bits, sizeof bits);
            }
            psw_vectors_t *vectors = must_load(bytes, size);
            assert_string_equal(psw_vectors_format(vectors), "word2vec binary");
            assert_int_equal(psw_vectors_count(vectors), 1);
            psw_vectors_destroy(vectors);
        }
    }
}

static void the_writer_refuses_what_would_not_read_back(void **state)
{
    (void)state;
    psc_error_t error = PSC_ERROR_INIT;
    psw_vectors_writer_t *writer;
    FILE *stream = tmpfile();
    float row[2] = {1, 2};
    assert_int_equal(psw_vectors_writer_open(stream, false, 1, 0, &writer, &error),
                     PSC_INVALID_ARGUMENT);
    psc_alloc_fail_at(1);
    assert_int_equal(psw_vectors_writer_open(stream, false, 1, 2, &writer, &error), PSC_NO_MEMORY);
    psc_alloc_fail_at(0);
    assert_int_equal(psw_vectors_writer_open(stream, false, 1, 2, &writer, &error), PSC_OK);
    static const char *const bad[] = {"", "a b", "a\tb", "a\rb", "a\nb"};
    for (size_t k = 0; k < 5; k++)
        assert_int_equal(psw_vectors_writer_row(writer, bad[k], strlen(bad[k]), row, &error),
                         PSC_INVALID_ARGUMENT);
    assert_int_equal(psw_vectors_writer_row(writer, "a", 1, row, &error), PSC_OK);
    assert_int_equal(psw_vectors_writer_row(writer, "b", 1, row, &error), PSC_INVALID_ARGUMENT);
    assert_int_equal(psw_vectors_writer_close(writer, &error), PSC_OK);
    assert_int_equal(psw_vectors_writer_open(stream, false, 2, 2, &writer, &error), PSC_OK);
    assert_int_equal(psw_vectors_writer_close(writer, &error), PSC_INTERNAL);
    (void)fclose(stream);
}

static void a_full_disk_is_an_error_of_the_writer(void **state)
{
    (void)state;
    FILE *stream = fopen("/dev/full", "wb");
    if (stream == NULL)
        skip();
    psc_error_t error = PSC_ERROR_INIT;
    psw_vectors_writer_t *writer;
    float row[2] = {1, 2};
    assert_int_equal(psw_vectors_writer_open(stream, false, 1, 2, &writer, &error), PSC_OK);
    assert_int_equal(psw_vectors_writer_row(writer, "a", 1, row, &error), PSC_OK);
    assert_int_equal(psw_vectors_writer_close(writer, &error), PSC_DISK_FULL);
    (void)fclose(stream);
}

static void text_of_many_tools_is_read(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "2 3\na 1 2 3\nb -4 5e-1 6\n",
        "2 3\r\na 1 2 3\r\nb -4 5e-1 6\r\n",
        "a 1 2 3\nb -4 5e-1 6",
        "2 3 \na 1 2 3 \nb -4 5e-1 6 \n\n\n",
        "2 3\na\t1\t2\t3\nb\t-4\t5e-1\t6\n",
        "a  1 2  3\nb -4 +.5 6.\n",
    };
    for (size_t k = 0; k < sizeof texts / sizeof texts[0]; k++) {
        psw_vectors_t *vectors = must_load(texts[k], strlen(texts[k]));
        assert_int_equal(psw_vectors_count(vectors), 2);
        assert_int_equal(psw_vectors_dim(vectors), 3);
        assert_true(value_is(vectors, "a", 2, 3));
        assert_true(value_is(vectors, "b", 0, -4) && value_is(vectors, "b", 1, 0.5));
        size_t row;
        assert_false(psw_vectors_find(vectors, "c", 1, &row));
        psw_vectors_destroy(vectors);
    }
}

static void odd_words_are_words(void **state)
{
    (void)state;
    /* A number as word, a word with blanks as GloVe has them, one with a NUL, one that comes again.
     */
    static const char text[] = "2010 1 2\n. . 3 4\na\0b 5 6\n2010 7 8\n";
    psw_vectors_t *vectors = must_load(text, sizeof text - 1);
    assert_int_equal(psw_vectors_count(vectors), 3);
    assert_int_equal(psw_vectors_repeated(vectors), 1);
    assert_true(value_is(vectors, "2010", 0, 1));
    assert_true(value_is(vectors, ". .", 1, 4));
    size_t row;
    assert_true(psw_vectors_find(vectors, "a\0b", 3, &row));
    assert_false(psw_vectors_find(vectors, "a", 1, &row));
    psw_vectors_destroy(vectors);
}

static void damaged_text_is_refused_with_its_line(void **state)
{
    (void)state;
    refused_text("", "empty", "fd");
    refused_text(" \r\n\n", "nothing but empty lines", "fd");
    refused_text("3 2\na 1 2\nb 3 4\n", "promises 3 rows", "after 2");
    refused_text("1 2\na 1 2\nb 3 4\n", "line 3", "more rows");
    refused_text("2 2\na 1 2\nb 3\n", "line 3", "1 numbers where 2 belong");
    refused_text("2 2\na 1 2\nb 3 4 5\n", "line 3", "3 numbers where 2 belong");
    refused_text("2 2\na 1 2\nb 3 x\n", "line 3", "\"x\" is not a number");
    refused_text("2 2\na 1 2\nb nan 1\n", "line 3", "not finite");
    refused_text("2 2\na 1 2\nb 1e99 1\n", "line 3", "not finite");
    refused_text("2 2\na 1 2\n 3 4\n", "line 3", "no word before");
    refused_text("2 2\na 1 2\nb 3 4.2", "line 3", "no newline; the file was cut off");
    refused_text("2 2\na 1 2\nb 3 4.2 ", "line 3", "no newline; the file was cut off");
    refused_text("2 0\na\n", "line 1", "0 dimensions");
    refused_text("a 1 2\n\nb 3 4\n", "line 3", "after an empty line");
    refused_text("a 1 2\nb 3 4 5\n", "line 2", "3 numbers where 2 belong");
    refused_text("9999999999 4294967295\na 1 2\n", "line 2", "2 numbers where 4294967295 belong");
    refused_text("9999999999999999999 4294967295\n", "promises 9999999999999999999 rows",
                 "after 0");
}

static void a_line_without_end_is_refused_before_memory_ends(void **state)
{
    (void)state;
    static const char start[] = "a 1 2\nb";
    const size_t size = (size_t)17 << 20;
    char *text = calloc(size, 1);
    assert_non_null(text);
    refused(text, size, PSC_CORRUPT, "line 1", "longer than 16 MiB");
    memcpy(text, start, sizeof start - 1);
    refused(text, size, PSC_CORRUPT, "line 2", "longer than 16 MiB");
    free(text);
}

static void damaged_binary_is_refused_with_its_row(void **state)
{
    (void)state;
    static const char good[] = "2 2\na \0\0\x80\x3f\0\0\x80\x3f\nb \0\0\x80\x3f\0\0\0\x40";
    psw_vectors_t *vectors = must_load(good, sizeof good - 1);
    assert_true(value_is(vectors, "b", 1, 2));
    psw_vectors_destroy(vectors);
    for (size_t size = 8; size < sizeof good - 1; size++) {
        psc_error_t error = PSC_ERROR_INIT;
        psc_status_t st = load_bytes(good, size, &vectors, &error);
        assert_int_equal(st, PSC_CORRUPT);
        assert_true(strstr(error.message, "promises") != NULL);
    }
    static const char more[] = "1 1\na \0\0\x80\x3f\nb \0\0\x80\x3f";
    refused(more, sizeof more - 1, PSC_CORRUPT, "row 2", "more rows");
    static const char infinite[] = "1 1\na \0\0\x80\x7f\n";
    refused(infinite, sizeof infinite - 1, PSC_CORRUPT, "row 1", "not finite");
    static const char no_word[] = "2 1\na \0\0\x80\x3f\n \0\0\x80\x3f";
    refused(no_word, sizeof no_word - 1, PSC_CORRUPT, "row 2", "empty word");
    static const char huge[] = "9000000000 4000000000\na \0\0\x80\x3f\0\0\x80\x3f";
    refused(huge, sizeof huge - 1, PSC_CORRUPT, "row 1", "9000000000");
}

static void other_formats_are_refused_by_name(void **state)
{
    (void)state;
    refused("\x1f\x8b\x08", 3, PSC_UNSUPPORTED, "gzip", "unpack");
    refused("FiFu\0\0", 6, PSC_UNSUPPORTED, "finalfusion", "word2vec");
    refused("\xba\x16\x4f\x2f\x0c", 5, PSC_UNSUPPORTED, "fastText", ".vec");
    refused("\x80\x04\x95", 3, PSC_UNSUPPORTED, "pickle", "word2vec");
    refused("the quick brown fox\n", 20, PSC_UNSUPPORTED, "no file of vectors", "first line");
    psc_error_t error = PSC_ERROR_INIT;
    psw_vectors_t *vectors;
    assert_int_equal(psw_vectors_load("/nowhere/at-all", &vectors, &error), PSC_NOT_FOUND);
    assert_non_null(strstr(error.message, "/nowhere/at-all"));
    assert_int_equal(psw_vectors_load("/proc", &vectors, &error), PSC_IO);
}

static void short_memory_is_an_error_at_every_allocation(void **state)
{
    (void)state;
    static const char *const texts[] = {"2 2\na 1 2\nb 3 4\n", "a 1 2\nb 3 4\n",
                                        "1 2\na \x01\x01\x01\x01\x01\x01\x01\x01\n"};
    for (size_t k = 0; k < 3; k++)
        for (unsigned long n = 1;; n++) {
            psc_error_t error = PSC_ERROR_INIT;
            psw_vectors_t *vectors = NULL;
            psc_alloc_fail_at(n);
            psc_status_t st = load_bytes(texts[k], strlen(texts[k]), &vectors, &error);
            psc_alloc_fail_at(0);
            if (st == PSC_OK) {
                psw_vectors_destroy(vectors);
                assert_true(n > 4);
                break;
            }
            assert_int_equal(st, PSC_NO_MEMORY);
        }
}

static void rows_become_unit_vectors(void **state)
{
    (void)state;
    static const char text[] = "a 3 4\nzero 0 0\nlarge 3e30 4e30\ntiny 3e-30 -4e-30\n";
    psw_vectors_t *vectors = must_load(text, sizeof text - 1);
    psw_vectors_normalize(vectors);
    static const double expected[4][2] = {{0.6, 0.8}, {0, 0}, {0.6, 0.8}, {0.6, -0.8}};
    for (size_t i = 0; i < 4; i++)
        for (size_t c = 0; c < 2; c++)
            assert_true(fabs((double)psw_vectors_row(vectors, i)[c] - expected[i][c]) < 1e-6);
    psw_vectors_destroy(vectors);
}

static bool load_odd(const char *name, psc_status_t code, psw_vectors_t **vectors_out,
                     psc_error_t *error)
{
    char below[256];
    char path[1024];
    (void)snprintf(below, sizeof below, "vectors/odd/%s", name);
    if (!shared_data_path(below, path, sizeof path))
        return false;
    psc_status_t st = psw_vectors_load(path, vectors_out, error);
    if (st != code)
        fail_msg("%s: %d %s", name, (int)st, error->message);
    return true;
}

/* Sizes and oddities as the data folder's own README has them. */
static void real_files_of_other_tools_are_read(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        size_t count;
        size_t dim;
        const char *format;
    } files[] = {
        {"euclidean_vectors.bin", 2747, 10, "word2vec binary"},
        {"similarity.bin", 41, 100, "word2vec binary"},
        {"similarity.txt", 41, 100, "word2vec text"},
        {"similarity.nodims", 41, 100, "word2vec text without first line"},
        {"high_precision.kv.bin", 2, 2, "word2vec binary"},
        {"high_precision.kv.txt", 2, 2, "word2vec text"},
        {"EN.1-10.cbow1_wind5_hs0_neg10_size300_smpl1e-05.txt", 20, 300, "word2vec text"},
        {"pang_lee_polarity_fasttext.vec", 1694, 100, "word2vec text"},
        {"test_glove.txt", 76, 50, "word2vec text without first line"},
        {"crime-and-punishment.vec", 291, 5, "word2vec text"},
        {"toy-model.vec", 22, 5, "word2vec text"},
        {"w2v_keyedvectors_load_test.modeldata", 2, 3, "word2vec text"},
        {"utf8-incomplete.txt", 3, 3, "word2vec text without first line"},
    };
    size_t n_read = 0;
    for (size_t k = 0; k < sizeof files / sizeof files[0]; k++) {
        psc_error_t error = PSC_ERROR_INIT;
        psw_vectors_t *vectors;
        if (!load_odd(files[k].name, PSC_OK, &vectors, &error))
            continue;
        assert_int_equal(psw_vectors_count(vectors), files[k].count);
        assert_int_equal(psw_vectors_dim(vectors), files[k].dim);
        assert_string_equal(psw_vectors_format(vectors), files[k].format);
        assert_int_equal(psw_vectors_repeated(vectors), 0);
        psw_vectors_destroy(vectors);
        n_read++;
    }
    if (n_read == 0)
        skip();
}

/* The same vectors in two files. A binary may hold other digits than the text: its values in
 * "high_precision" were cut to half the bits. */
static void check_same(const char *name_a, const char *name_b, double tolerance)
{
    psc_error_t error = PSC_ERROR_INIT;
    psw_vectors_t *a = NULL;
    psw_vectors_t *b = NULL;
    if (!load_odd(name_a, PSC_OK, &a, &error))
        return;
    assert_true(load_odd(name_b, PSC_OK, &b, &error));
    for (size_t i = 0; i < psw_vectors_count(a); i++) {
        size_t size;
        size_t row;
        const char *word = psw_vectors_word(a, i, &size);
        assert_true(psw_vectors_find(b, word, size, &row));
        assert_int_equal(row, i);
        for (size_t c = 0; c < psw_vectors_dim(a); c++)
            assert_true(fabs((double)psw_vectors_row(a, i)[c] - (double)psw_vectors_row(b, i)[c]) <=
                        tolerance);
    }
    psw_vectors_destroy(a);
    psw_vectors_destroy(b);
}

static void the_same_vectors_in_other_forms_are_the_same(void **state)
{
    (void)state;
    check_same("similarity.txt", "similarity.nodims", 0);
    check_same("similarity.txt", "similarity.bin", 1e-6);
    check_same("high_precision.kv.txt", "high_precision.kv.bin", 1e-6);
}

static void real_files_that_are_none_of_ours_are_refused_by_name(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        psc_status_t code;
        const char *words;
    } files[] = {
        {"pretrained.vec", PSC_CORRUPT, "promises 3 rows"},
        {"crime-and-punishment.bin", PSC_UNSUPPORTED, "fastText model"},
        {"lee_fasttext.bin", PSC_UNSUPPORTED, "fastText model"},
        {"similarity.fifu", PSC_UNSUPPORTED, "finalfusion"},
        {"reproduce.dat", PSC_UNSUPPORTED, "no file of vectors"},
    };
    for (size_t k = 0; k < sizeof files / sizeof files[0]; k++) {
        psc_error_t error = PSC_ERROR_INIT;
        psw_vectors_t *vectors;
        if (!load_odd(files[k].name, files[k].code, &vectors, &error))
            continue;
        assert_non_null(strstr(error.message, files[k].words));
        assert_non_null(strstr(error.message, files[k].name));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_float_reads_back_from_its_text),
        cmocka_unit_test(a_float_has_no_digits_that_say_nothing),
        cmocka_unit_test(what_the_writer_writes_the_reader_reads),
        cmocka_unit_test(a_binary_row_may_begin_with_the_byte_of_a_line_end),
        cmocka_unit_test(the_writer_refuses_what_would_not_read_back),
        cmocka_unit_test(a_full_disk_is_an_error_of_the_writer),
        cmocka_unit_test(text_of_many_tools_is_read),
        cmocka_unit_test(odd_words_are_words),
        cmocka_unit_test(damaged_text_is_refused_with_its_line),
        cmocka_unit_test(a_line_without_end_is_refused_before_memory_ends),
        cmocka_unit_test(damaged_binary_is_refused_with_its_row),
        cmocka_unit_test(other_formats_are_refused_by_name),
        cmocka_unit_test(short_memory_is_an_error_at_every_allocation),
        cmocka_unit_test(rows_become_unit_vectors),
        cmocka_unit_test(real_files_of_other_tools_are_read),
        cmocka_unit_test(the_same_vectors_in_other_forms_are_the_same),
        cmocka_unit_test(real_files_that_are_none_of_ours_are_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
