/*
 * The thread that writes a log: what it says is written can be read, in the order in which it came,
 * across segments; segments that a checkpoint has go, and no others; a disk that takes no more is
 * named, and nothing after it is said to be written.
 */
#include "ps/log/log_writer.h"

#include "common/alloc.h"
#include "common/clock.h"
#include "common/file.h"
#include "ps/log/log_chain.h"
#include "tests/support/cmocka.h"
#include "tests/support/scratch.h"
#include "tests/support/test_seed.h"

#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ENTRIES = 3000, BODY = 96 };
#define PATIENCE_US UINT64_C(60000000)

typedef struct setting {
    char *folder; /* of checkpoints */
    ps_log_chain_t chain;
    ps_log_writer_t *writer;
    const ps_log_sink_t *sink;
    ps_log_entry_t entries[ENTRIES];
    uint8_t bodies[ENTRIES][BODY];
    size_t n;
    atomic_uint woken;
} setting_t;

static setting_t s;

static void wake(void *context)
{
    atomic_fetch_add((atomic_uint *)context, 1);
}

static void start_with(bool sync, uint64_t sync_bytes)
{
    const ps_log_start_t of_chain = {
        .checkpoints = s.folder, .lineage = 1, .n_servers = 1, .base = "", .replay = true};
    memset(&s, 0, sizeof s);
    s.folder = test_scratch_create();
    ps_log_start_t with_folder = of_chain;
    with_folder.checkpoints = s.folder;
    assert_int_equal(ps_log_chain_find(&with_folder, &s.chain, NULL), PSC_OK);
    assert_int_equal(ps_log_chain_begin(&s.chain, s.folder, NULL), PSC_OK);
    const ps_log_writer_options_t options = {.checkpoints = s.folder,
                                             .folder = s.chain.folder,
                                             .head = s.chain.head,
                                             .records = true,
                                             .sync = sync,
                                             .sync_bytes = sync_bytes,
                                             .wake = wake,
                                             .wake_context = &s.woken};
    assert_int_equal(ps_log_writer_start(&options, &s.writer, NULL), PSC_OK);
    s.sink = ps_log_writer_sink(s.writer);
    assert_int_equal(s.sink->segment, 1);
}

static void start(bool sync)
{
    start_with(sync, 0);
}

static void stop(void)
{
    ps_log_writer_stop(s.writer);
    ps_log_writer_destroy(s.writer);
    ps_log_chain_clear(&s.chain);
    test_scratch_destroy(s.folder);
}

static void submit(ps_log_action_t action, uint64_t segment, const char *name, size_t n)
{
    ps_log_entry_t *entry = &s.entries[s.n];
    *entry = (ps_log_entry_t){.action = action,
                              .segment = segment,
                              .kind = PS_LOG_PUSH,
                              .bytes = s.bodies[s.n],
                              .n = n,
                              .position = s.n + 1};
    for (size_t i = 0; i < n; i++)
        s.bodies[s.n][i] = (uint8_t)(s.n * 7 + i);
    if (action != PS_LOG_WRITE)
        (void)snprintf(entry->name, sizeof entry->name, "%s", name);
    s.n++;
    s.sink->submit(s.sink->context, entry);
}

static void await_written(void)
{
    const uint64_t until_us = psc_clock_us() + PATIENCE_US;
    while (s.sink->written(s.sink->context) != s.n) {
        psc_error_t error = PSC_ERROR_INIT;
        if (s.sink->fault(s.sink->context, &error) != PSC_OK)
            fail_msg("%s", error.message);
        assert_true(psc_clock_us() < until_us);
        (void)sched_yield();
    }
}

/* Reads a segment, whose records are entries from *entry on. */
static void read_segment(uint64_t number, size_t *entry)
{
    ps_log_reader_t *reader;
    ps_log_record_t record;
    bool more = true;
    char *path = ps_log_path(s.chain.folder, number);
    assert_int_equal(ps_log_reader_open(path, number, &reader, NULL), PSC_OK);
    for (;;) {
        assert_int_equal(ps_log_reader_next(reader, PS_LOG_TAIL_NONE, &record, &more, NULL, NULL),
                         PSC_OK);
        while (*entry < s.n && s.entries[*entry].action == PS_LOG_FORGET)
            (*entry)++;
        if (!more)
            break;
        assert_true(*entry < s.n);
        assert_int_equal(record.n, s.entries[*entry].n);
        assert_memory_equal(record.bytes, s.bodies[*entry], record.n);
        (*entry)++;
    }
    if (*entry < s.n) {
        assert_int_equal(s.entries[*entry].action, PS_LOG_CUT);
        (*entry)++;
    }
    ps_log_reader_close(reader);
    psc_free(path);
}

static void what_is_written_can_be_read(void **state)
{
    test_random_t random = test_random_start();
    uint64_t segment = 1, bytes, groups;
    size_t entry = 0;
    start(*(const bool *)*state);
    while (s.n < ENTRIES) {
        if (test_below(&random, 500) == 0)
            submit(PS_LOG_CUT, ++segment, "", 0);
        else
            submit(PS_LOG_WRITE, 0, "", test_below(&random, BODY + 1));
        if (test_below(&random, 200) == 0)
            await_written();
    }
    await_written();
    assert_true(atomic_load(&s.woken) != 0);
    s.sink->count(s.sink->context, &bytes, &groups);
    assert_true(groups > 0 && groups <= ENTRIES && bytes > ENTRIES);
    for (uint64_t number = 1; number <= segment; number++)
        read_segment(number, &entry);
    assert_int_equal(entry, s.n);
    /* The chain fits together. */
    const ps_log_start_t again = {
        .checkpoints = s.folder, .lineage = 1, .n_servers = 1, .base = "", .replay = true};
    ps_log_chain_t chain;
    assert_int_equal(ps_log_chain_find(&again, &chain, NULL), PSC_OK);
    assert_int_equal(chain.from, 1);
    assert_int_equal(chain.to, segment);
    ps_log_chain_clear(&chain);
    stop();
}

/* Zeros in the place of a record, as the machine is started again: how many count before it. */
static psc_status_t read_with_hole(const char *path, char *bytes, size_t size, size_t at, size_t n,
                                   size_t *count_out)
{
    ps_log_reader_t *reader;
    ps_log_record_t record;
    bool more = true;
    char kept[BODY];
    psc_status_t st = PSC_OK;
    assert_true(n <= sizeof kept && at + n <= size);
    memcpy(kept, bytes + at, n);
    memset(bytes + at, 0, n);
    assert_int_equal(psc_file_write(path, bytes, size, NULL), PSC_OK);
    memcpy(bytes + at, kept, n);
    assert_int_equal(ps_log_reader_open(path, 1, &reader, NULL), PSC_OK);
    for (*count_out = 0; st == PSC_OK && more; *count_out += more)
        st = ps_log_reader_next(reader, PS_LOG_TAIL_ANY, &record, &more, NULL, NULL);
    ps_log_reader_close(reader);
    return st;
}

/* What is written and not synced, each group by itself: it is synced when there are so many bytes
 * of it, and a hole before that is damage, and one behind it what a power cut may leave. */
static void what_is_not_synced_may_have_holes(void **state)
{
    (void)state;
    const size_t n_body = 8, record = (size_t)ps_log_record_bytes(n_body), most = 10, all = 35;
    char *bytes;
    size_t size, count;
    start_with(false, record * most);
    for (size_t i = 0; i < all; i++) {
        submit(PS_LOG_WRITE, 0, "", n_body);
        await_written();
    }
    ps_log_writer_stop(s.writer);
    char *path = ps_log_path(s.chain.folder, 1);
    assert_int_equal(psc_file_read(path, (size_t)1 << 20, &bytes, &size, NULL), PSC_OK);
    assert_int_equal(size, PS_LOG_HEAD_BYTES + all * record);
    for (size_t i = 0; i < all; i++) {
        const psc_status_t st =
            read_with_hole(path, bytes, size, PS_LOG_HEAD_BYTES + i * record, record, &count);
        assert_int_equal(st, i < all / most * most ? PSC_CORRUPT : PSC_OK);
        assert_int_equal(count, i);
    }
    psc_free(bytes);
    psc_free(path);
    stop();
}

static size_t count_segments(void)
{
    ps_log_numbers_t numbers;
    assert_int_equal(ps_log_list(s.chain.folder, &numbers, NULL), PSC_OK);
    psc_free(numbers.all);
    return numbers.n;
}

static void segments_of_a_checkpoint_go(void **state)
{
    (void)state;
    char path[512];
    start(false);
    for (uint64_t segment = 2; segment <= 5; segment++)
        submit(PS_LOG_CUT, segment, "", 0);
    submit(PS_LOG_FORGET, 4, "checkpoint-0000000001", 0); /* there is none of that name */
    await_written();
    assert_int_equal(count_segments(), 5);
    (void)snprintf(path, sizeof path, "%s/checkpoint-0000000001", s.folder);
    assert_int_equal(mkdir(path, 0777), 0);
    (void)snprintf(path, sizeof path, "%s/checkpoint-0000000001/manifest", s.folder);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fclose(file), 0);
    submit(PS_LOG_FORGET, 4, "checkpoint-0000000001", 0);
    submit(PS_LOG_WRITE, 0, "", 5);
    await_written();
    assert_int_equal(count_segments(), 2);
    stop();
}

static void a_disk_that_takes_no_more_is_named(void **state)
{
    (void)state;
    struct rlimit before, limit;
    psc_error_t error = PSC_ERROR_INIT;
    start(false);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = before;
    limit.rlim_cur = 2000;
    (void)signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    const uint64_t until_us = psc_clock_us() + PATIENCE_US;
    while (s.sink->fault(s.sink->context, &error) == PSC_OK) {
        if (s.n < ENTRIES / 2)
            submit(PS_LOG_WRITE, 0, "", BODY);
        assert_true(psc_clock_us() < until_us);
        (void)sched_yield();
    }
    const uint64_t at = s.sink->written(s.sink->context);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_non_null(strstr(error.message, "/log/server-0/segment-0000000001"));
    submit(PS_LOG_WRITE, 0, "", 5); /* never again, though it could */
    ps_log_writer_stop(s.writer);
    assert_int_equal(s.sink->written(s.sink->context), at);
    assert_true(at < s.n);
    s.n = (size_t)at; /* those are there, and no part of another */
    size_t entry = 0;
    read_segment(1, &entry);
    assert_int_equal(entry, at);
    stop();
}

int main(void)
{
    static bool sync[2] = {false, true};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(what_is_written_can_be_read, &sync[0]),
        cmocka_unit_test_prestate(what_is_written_can_be_read, &sync[1]),
        cmocka_unit_test(what_is_not_synced_may_have_holes),
        cmocka_unit_test(segments_of_a_checkpoint_go),
        cmocka_unit_test(a_disk_that_takes_no_more_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
