/* The ring of reached rows against a plain list. */
#include "ps/table/watch_log.h"

#include "common/alloc.h"
#include "tests/support/cmocka.h"
#include "tests/support/test_seed.h"

enum { NOTED = 300000, BATCH = 5000, READERS = 3 };

static void readers_are_told_every_row_or_that_they_lost_some(void **unused)
{
    (void)unused;
    test_random_t random = test_random_start();
    ps_watch_log_t *log;
    uint64_t *noted = psc_alloc_array(NOTED + BATCH, sizeof *noted);
    uint64_t *got = psc_alloc_array(PS_WATCH_LOG_IDS, sizeof *got);
    ps_watch_place_t places[READERS];
    size_t n = 0, n_lost = 0, n_read = 0;
    PSC_BUG_ON(noted == NULL || got == NULL);
    assert_int_equal(ps_watch_log_create(7, &log, NULL), PSC_OK);
    for (size_t r = 0; r < READERS; r++)
        places[r] = ps_watch_log_end(log);
    while (n < NOTED) {
        const size_t batch = test_below(&random, BATCH);
        for (size_t i = 0; i < batch; i++)
            noted[n + i] = test_below(&random, 1000);
        ps_watch_log_note(log, noted + n, batch);
        n += batch;
        /* The last one always comes too late. */
        const bool late = n - places[READERS - 1].at > PS_WATCH_LOG_IDS;
        const size_t r = late ? READERS - 1 : test_below(&random, READERS - 1);
        const uint64_t from = places[r].at;
        const bool news = ps_watch_log_has_news(log, &places[r]);
        assert_true(news == (from != n));
        const size_t max = 1 + test_below(&random, PS_WATCH_LOG_IDS);
        bool lost;
        const size_t n_got = ps_watch_log_read(log, &places[r], got, max, &lost);
        assert_true(lost == (n - from > PS_WATCH_LOG_IDS));
        n_lost += lost;
        n_read += n_got;
        if (lost) {
            assert_int_equal(n_got, 0);
            assert_true(places[r].at == n);
            continue;
        }
        bool reached[1000] = {false};
        size_t n_reached = 0;
        assert_true(places[r].at == (n - from < max ? n : from + max));
        for (uint64_t i = from; i < places[r].at; i++) {
            n_reached += !reached[noted[i]];
            reached[noted[i]] = true;
        }
        assert_int_equal(n_got, n_reached);
        for (size_t i = 0; i < n_got; i++)
            assert_true(reached[got[i]] && (i == 0 || got[i - 1] < got[i]));
    }
    assert_true(n_lost != 0 && n_read != 0);
    bool lost;
    ps_watch_place_t strange = {.log = 8, .at = 0};
    assert_int_equal(ps_watch_log_read(log, &strange, got, 10, &lost), 0);
    assert_true(lost && strange.log == 7);
    strange.at = UINT64_MAX;
    assert_int_equal(ps_watch_log_read(log, &strange, got, 10, &lost), 0);
    assert_true(lost);
    psc_free(log);
    psc_free(got);
    psc_free(noted);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(readers_are_told_every_row_or_that_they_lost_some),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
