/*
 * Tokens and rights: what a file allows, against plain loops over its words; what is wrong with
 * hostile files is said by file and line, and never in their own words.
 */
#include "proto/rights.h"

#include "common/alloc.h"
#include "tests/support/cmocka.h"
#include "tests/support/test_seed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define READER "reader-token-0123"
#define WRITER "writer~token+/9=="
#define ADMIN "the.admin_token.4567"
/* printf %s the.admin_token.4567 | sha256sum */
#define ADMIN_DIGEST "3b8ec6b1cfd69c18ae13068112feea4604211f441c11a69b3db3757ec05c06d1"

static psp_rights_t *parse(const char *text)
{
    psc_error_t error = PSC_ERROR_INIT;
    psp_rights_t *rights = NULL;
    if (psp_rights_parse(text, strlen(text), "tokens", &rights, &error) != PSC_OK)
        fail_msg("%s", error.message);
    return rights;
}

static const psp_grant_t *find(const psp_rights_t *rights, const char *token)
{
    return psp_rights_find(rights, token, strlen(token));
}

static void a_token_has_the_rights_of_its_lines(void **state)
{
    (void)state;
    psp_rights_t *rights = parse("# who may what\n"
                                 "\n" READER "  read\twords ngrams-* # two kinds\r\n"
                                 "   " WRITER " write,read *-draft\n" READER " write log\n"
                                 "sha256:" ADMIN_DIGEST " admin *");
    const psp_grant_t *reader = find(rights, READER), *writer = find(rights, WRITER);
    const psp_grant_t *admin = find(rights, ADMIN);
    assert_non_null(reader);
    assert_non_null(writer);
    assert_non_null(admin);
    assert_null(find(rights, "reader-token-0124"));
    assert_null(find(rights, "reader-token-012"));
    assert_null(find(rights, ""));
    assert_null(find(rights, "sha256:" ADMIN_DIGEST)); /* who has read the file has no token */
    assert_true(psp_grant_allows(reader, "words", PSP_RIGHT_READ));
    assert_true(psp_grant_allows(reader, "ngrams-", PSP_RIGHT_READ));
    assert_true(psp_grant_allows(reader, "ngrams-2", PSP_RIGHT_READ));
    assert_false(psp_grant_allows(reader, "ngrams", PSP_RIGHT_READ));
    assert_false(psp_grant_allows(reader, "words2", PSP_RIGHT_READ));
    assert_false(psp_grant_allows(reader, "words", PSP_RIGHT_WRITE));
    assert_false(psp_grant_allows(reader, "two", PSP_RIGHT_ANY)); /* a comment */
    assert_true(psp_grant_allows(reader, "log", PSP_RIGHT_WRITE));
    assert_true(psp_grant_allows(reader, "log", PSP_RIGHT_ANY));
    assert_false(psp_grant_allows(reader, "log", PSP_RIGHT_READ));
    assert_true(psp_grant_allows(writer, "a-draft", PSP_RIGHT_WRITE));
    assert_true(psp_grant_allows(writer, "a-draft-draft", PSP_RIGHT_READ));
    assert_false(psp_grant_allows(writer, "a-draft2", PSP_RIGHT_READ));
    assert_false(psp_grant_allows(writer, "a-draft", PSP_RIGHT_ADMIN));
    for (unsigned right = PSP_RIGHT_READ; right <= PSP_RIGHT_ADMIN; right *= 2) {
        assert_true(psp_grant_allows(admin, "anything at all", right));
        assert_true(psp_grant_allows(NULL, "words", right)); /* without tokens */
        assert_true(psp_grant_allows_all(admin, right));
        assert_true(psp_grant_allows_all(NULL, right));
        assert_false(psp_grant_allows_all(reader, right));
    }
    psp_rights_put(rights);
}

static void a_token_is_the_same_one_when_the_file_was_read_anew(void **state)
{
    (void)state;
    psp_rights_t *before = parse(READER " read *\n" ADMIN " admin *\n");
    psp_rights_t *after = parse("sha256:" ADMIN_DIGEST " read *\n" READER " write *\n");
    assert_true(psp_grant_id(find(before, READER)) == psp_grant_id(find(after, READER)));
    assert_true(psp_grant_id(find(before, ADMIN)) == psp_grant_id(find(after, ADMIN)));
    assert_true(psp_grant_id(find(before, ADMIN)) != psp_grant_id(find(before, READER)));
    assert_true(psp_grant_id(find(before, READER)) != 0);
    assert_true(psp_grant_id(NULL) == 0);
    psp_rights_share(before);
    psp_rights_put(before);
    assert_non_null(find(before, READER));
    psp_rights_put(before);
    psp_rights_put(after);
}

static void tokens_that_allow_the_same_are_told_apart_only_by_name(void **state)
{
    (void)state;
    psp_rights_t *rights =
        parse(READER " read a* b\n" WRITER " read b\n" ADMIN " write b\n" WRITER " read a*\n");
    const uint64_t reader = psp_grant_rights_id(find(rights, READER));
    assert_true(psp_grant_rights_id(find(rights, WRITER)) == reader);
    assert_true(psp_grant_id(find(rights, WRITER)) != psp_grant_id(find(rights, READER)));
    assert_true(psp_grant_rights_id(find(rights, ADMIN)) != reader);
    assert_true(psp_grant_rights_id(NULL) == 0 && reader != 0);
    psp_rights_t *others = parse(READER " read a*\n" WRITER " read,write a* b\n");
    assert_true(psp_grant_rights_id(find(others, READER)) != reader);
    assert_true(psp_grant_rights_id(find(others, WRITER)) != reader);
    psp_rights_put(rights);
    psp_rights_put(others);
}

static void what_is_wrong_is_said_by_line_and_never_quoted(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"", "no token"},
        {"# nothing\n\n", "no token"},
        {"short read *\n", "tokens:1: the first word"},
        {"\n\nhas,a,comma,in,it read *\n", "tokens:3: the first word"},
        {READER "= read *\nin=the=middle=of=it read *\n", "tokens:2: the first word"},
        {"sha256:1234 read *\n", "tokens:1: the first word"},
        {"sha256:" ADMIN_DIGEST "0 read *\n", "tokens:1: the first word"},
        {"sha256:zz" ADMIN_DIGEST " read *\n", "tokens:1: the first word"},
        {READER "\n", "tokens:1: the second word"},
        {READER " # read *\n", "tokens:1: the second word"},
        {READER " raed *\n", "tokens:1: the second word"},
        {READER " read, *\n", "tokens:1: the second word"},
        {READER " read,,write *\n", "tokens:1: the second word"},
        {READER " READ *\n", "tokens:1: the second word"},
        {READER " " WRITER " *\n", "tokens:1: the second word"},
        {READER " read\n", "tokens:1: no tables"},
        {READER " read # words\n" WRITER " read *\n", "tokens:1: no tables"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        psc_error_t error = PSC_ERROR_INIT;
        psp_rights_t *rights = NULL;
        assert_int_equal(
            psp_rights_parse(cases[i].text, strlen(cases[i].text), "tokens", &rights, &error),
            PSC_INVALID_ARGUMENT);
        assert_null(rights);
        if (strstr(error.message, cases[i].says) == NULL)
            fail_msg("%zu: %s", i, error.message);
        assert_null(strstr(error.message, READER));
        assert_null(strstr(error.message, WRITER));
        assert_null(strstr(error.message, "raed"));
        assert_null(strstr(error.message, "comma,in"));
    }
    psc_error_t error = PSC_ERROR_INIT;
    psp_rights_t *rights = NULL;
    assert_int_equal(psp_rights_parse("# \0\n", 4, "tokens", &rights, &error),
                     PSC_INVALID_ARGUMENT);
    assert_non_null(strstr(error.message, "tokens:1: a zero byte"));
}

static void too_many_tokens_and_too_long_names_are_refused(void **state)
{
    (void)state;
    enum { TOKENS = 1025, LINE = 40 };
    char *text = calloc(TOKENS * LINE + 1, 1);
    psc_error_t error = PSC_ERROR_INIT;
    psp_rights_t *rights = NULL;
    assert_non_null(text);
    size_t size = 0;
    for (int i = 0; i < TOKENS; i++)
        size += (size_t)snprintf(text + size, LINE, "token-number-%08d read t%d\n", i, i);
    assert_int_equal(psp_rights_parse(text, size, "tokens", &rights, &error), PSC_INVALID_ARGUMENT);
    assert_non_null(strstr(error.message, "tokens:1025: more than 1024 tokens"));
    char *last = strrchr(text, 't'); /* of the pattern; the line before is the last one that fits */
    *strstr(last - 30, "token-number-00001024") = '#';
    assert_int_equal(psp_rights_parse(text, size, "tokens", &rights, &error), PSC_OK);
    assert_true(psp_grant_allows(find(rights, "token-number-00001023"), "t1023", PSP_RIGHT_READ));
    assert_false(psp_grant_allows(find(rights, "token-number-00001023"), "t1022", PSP_RIGHT_READ));
    psp_rights_put(rights);
    size = (size_t)snprintf(text, LINE, "%s read ", READER);
    memset(text + size, 'x', 256);
    assert_int_equal(psp_rights_parse(text, size + 256, "tokens", &rights, &error),
                     PSC_INVALID_ARGUMENT);
    assert_non_null(strstr(error.message, "tokens:1: a table's name"));
    assert_int_equal(psp_rights_parse(text, size + 255, "tokens", &rights, &error), PSC_OK);
    psp_rights_put(rights);
    free(text);
}

/* Every way to cut name for the pattern. */
static bool fits_by_trying(const char *pattern, const char *name)
{
    if (*pattern == '\0')
        return *name == '\0';
    if (*pattern != '*')
        return *name == *pattern && fits_by_trying(pattern + 1, name + 1);
    for (;; name++) {
        if (fits_by_trying(pattern + 1, name))
            return true;
        if (*name == '\0')
            return false;
    }
}

static void patterns_fit_what_trying_every_way_says(void **state)
{
    (void)state;
    test_random_t random = test_random_start();
    for (int i = 0; i < 3000; i++) {
        char pattern[8], name[10], text[64];
        size_t n = 1 + test_below(&random, sizeof pattern - 2);
        for (size_t c = 0; c < n; c++)
            pattern[c] = "ab*"[test_below(&random, 3)];
        pattern[n] = '\0';
        n = test_below(&random, sizeof name - 1);
        for (size_t c = 0; c < n; c++)
            name[c] = "ab"[test_below(&random, 2)];
        name[n] = '\0';
        (void)snprintf(text, sizeof text, "%s read %s", READER, pattern);
        psp_rights_t *rights = parse(text);
        if (psp_grant_allows(find(rights, READER), name, PSP_RIGHT_READ) !=
            fits_by_trying(pattern, name))
            fail_msg("pattern %s, name \"%s\"", pattern, name);
        psp_rights_put(rights);
    }
}

/* Words of a file, in any order: it is read, or refused in words, and nothing else happens. */
static void files_of_any_bytes_are_read_or_refused(void **state)
{
    (void)state;
    static const char *const words[] = {READER, WRITER,        ("sha256:" ADMIN_DIGEST),
                                        "read", "write,admin", "*",
                                        "t*",   "\n",          " ",
                                        "#",    "sha256:",     "\r\n"};
    test_random_t random = test_random_start();
    for (int i = 0; i < 3000; i++) {
        char text[800];
        size_t size = 0;
        while (size < 600 && test_below(&random, 20) != 0) {
            const char *word = words[test_below(&random, sizeof words / sizeof words[0])];
            size += (size_t)snprintf(text + size, sizeof text - size, "%s%s", word,
                                     test_below(&random, 4) != 0 ? " " : "");
        }
        if (size != 0 && test_below(&random, 2) == 0)
            text[test_below(&random, (uint32_t)size)] = (char)test_below(&random, 256);
        psc_error_t error = PSC_ERROR_INIT;
        psp_rights_t *rights = NULL;
        const psc_status_t st = psp_rights_parse(text, size, "tokens", &rights, &error);
        if (st == PSC_OK)
            psp_rights_put(rights);
        else
            assert_memory_equal(error.message, "tokens:", 7);
    }
}

static void every_failed_allocation_is_an_error(void **state)
{
    (void)state;
    static const char text[] = READER " read *\n";
    for (unsigned long n = 1;; n++) {
        psp_rights_t *rights = NULL;
        psc_error_t error = PSC_ERROR_INIT;
        psc_alloc_fail_at(n);
        const psc_status_t st = psp_rights_parse(text, sizeof text - 1, "tokens", &rights, &error);
        psc_alloc_fail_at(0);
        if (st == PSC_OK) {
            psp_rights_put(rights);
            assert_true(n > 3);
            return;
        }
        assert_int_equal(st, PSC_NO_MEMORY);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_token_has_the_rights_of_its_lines),
        cmocka_unit_test(a_token_is_the_same_one_when_the_file_was_read_anew),
        cmocka_unit_test(tokens_that_allow_the_same_are_told_apart_only_by_name),
        cmocka_unit_test(what_is_wrong_is_said_by_line_and_never_quoted),
        cmocka_unit_test(too_many_tokens_and_too_long_names_are_refused),
        cmocka_unit_test(patterns_fit_what_trying_every_way_says),
        cmocka_unit_test(files_of_any_bytes_are_read_or_refused),
        cmocka_unit_test(every_failed_allocation_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
