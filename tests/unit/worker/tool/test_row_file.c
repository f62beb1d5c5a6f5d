/* Files of whole rows: what is written comes back to the last bit; damage anywhere is found. */
#include "common/file.h"
#include "tests/support/cmocka.h"
#include "tests/support/scratch.h"
#include "tests/support/test_seed.h"
#include "worker/tool/row_file.h"
#include "worker/tool/table_text.h"
#include "worker/tool/word_list.h"

#include <string.h>

enum { DIM = 3, K = 2, N = 40 };

typedef struct rows {
    uint64_t ids[N];
    uint32_t counts[N][2];
    float state[N][K], rows[N][DIM];
} rows_t;

static embps_table_options_t some_options(void)
{
    embps_table_options_t options = EMBPS_TABLE_OPTIONS_DEFAULT;
    options.dim = DIM;
    options.init = "uniform";
    options.n_init_params = 2;
    options.init_params[0] = -0.1;
    options.init_params[1] = 1e-300;
    options.optimizer = "adagrad";
    options.seed = UINT64_MAX;
    options.precision = "bf16";
    options.state_precision = "f32";
    options.per_row_steps = true;
    options.l2 = 0.1;
    options.has_pad = true;
    options.pad_id = UINT64_C(1) << 63;
    options.admit_after = 3;
    options.expire_after = 1000;
    return options;
}

static void write_file(const char *path, const rows_t *rows, bool whole)
{
    const embps_table_options_t options = some_options();
    json_t *object = psw_table_text_write(&options);
    psw_row_writer_t *writer;
    FILE *stream = fopen(path, "wb");
    assert_true(stream != NULL && object != NULL);
    assert_int_equal(psw_row_writer_open(stream, object, &writer, NULL), PSC_OK);
    json_decref(object);
    for (size_t at = 0; at < N; at += N / 2) {
        embps_block_t block = EMBPS_BLOCK_DEFAULT;
        block.n = N / 2;
        block.dim = DIM;
        block.ids = rows->ids + at;
        block.rows = rows->rows[at];
        if (whole) {
            block.state_floats = K;
            block.state = rows->state[at];
            block.counts = rows->counts[at];
        }
        assert_int_equal(psw_row_writer_add(writer, &block, NULL), PSC_OK);
        block.dim++;
        assert_int_equal(psw_row_writer_add(writer, &block, NULL), PSC_INVALID_ARGUMENT);
    }
    assert_int_equal(psw_row_writer_close(writer, NULL), PSC_OK);
    assert_int_equal(fclose(stream), 0);
}

/* How reading the whole file ends; what came is compared. */
static psc_status_t read_file(const char *path, const rows_t *rows, bool whole, psc_error_t *error)
{
    psw_row_reader_t *reader;
    embps_block_t block = EMBPS_BLOCK_DEFAULT;
    size_t n = 0;
    psc_status_t st = psw_row_reader_open(path, &reader, error);
    if (st != PSC_OK)
        return st;
    do {
        st = psw_row_reader_next(reader, &block, error);
        if (st != PSC_OK || block.n == 0)
            break;
        assert_int_equal(block.dim, DIM);
        assert_memory_equal(block.ids, rows->ids + n, block.n * sizeof *block.ids);
        assert_memory_equal(block.rows, rows->rows[n], block.n * sizeof rows->rows[0]);
        assert_int_equal(block.state_floats, whole ? K : 0);
        if (whole) {
            assert_memory_equal(block.state, rows->state[n], block.n * sizeof rows->state[0]);
            assert_memory_equal(block.counts, rows->counts[n], block.n * sizeof rows->counts[0]);
        }
        n += block.n;
    } while (true);
    assert_true(st != PSC_OK || n == N);
    psw_row_reader_close(reader);
    return st;
}

static void fill(rows_t *rows, test_random_t *random)
{
    for (size_t i = 0; i < N; i++) {
        rows->ids[i] = test_next(random);
        for (size_t c = 0; c < 2; c++)
            rows->counts[i][c] = (uint32_t)test_next(random);
        for (size_t c = 0; c < K; c++)
            rows->state[i][c] = test_float(random);
        for (size_t c = 0; c < DIM; c++)
            rows->rows[i][c] = test_float(random);
    }
}

static void rows_come_back_and_damage_is_found(void **unused)
{
    (void)unused;
    test_random_t random = test_random_start();
    char *folder = test_scratch_create(), path[256];
    static uint8_t bytes[1 << 16], other[1 << 16];
    rows_t rows;
    psc_error_t error = PSC_ERROR_INIT;
    fill(&rows, &random);
    (void)test_path(path, sizeof path, folder, "rows");
    for (int whole = 0; whole < 2; whole++) {
        write_file(path, &rows, whole != 0);
        assert_true(psw_row_file_is(path));
        assert_int_equal(read_file(path, &rows, whole != 0, &error), PSC_OK);
    }
    FILE *stream = fopen(path, "rb");
    assert_non_null(stream);
    const size_t size = fread(bytes, 1, sizeof bytes, stream);
    assert_int_equal(fclose(stream), 0);
    char end[64];
    stream = fopen(path, "ab"); /* something behind the end */
    assert_true(stream != NULL && fputc(0, stream) == 0);
    assert_int_equal(fclose(stream), 0);
    (void)snprintf(end, sizeof end, "follows the end of its rows, at offset %zu", size);
    assert_int_equal(read_file(path, &rows, true, &error), PSC_CORRUPT);
    assert_non_null(strstr(error.message, end));
    assert_false(psw_row_file_is("/dev/zero")); /* no file, and nothing to look into */
    for (size_t i = 0; i < 200; i++) {          /* one bit, or cut off */
        const size_t at = test_below(&random, size);
        memcpy(other, bytes, size);
        other[at] ^= (uint8_t)(1u << test_below(&random, 8));
        stream = fopen(path, "wb");
        assert_non_null(stream);
        (void)fwrite(other, 1, i % 2 == 0 ? size : at, stream);
        assert_int_equal(fclose(stream), 0);
        const psc_status_t st = read_file(path, &rows, true, &error);
        assert_true(st == PSC_CORRUPT || st == PSC_UNSUPPORTED);
        assert_non_null(strstr(error.message, path));
    }
    test_scratch_destroy(folder);
}

static void every_option_of_a_table_comes_back(void **unused)
{
    (void)unused;
    const embps_table_options_t options = some_options();
    embps_table_options_t back;
    psc_error_t error = PSC_ERROR_INIT;
    json_t *object = psw_table_text_write(&options), *again;
    assert_non_null(object);
    assert_int_equal(psw_table_text_read(object, &back, &error), PSC_OK);
    again = psw_table_text_write(&back);
    assert_true(json_equal(object, again));
    assert_string_equal(back.optimizer, "adagrad");
    assert_true(back.seed == UINT64_MAX && back.pad_id == UINT64_C(1) << 63);
    assert_true(back.init_params[1] == 1e-300 && back.n_init_params == 2);
    assert_true(back.per_row_steps && back.has_pad && !back.has_bounds);
    json_decref(again);
    assert_int_equal(json_object_set_new(object, "dim", json_integer(-1)), 0);
    assert_int_equal(psw_table_text_read(object, &back, &error), PSC_CORRUPT);
    assert_non_null(strstr(error.message, "dim"));
    assert_int_equal(json_object_set_new(object, "dim", json_integer(1)), 0);
    assert_int_equal(json_object_set_new(object, "seed", json_string("1x")), 0);
    assert_int_equal(psw_table_text_read(object, &back, &error), PSC_CORRUPT);
    json_decref(object);
    object = json_array();
    assert_int_equal(psw_table_text_read(object, &back, &error), PSC_CORRUPT);
    json_decref(object);
}

static void words_are_the_lines_of_a_vocabulary(void **unused)
{
    (void)unused;
    char *folder = test_scratch_create(), path[256], text[PSW_ID_TEXT_SIZE];
    psw_vectors_t *words;
    psc_error_t error = PSC_ERROR_INIT;
    uint64_t id;
    size_t size;
    (void)test_path(path, sizeof path, folder, "vocab");
    assert_int_equal(psc_file_write(path, "</s> 0\nthe 12\ncat 3\n", 20, &error), PSC_OK);
    assert_int_equal(psw_word_list_load(path, &words, &error), PSC_OK);
    assert_int_equal(psw_word_list_id(words, path, "cat", &id, &error), PSC_OK);
    assert_true(id == 1);
    assert_int_equal(psw_word_list_id(words, path, "The", &id, &error), PSC_OK);
    assert_true(id == 0);
    assert_int_equal(psw_word_list_id(words, path, "cta", &id, &error), PSC_NOT_FOUND);
    assert_non_null(strstr(error.message, "cat"));
    assert_string_equal(psw_word_list_word(words, 1, text, &size), "cat");
    assert_string_equal(psw_word_list_word(words, 77, text, &size), "77");
    psw_vectors_destroy(words);
    assert_int_equal(psw_word_list_id(NULL, NULL, "18446744073709551615", &id, &error), PSC_OK);
    assert_int_equal(psw_word_list_id(NULL, NULL, "cat", &id, &error), PSC_INVALID_ARGUMENT);
    assert_int_equal(psc_file_write(path, "a 1\na 2\n", 8, &error), PSC_OK);
    assert_int_equal(psw_word_list_load(path, &words, &error), PSC_CORRUPT);
    assert_non_null(strstr(error.message, "vocab:2"));
    test_scratch_destroy(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_come_back_and_damage_is_found),
        cmocka_unit_test(every_option_of_a_table_comes_back),
        cmocka_unit_test(words_are_the_lines_of_a_vocabulary),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
