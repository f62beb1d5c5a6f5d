/* Log lines: level, label, one whole line each. */
#include "common/log.h"

#include "common/process.h"

#include "tests/support/cmocka.h"

#include <string.h>
#include <unistd.h>

enum { LINE_MAX_BYTES = 1024, TEXT_SIZE = 8192 };

/* Standard error goes into a pipe between begin and end. */
typedef struct capture {
    int saved;
    int read_end;
} capture_t;

static capture_t capture_begin(void)
{
    int ends[2];
    capture_t capture = {.saved = dup(STDERR_FILENO)};
    assert_true(capture.saved >= 0);
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(dup2(ends[1], STDERR_FILENO), STDERR_FILENO);
    assert_int_equal(close(ends[1]), 0);
    capture.read_end = ends[0];
    return capture;
}

static void capture_end(capture_t capture, char *text)
{
    assert_int_equal(dup2(capture.saved, STDERR_FILENO), STDERR_FILENO);
    assert_int_equal(close(capture.saved), 0);
    size_t used = 0;
    for (ssize_t n = 1; n > 0; used += (size_t)n) {
        n = read(capture.read_end, text + used, TEXT_SIZE - 1 - used);
        assert_true(n >= 0);
    }
    text[used] = '\0';
    assert_int_equal(close(capture.read_end), 0);
}

static int reset(void **state)
{
    (void)state;
    psc_log_set_level(PSC_LOG_WARN);
    psc_process_set_label("");
    return 0;
}

static void lines_above_the_level_are_dropped(void **state)
{
    (void)state;
    char text[TEXT_SIZE];
    capture_t capture = capture_begin();
    psc_log(PSC_LOG_ERROR, "one %d", 1);
    psc_log(PSC_LOG_WARN, "two");
    psc_log(PSC_LOG_INFO, "not told");
    psc_log_set_level(PSC_LOG_DEBUG);
    psc_log(PSC_LOG_DEBUG, "three");
    psc_log_set_level(PSC_LOG_ERROR);
    psc_log(PSC_LOG_WARN, "not told");
    capture_end(capture, text);
    assert_string_equal(text, "embps: error: one 1\nembps: warn: two\nembps: debug: three\n");
}

static void the_label_stands_in_front(void **state)
{
    (void)state;
    char text[TEXT_SIZE];
    psc_process_set_label("server 3");
    assert_string_equal(psc_process_label(), "server 3");
    capture_t capture = capture_begin();
    psc_log(PSC_LOG_WARN, "cold reads slow");
    capture_end(capture, text);
    assert_string_equal(text, "embps: warn: server 3: cold reads slow\n");
}

static void a_long_label_is_cut(void **state)
{
    (void)state;
    psc_process_set_label("0123456789012345678901234567890123456789");
    assert_string_equal(psc_process_label(), "0123456789012345678901234567890");
}

static void a_long_line_is_cut_and_still_ends(void **state)
{
    (void)state;
    char text[TEXT_SIZE];
    char longer[3000];
    memset(longer, 'x', sizeof longer);
    longer[sizeof longer - 1] = '\0';
    for (size_t length = 990; length < sizeof longer; length += length < 1030 ? 1 : 500) {
        longer[length] = '\0';
        capture_t capture = capture_begin();
        psc_log(PSC_LOG_WARN, "%s", longer);
        capture_end(capture, text);
        longer[length] = 'x';
        size_t whole = strlen("embps: warn: ") + length + 1;
        assert_int_equal(strlen(text), whole < LINE_MAX_BYTES ? whole : LINE_MAX_BYTES - 1);
        assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1);
    }
}

static void what_a_name_holds_is_shown_and_not_obeyed(void **state)
{
    (void)state;
    char text[TEXT_SIZE];
    capture_t capture = capture_begin();
    psc_log(PSC_LOG_WARN, "table %s is gone", "a\033[2J\nembps: error: b\xff");
    capture_end(capture, text);
    assert_string_equal(text, "embps: warn: table a\\x1b[2J\\x0aembps: error: b\\xff is gone\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(lines_above_the_level_are_dropped, reset),
        cmocka_unit_test_setup(the_label_stands_in_front, reset),
        cmocka_unit_test_setup(a_long_label_is_cut, reset),
        cmocka_unit_test_setup(a_long_line_is_cut_and_still_ends, reset),
        cmocka_unit_test_setup(what_a_name_holds_is_shown_and_not_obeyed, reset),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
