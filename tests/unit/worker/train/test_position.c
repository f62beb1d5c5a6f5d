/*
 * How far a training was, there and back; what differs is named; and whatever bytes come instead.
 */
#include "worker/train/position.h"

#include "tests/support/cmocka.h"
#include "tests/support/test_seed.h"

#include <stdio.h>
#include <string.h>

static psw_facts_t some_facts(void)
{
    psw_facts_t facts = {.n = 0};
    psw_facts_add(&facts, "model", "%s", "cbow");
    psw_facts_add(&facts, "--dim", "%d", 100);
    psw_facts_add(&facts, "the text with hash", "%016x", 77u);
    return facts;
}

static size_t pack(const psw_facts_t *facts, char *bytes)
{
    const psw_position_t position = {.batches = 12, .words = UINT64_C(1) << 50, .lost = 3};
    size_t n = 0;
    assert_int_equal(psw_position_pack(&position, facts, bytes, &n, NULL), PSC_OK);
    assert_in_range(n, 1, PSW_POSITION_BYTES);
    return n;
}

static void what_is_packed_is_read(void **state)
{
    (void)state;
    char bytes[PSW_POSITION_BYTES];
    psw_position_t read = {0};
    psw_facts_t facts = some_facts();
    size_t n = pack(&facts, bytes);
    assert_int_equal(psw_position_read(bytes, n, "c", &facts, &read, NULL), PSC_OK);
    assert_int_equal(read.batches, 12);
    assert_true(read.words == UINT64_C(1) << 50);
    assert_int_equal(read.lost, 3);
    while (facts.n < PSW_FACTS_MAX) { /* as much as there can be */
        static char names[PSW_FACTS_MAX][80];
        (void)snprintf(names[facts.n], sizeof names[0], "%079zu", facts.n);
        psw_facts_add(&facts, names[facts.n], "%0200d", 7);
    }
    n = pack(&facts, bytes);
    assert_int_equal(psw_position_read(bytes, n, "c", &facts, &read, NULL), PSC_OK);
}

static void refused(const char *bytes, size_t n, const psw_facts_t *facts, psc_status_t wanted,
                    const char *words)
{
    psc_error_t error = PSC_ERROR_INIT;
    psw_position_t read = {.batches = 5};
    assert_int_equal(psw_position_read(bytes, n, "checkpoint-7", facts, &read, &error), wanted);
    assert_int_equal(read.batches, 5);
    if (strstr(error.message, words) == NULL || strstr(error.message, "checkpoint-7") == NULL)
        fail_msg("no \"%s\" and no name in: %s", words, error.message);
}

static void another_training_is_refused_with_both_values(void **state)
{
    (void)state;
    char bytes[PSW_POSITION_BYTES];
    const psw_facts_t facts = some_facts();
    const size_t n = pack(&facts, bytes);
    psw_facts_t other = some_facts();
    (void)snprintf(other.all[1].value, sizeof other.all[1].value, "50");
    refused(bytes, n, &other, PSC_MISMATCH, "with --dim 100, and this one has --dim 50");
    other = some_facts();
    psw_facts_add(&other, "--flush", "16");
    refused(bytes, n, &other, PSC_MISMATCH, "with --flush not given, and this one has --flush 16");
    other = some_facts();
    other.n = 2;
    refused(bytes, n, &other, PSC_MISMATCH, "the text with hash 000000000000004d");
}

static void what_is_no_position_is_refused(void **state)
{
    (void)state;
    const psw_facts_t facts = {.n = 0};
    static const struct {
        const char *text;
        psc_status_t wanted;
        const char *words;
    } cases[] = {
        {"", PSC_CORRUPT, "another program"},
        {"dense weights", PSC_CORRUPT, "another program"},
        {"[]", PSC_CORRUPT, "another program"},
        {"{\"program\": 5, \"version\": 1}", PSC_CORRUPT, "another program"},
        {"{\"program\": \"embps-train\", \"version\": \"1\"}", PSC_CORRUPT, "another program"},
        {"{\"program\": \"embps-train\", \"version\": 2}", PSC_UNSUPPORTED, "version 2"},
        {"{\"program\": \"embps-train\", \"version\": 1, \"batches\": -1, \"words\": 0, "
         "\"training\": {}}",
         PSC_CORRUPT, "damaged"},
        {"{\"program\": \"embps-train\", \"version\": 1, \"batches\": 1.5, \"words\": 0, "
         "\"training\": {}}",
         PSC_CORRUPT, "damaged"},
        {"{\"program\": \"embps-train\", \"version\": 1, \"batches\": 1, \"words\": 0}",
         PSC_CORRUPT, "damaged"},
        {"{\"program\": \"embps-train\", \"version\": 1, \"batches\": 1, \"words\": 0, "
         "\"lost\": -1, \"training\": {}}",
         PSC_CORRUPT, "damaged"},
        {"{\"program\": \"embps-train\", \"version\": 1, \"batches\": 1, \"words\": 0, "
         "\"training\": {\"--x\": 7}}",
         PSC_MISMATCH, "--x"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        refused(cases[i].text, strlen(cases[i].text), &facts, cases[i].wanted, cases[i].words);
    static char big[PSW_POSITION_BYTES + 1];
    memset(big, ' ', sizeof big);
    refused(big, sizeof big, &facts, PSC_CORRUPT, "another program");
}

static void bytes_that_are_changed_are_read_or_refused(void **state)
{
    (void)state;
    test_random_t random = test_random_start();
    char bytes[PSW_POSITION_BYTES];
    const psw_facts_t facts = some_facts();
    for (unsigned i = 0; i < 3000; i++) {
        psw_position_t read;
        size_t n = pack(&facts, bytes);
        for (size_t k = test_below(&random, 4); k > 0; k--)
            bytes[test_below(&random, n)] = (char)test_below(&random, 256);
        n = test_below(&random, 5) == 0 ? test_below(&random, n) : n;
        const psc_status_t st = psw_position_read(bytes, n, "c", &facts, &read, NULL);
        assert_true(st == PSC_OK || st == PSC_CORRUPT || st == PSC_MISMATCH ||
                    st == PSC_UNSUPPORTED);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_packed_is_read),
        cmocka_unit_test(another_training_is_refused_with_both_values),
        cmocka_unit_test(what_is_no_position_is_refused),
        cmocka_unit_test(bytes_that_are_changed_are_read_or_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
