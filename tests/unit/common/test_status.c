/* Codes, names and messages of errors. */
#include "common/status.h"

#include "tests/support/cmocka.h"

#include <errno.h>
#include <string.h>

static void every_code_keeps_its_number(void **state)
{
    (void)state;
    /* The numbers that went over the wire and into scripts; written down a second time on purpose.
     */
    assert_int_equal(PSC_OK, 0);
    assert_int_equal(PSC_INVALID_ARGUMENT, 2);
    assert_int_equal(PSC_NOT_FOUND, 3);
    assert_int_equal(PSC_MISMATCH, 4);
    assert_int_equal(PSC_UNSUPPORTED, 5);
    assert_int_equal(PSC_BUSY, 6);
    assert_int_equal(PSC_INTERRUPTED, 7);
    assert_int_equal(PSC_DENIED, 8);
    assert_int_equal(PSC_PROTOCOL, 20);
    assert_int_equal(PSC_PEER_GONE, 21);
    assert_int_equal(PSC_TIMEOUT, 22);
    assert_int_equal(PSC_IO, 40);
    assert_int_equal(PSC_DISK_FULL, 41);
    assert_int_equal(PSC_CORRUPT, 42);
    assert_int_equal(PSC_UNCLEAN, 43);
    assert_int_equal(PSC_IN_USE, 44);
    assert_int_equal(PSC_NO_MEMORY, 60);
    assert_int_equal(PSC_INTERNAL, 61);
}

static void numbers_that_are_no_code_become_internal(void **state)
{
    (void)state;
    unsigned known = 0;
    for (uint32_t number = 0; number < 256; number++) {
        psc_status_t code = psc_status_from_number(number);
        if ((uint32_t)code == number)
            known++;
        else
            assert_int_equal(code, PSC_INTERNAL);
    }
    assert_int_equal(known, 18);
    assert_int_equal(psc_status_from_number(UINT32_MAX), PSC_INTERNAL);
}

static void names_and_texts_are_told(void **state)
{
    (void)state;
    assert_string_equal(psc_status_name(PSC_DISK_FULL), "DISK_FULL");
    assert_string_equal(psc_status_text(PSC_DISK_FULL), "disk full");
    assert_string_equal(psc_status_name((psc_status_t)99), "UNKNOWN");
    assert_string_equal(psc_status_text((psc_status_t)99), "unknown status");
}

static void set_fills_all_fields_and_returns_the_code(void **state)
{
    (void)state;
    psc_error_t error = {.code = PSC_IO, .rank = 5, .id = 7, .message = "old"};
    psc_status_t st = psc_error_set(&error, PSC_MISMATCH, "table %s has dim %d", "in", 3);
    assert_int_equal(st, PSC_MISMATCH);
    assert_int_equal(error.code, PSC_MISMATCH);
    assert_int_equal(error.rank, -1);
    assert_int_equal(error.id, 0);
    assert_string_equal(error.message, "table in has dim 3");
}

static void set_without_an_error_returns_the_code(void **state)
{
    (void)state;
    assert_int_equal(psc_error_set(NULL, PSC_BUSY, "%d", 1), PSC_BUSY);
    assert_int_equal(psc_error_set_errno(NULL, ENOSPC, "%d", 1), PSC_DISK_FULL);
}

static void errno_is_translated_and_told(void **state)
{
    (void)state;
    static const struct {
        int errno_value;
        psc_status_t code;
    } cases[] = {{ENOSPC, PSC_DISK_FULL}, {EDQUOT, PSC_DISK_FULL}, {ENOENT, PSC_NOT_FOUND},
                 {ENOMEM, PSC_NO_MEMORY}, {EACCES, PSC_IO},        {EIO, PSC_IO}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        psc_error_t error = PSC_ERROR_INIT;
        assert_int_equal(psc_error_set_errno(&error, cases[i].errno_value, "cannot read %s", "f"),
                         cases[i].code);
        assert_int_equal(error.code, cases[i].code);
        char expected[256];
        (void)snprintf(expected, sizeof expected, "cannot read f: %s",
                       strerror(cases[i].errno_value));
        assert_string_equal(error.message, expected);
    }
}

static void long_messages_are_cut_and_stay_utf8(void **state)
{
    (void)state;
    /* "é" is two bytes; with 0, 1 bytes before it, one of the cuts would fall inside a letter. */
    for (int before = 0; before < 2; before++) {
        char text[1200] = "x";
        char *end = text + before;
        for (int i = 0; i < 500; i++, end += 2)
            memcpy(end, "\xc3\xa9", 3);
        psc_error_t error = PSC_ERROR_INIT;
        assert_int_equal(psc_error_set(&error, PSC_IO, "%s", text), PSC_IO);
        size_t length = strlen(error.message);
        assert_in_range(length, sizeof error.message - 2, sizeof error.message - 1);
        assert_int_equal((length - (size_t)before) % 2, 0);
        assert_memory_equal(error.message, text, length);
        assert_int_equal(psc_error_set_errno(&error, EIO, "%s", text), PSC_IO);
        assert_int_equal(strlen(error.message), length);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_code_keeps_its_number),
        cmocka_unit_test(numbers_that_are_no_code_become_internal),
        cmocka_unit_test(names_and_texts_are_told),
        cmocka_unit_test(set_fills_all_fields_and_returns_the_code),
        cmocka_unit_test(set_without_an_error_returns_the_code),
        cmocka_unit_test(errno_is_translated_and_told),
        cmocka_unit_test(long_messages_are_cut_and_stay_utf8),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
