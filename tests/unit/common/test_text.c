/* Text that may be shown: letters stay, what a terminal would obey does not. */
#include "common/text.h"

#include "tests/support/cmocka.h"
#include "tests/support/test_seed.h"

#include <stdint.h>
#include <string.h>

static void shows(const char *text, size_t size, const char *wanted)
{
    char out[256];
    assert_string_equal(psc_text_show(text, size, out, sizeof out), wanted);
}

#define SHOWS(text, wanted) shows(text, sizeof(text) - 1, wanted)

static void letters_stay_and_controls_are_spelt(void **state)
{
    (void)state;
    SHOWS("", "");
    SHOWS("a table", "a table");
    SHOWS("na\xc3\xafve \xe4\xb8\xad \xf0\x9f\x98\x80",
          "na\xc3\xafve \xe4\xb8\xad \xf0\x9f\x98\x80");
    SHOWS("\x1b[31mred\n", "\\x1b[31mred\\x0a");
    SHOWS("a\tb\rc\x7f\x08", "a\\x09b\\x0dc\\x7f\\x08");
    SHOWS("nul\0in", "nul\\x00in");
    SHOWS("C1 \xc2\x9b"
          "31m \xc2\xa0",
          "C1 \\xc2\\x9b31m \xc2\xa0");
    SHOWS("lines \xe2\x80\xa8 \xe2\x80\xaemoc", "lines \\xe2\\x80\\xa8 \\xe2\\x80\\xaemoc");
    SHOWS("\xe2\x81\xa6", "\\xe2\\x81\\xa6");
    SHOWS("no letters \xff \xc3( \xe4\xb8", "no letters \\xff \\xc3( \\xe4\\xb8");
    SHOWS("\xc0\xaf \xe0\x80\xaf \xed\xa0\x80 \xf4\x90\x80\x80",
          "\\xc0\\xaf \\xe0\\x80\\xaf \\xed\\xa0\\x80 \\xf4\\x90\\x80\\x80");
}

static void what_does_not_fit_is_cut_before_a_letter(void **state)
{
    (void)state;
    char out[8];
    assert_string_equal(psc_text_show("abcdefghij", 10, out, 8), "abcdefg");
    assert_string_equal(psc_text_show("abcde\xe4\xb8\xad", 8, out, 8), "abcde");
    assert_string_equal(psc_text_show("abcd\n", 5, out, 8), "abcd");
    assert_string_equal(psc_text_show("abc\nz", 5, out, 8), "abc\\x0a");
    assert_string_equal(psc_text_show("a", 1, out, 1), "");
}

static void the_first_hidden_byte_is_found(void **state)
{
    (void)state;
    assert_int_equal(psc_text_find_hidden("", 0), 0);
    assert_int_equal(psc_text_find_hidden("gr\xc3\xbc\xc3\x9f", 6), 6);
    assert_int_equal(psc_text_find_hidden("ab\x1b", 3), 2);
    assert_int_equal(psc_text_find_hidden("\xe4\xb8\xad\x9b", 4), 3);
}

/* Whatever comes: all of it fits into the room that is told, none of it can be obeyed, and what was
 * shown stays as it is. */
static void any_bytes_become_text_that_stays(void **state)
{
    (void)state;
    enum { N = 40 };
    test_random_t random = test_random_start();
    for (int round = 0; round < 2000; round++) {
        char text[N], out[PSC_TEXT_SHOWN(N)], again[PSC_TEXT_SHOWN(N)];
        const size_t size = test_below(&random, N + 1);
        for (size_t i = 0; i < size; i++)
            text[i] = (char)test_next(&random);
        (void)psc_text_show(text, size, out, sizeof out);
        assert_int_equal(psc_text_find_hidden(out, strlen(out)), strlen(out));
        assert_string_equal(psc_text_show(out, strlen(out), again, sizeof again), out);
        for (const char *c = out; *c != '\0'; c++)
            assert_true((uint8_t)*c >= 0x20 && *c != 0x7f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(letters_stay_and_controls_are_spelt),
        cmocka_unit_test(what_does_not_fit_is_cut_before_a_letter),
        cmocka_unit_test(the_first_hidden_byte_is_found),
        cmocka_unit_test(any_bytes_become_text_that_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
