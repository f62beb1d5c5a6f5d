/*
 * Progress lines: what they say, when they come, and the same as JSON.
 */
#include "worker/train/progress.h"

#include "common/alloc.h"
#include "common/file.h"
#include "tests/support/cmocka.h"
#include "tests/support/scratch.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define SECOND UINT64_C(1000000)

static void numbers_have_three_digits_and_a_unit(void **state)
{
    (void)state;
    static const struct {
        double value;
        const char *text;
    } cases[] = {{0, "0"},          {7, "7"},         {999, "999"},      {999.6, "1.00K"},
                 {12345, "12.3K"},  {999499, "999K"}, {999600, "1.00M"}, {4.56e6, "4.56M"},
                 {1.5e13, "15.0T"}, {-5, "0"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[PSW_FORMAT_SIZE];
        psw_format_number(cases[i].value, text);
        assert_string_equal(text, cases[i].text);
    }
}

static void durations_show_hours_where_there_are_any(void **state)
{
    (void)state;
    char text[PSW_FORMAT_SIZE];
    psw_format_duration(7.2, text);
    assert_string_equal(text, "0:07");
    psw_format_duration(3599.4, text);
    assert_string_equal(text, "59:59");
    psw_format_duration(3723, text);
    assert_string_equal(text, "1:02:03");
    psw_format_duration(-1, text);
    assert_string_equal(text, "0:00");
}

/* What a progress of these options printed over a run of three seconds. */
static char *run_for_three_seconds(psw_progress_options_t *options, psc_status_t expected)
{
    static char text[4096];
    FILE *stream = tmpfile();
    psw_progress_t *progress;
    psc_error_t error = PSC_ERROR_INIT;
    assert_non_null(stream);
    options->stream = stream;
    options->words = 4000;
    options->now_us = 50 * SECOND;
    assert_int_equal(psw_progress_create(options, &progress, &error), PSC_OK);
    psw_train_counts_t counts = {.rate = 0.0125};
    for (uint64_t t = 1; t <= 30; t++) {
        counts.total_words = counts.words = t * 100;
        counts.rows = t * 1000;
        counts.loss = (double)t * 25;
        counts.loss_pairs = t * 10;
        counts.bytes_received = t * 4000;
        psw_progress_update(progress, &counts, options->now_us + t * SECOND / 10);
    }
    counts.total_words = 4000;
    assert_int_equal(psw_progress_finish(progress, &counts, options->now_us + 4 * SECOND, &error),
                     expected);
    psw_progress_destroy(progress);
    rewind(stream);
    size_t size = fread(text, 1, sizeof text - 1, stream);
    text[size] = '\0';
    (void)fclose(stream);
    return text;
}

static void a_terminal_gets_one_line_that_is_written_over(void **state)
{
    (void)state;
    psw_progress_options_t options = {.terminal = true};
    const char *text = run_for_three_seconds(&options, PSC_OK);
    assert_non_null(strstr(text, "\r 75.0%  1.00K words/s  rate 0.01250  loss 2.500  10.0K rows/s  "
                                 "in 120KB  out 0B  left 0:01\033[K"));
    assert_non_null(strstr(text, "trained 4.00K words in 0:04 (4.0 s), 1.00K words/s"));
    assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1);
}

static void anything_else_gets_plain_lines_now_and_then(void **state)
{
    (void)state;
    psw_progress_options_t options = {.terminal = false};
    const char *text = run_for_three_seconds(&options, PSC_OK);
    assert_null(strchr(text, '\r'));
    assert_null(strchr(text, '\033'));
    assert_ptr_equal(strstr(text, "trained"), text); /* three seconds are below the period */
}

static void what_was_trained_before_is_no_speed_of_this_run(void **state)
{
    (void)state;
    static char text[4096];
    FILE *stream = tmpfile();
    psw_progress_t *progress;
    assert_non_null(stream);
    const psw_progress_options_t options = {
        .words = 4000, .stream = stream, .terminal = true, .now_us = 50 * SECOND};
    assert_int_equal(psw_progress_create(&options, &progress, NULL), PSC_OK);
    psw_train_counts_t counts = {.total_words = 3000, .resumed_words = 3000};
    psw_progress_update(progress, &counts, 50 * SECOND + SECOND / 10);
    counts.total_words = 3500;
    psw_progress_update(progress, &counts, 51 * SECOND);
    counts.total_words = 4000;
    assert_int_equal(psw_progress_finish(progress, &counts, 52 * SECOND, NULL), PSC_OK);
    psw_progress_destroy(progress);
    rewind(stream);
    text[fread(text, 1, sizeof text - 1, stream)] = '\0';
    (void)fclose(stream);
    assert_non_null(strstr(text, "87.5%  500 words/s"));
    assert_non_null(strstr(text, "left 0:01"));
    assert_non_null(strstr(text, "trained 1.00K words in 0:02 (2.0 s), 500 words/s"));
}

static void the_json_file_has_a_line_a_second_and_one_at_the_end(void **state)
{
    (void)state;
    char path[256], *bytes;
    size_t size;
    char *folder = test_scratch_create();
    test_path(path, sizeof path, folder, "log");
    psw_progress_options_t options = {.json_path = path};
    (void)run_for_three_seconds(&options, PSC_OK);
    assert_int_equal(psc_file_read(path, 1 << 16, &bytes, &size, NULL), PSC_OK);
    int n = 0;
    for (char *line = bytes, *end; (end = strchr(line, '\n')) != NULL; line = end + 1, n++) {
        json_error_t error;
        json_t *object = json_loadb(line, (size_t)(end - line), 0, &error);
        assert_non_null(object);
        const char *event = json_string_value(json_object_get(object, "event"));
        assert_string_equal(event, n < 3 ? "progress" : "done");
        double words = (double)json_integer_value(json_object_get(object, "words"));
        assert_true(words == (n < 3 ? 1000.0 * (n + 1) : 4000.0));
        double speed = json_real_value(json_object_get(object, "words_per_s"));
        assert_true(speed > 999 && speed < 1001);
        json_decref(object);
    }
    assert_int_equal(n, 4);
    psc_free(bytes);
    test_scratch_destroy(folder);
}

static void a_json_file_that_cannot_be_opened_or_written_is_an_error(void **state)
{
    (void)state;
    psw_progress_t *progress;
    psc_error_t error = PSC_ERROR_INIT;
    psw_progress_options_t options = {.json_path = "/nonexistent/folder/log"};
    assert_int_equal(psw_progress_create(&options, &progress, &error), PSC_NOT_FOUND);
    assert_non_null(strstr(error.message, "/nonexistent/folder/log"));
    options.json_path = "/dev/full";
    (void)run_for_three_seconds(&options, PSC_IO);
}

/* The end of a run with an account: what is shown, and the last line of the file. */
static json_t *end_with(const psw_account_t *account, char text[1024])
{
    char path[256], *bytes;
    size_t size;
    char *folder = test_scratch_create();
    FILE *stream = tmpfile();
    psw_progress_t *progress;
    assert_non_null(stream);
    const psw_progress_options_t options = {.words = 4000,
                                            .stream = stream,
                                            .json_path =
                                                test_path(path, sizeof path, folder, "log"),
                                            .now_us = 50 * SECOND};
    const psw_train_counts_t counts = {.total_words = 4000, .account = *account};
    assert_int_equal(psw_progress_create(&options, &progress, NULL), PSC_OK);
    assert_int_equal(psw_progress_finish(progress, &counts, 52 * SECOND, NULL), PSC_OK);
    psw_progress_destroy(progress);
    rewind(stream);
    text[fread(text, 1, 1023, stream)] = '\0';
    (void)fclose(stream);
    assert_int_equal(psc_file_read(path, 1 << 16, &bytes, &size, NULL), PSC_OK);
    json_t *object = json_loadb(bytes, size, 0, NULL);
    assert_non_null(object);
    psc_free(bytes);
    test_scratch_destroy(folder);
    return object;
}

static void the_end_says_what_became_of_all_pushes(void **state)
{
    (void)state;
    char text[1024];
    json_t *line = end_with(&(psw_account_t){120, 4500, 120, 4500}, text);
    assert_non_null(strstr(text, "\n120 pushes of 4500 rows, each applied once\n"));
    assert_int_equal(json_integer_value(json_object_get(line, "pushes")), 120);
    assert_int_equal(json_integer_value(json_object_get(line, "pushes_applied")), 120);
    assert_int_equal(json_integer_value(json_object_get(line, "rows_pushed")), 4500);
    assert_int_equal(json_integer_value(json_object_get(line, "rows_applied")), 4500);
    json_decref(line);
    line = end_with(&(psw_account_t){120, 4500, 119, 4460}, text);
    assert_non_null(strstr(text, "\n120 pushes of 4500 rows, but 119 of 4460 rows applied\n"));
    assert_int_equal(json_integer_value(json_object_get(line, "rows_applied")), 4460);
    json_decref(line);
    line = end_with(&(psw_account_t){.pushes = 0}, text); /* workers were lost: there is none */
    assert_null(strstr(text, "pushes"));
    assert_null(json_object_get(line, "pushes"));
    json_decref(line);
}

static void the_json_file_of_a_stopped_run_says_so(void **state)
{
    (void)state;
    char *folder = test_scratch_create(), path[128], *bytes;
    size_t size;
    (void)snprintf(path, sizeof path, "%s/log", folder);
    psw_progress_options_t options = {.json_path = path, .words = 4000, .now_us = 50 * SECOND};
    psw_progress_t *progress;
    psc_error_t error = PSC_ERROR_INIT;
    assert_int_equal(psw_progress_create(&options, &progress, &error), PSC_OK);
    psw_train_counts_t counts = {.rate = 0.0125, .total_words = 700, .words = 700};
    psw_progress_update(progress, &counts, options.now_us + SECOND / 2);
    psw_progress_destroy(progress);
    assert_int_equal(psc_file_read(path, 1 << 16, &bytes, &size, NULL), PSC_OK);
    json_t *object = json_loadb(bytes, size, 0, NULL); /* one line alone */
    assert_non_null(object);
    assert_string_equal(json_string_value(json_object_get(object, "event")), "stopped");
    assert_int_equal(json_integer_value(json_object_get(object, "words")), 700);
    json_decref(object);
    psc_free(bytes);
    test_scratch_destroy(folder);
}

/* JSON has no NaN: what has diverged is null, and the line is there. */
static void a_loss_that_is_no_number_is_null_in_the_json_file(void **state)
{
    (void)state;
    char *folder = test_scratch_create(), path[128], *bytes;
    size_t size;
    (void)snprintf(path, sizeof path, "%s/log", folder);
    psw_progress_options_t options = {.json_path = path, .words = 4000, .now_us = 50 * SECOND};
    psw_progress_t *progress;
    psc_error_t error = PSC_ERROR_INIT;
    assert_int_equal(psw_progress_create(&options, &progress, &error), PSC_OK);
    psw_train_counts_t counts = {
        .total_words = 700, .words = 700, .loss = __builtin_nan(""), .loss_pairs = 10};
    psw_progress_update(progress, &counts, options.now_us + SECOND / 2);
    psw_progress_destroy(progress);
    assert_int_equal(psc_file_read(path, 1 << 16, &bytes, &size, NULL), PSC_OK);
    json_t *object = json_loadb(bytes, size, 0, NULL);
    assert_non_null(object);
    assert_true(json_is_null(json_object_get(object, "loss")));
    json_decref(object);
    psc_free(bytes);
    test_scratch_destroy(folder);
}

static ssize_t refuse_bytes(void *context, const char *bytes, size_t size)
{
    (void)bytes;
    (void)size;
    ++*(int *)context;
    return 0; /* an error, to a writer */
}

static void a_stream_that_failed_gets_no_more_lines(void **state)
{
    (void)state;
    int n_writes = 0;
    FILE *stream = fopencookie(&n_writes, "w", (cookie_io_functions_t){.write = refuse_bytes});
    assert_non_null(stream);
    setvbuf(stream, NULL, _IONBF, 0);
    psw_progress_options_t options = {.terminal = true, .stream = stream, .words = 100};
    psw_progress_t *progress;
    psc_error_t error = PSC_ERROR_INIT;
    psw_train_counts_t counts = {.rate = 0.0125};
    assert_int_equal(psw_progress_create(&options, &progress, &error), PSC_OK);
    psw_progress_update(progress, &counts, SECOND);
    int n_first = n_writes;
    assert_true(n_first > 0);
    for (uint64_t t = 2; t < 10; t++)
        psw_progress_update(progress, &counts, t * SECOND);
    assert_int_equal(psw_progress_finish(progress, &counts, 10 * SECOND, &error), PSC_OK);
    psw_progress_destroy(progress);
    assert_int_equal(n_writes, n_first);
    (void)fclose(stream);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_have_three_digits_and_a_unit),
        cmocka_unit_test(durations_show_hours_where_there_are_any),
        cmocka_unit_test(a_terminal_gets_one_line_that_is_written_over),
        cmocka_unit_test(anything_else_gets_plain_lines_now_and_then),
        cmocka_unit_test(what_was_trained_before_is_no_speed_of_this_run),
        cmocka_unit_test(the_json_file_has_a_line_a_second_and_one_at_the_end),
        cmocka_unit_test(the_json_file_of_a_stopped_run_says_so),
        cmocka_unit_test(the_end_says_what_became_of_all_pushes),
        cmocka_unit_test(a_loss_that_is_no_number_is_null_in_the_json_file),
        cmocka_unit_test(a_stream_that_failed_gets_no_more_lines),
        cmocka_unit_test(a_json_file_that_cannot_be_opened_or_written_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
