/*
 * Which segments follow a checkpoint: those of a run that was killed, over several starts; none
 * where a checkpoint is named; and what is refused: another checkpoint, another number of servers,
 * another folder's log, one with a hole.
 */
#include "ps/log/log_chain.h"

#include "common/alloc.h"
#include "common/file.h"
#include "tests/support/cmocka.h"
#include "tests/support/scratch.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LINEAGE UINT64_C(0xabcdef)

typedef struct setting {
    char *folder; /* of checkpoints */
    uint64_t cuts[8];
    ps_log_start_t start;
} setting_t;

static void open_setting(setting_t *s)
{
    *s = (setting_t){.folder = test_scratch_create()};
    s->start = (ps_log_start_t){
        .checkpoints = s->folder, .lineage = LINEAGE, .n_servers = 1, .base = "", .replay = true};
}

static void close_setting(setting_t *s)
{
    test_scratch_destroy(s->folder);
}

/* The run goes on from a checkpoint of n servers, whose parts say where their logs go on. */
static void from_checkpoint(setting_t *s, const char *name, uint32_t n, uint64_t cut)
{
    s->start.base = name;
    s->start.n_before = n;
    s->start.cut_segment = s->cuts;
    for (uint32_t i = 0; i < n; i++)
        s->cuts[i] = cut;
}

static psc_status_t find(setting_t *s, ps_log_chain_t *chain, psc_error_t *error)
{
    *error = (psc_error_t)PSC_ERROR_INIT;
    return ps_log_chain_find(&s->start, chain, error);
}

static void append(const char *folder, uint64_t number, const char *bytes)
{
    char *path = ps_log_path(folder, number);
    FILE *file = fopen(path, "ab");
    assert_non_null(file);
    assert_true(fputs(bytes, file) >= 0);
    assert_int_equal(fclose(file), 0);
    psc_free(path);
}

/* One run: begins, makes more segments by cuts, writes into the last one, and is killed. */
static uint64_t run(setting_t *s, uint64_t from, uint64_t to, size_t n_cuts)
{
    ps_log_chain_t chain;
    psc_error_t error;
    if (find(s, &chain, &error) != PSC_OK)
        fail_msg("%s", error.message);
    assert_int_equal(chain.from, from);
    assert_int_equal(chain.to, to);
    if (from <= to) /* as ps_log_replay finds it */
        chain.head.previous_bytes = PS_LOG_HEAD_BYTES + 8;
    assert_int_equal(ps_log_chain_begin(&chain, s->folder, &error), PSC_OK);
    ps_log_chain_prune(&chain);
    append(chain.folder, chain.head.number, "12345678");
    for (size_t i = 0; i < n_cuts; i++) {
        chain.head.number++;
        chain.head.previous_bytes = PS_LOG_HEAD_BYTES + 8;
        assert_int_equal(ps_log_make(chain.folder, &chain.head, &error), PSC_OK);
        append(chain.folder, chain.head.number, "12345678");
    }
    const uint64_t last = chain.head.number;
    ps_log_chain_clear(&chain);
    return last;
}

static void refused(setting_t *s, psc_status_t code, const char *words)
{
    ps_log_chain_t chain;
    psc_error_t error;
    assert_int_equal(find(s, &chain, &error), code);
    if (strstr(error.message, words) == NULL)
        fail_msg("\"%s\" is not in \"%s\"", words, error.message);
}

static void a_chain_goes_on_from_start_to_start(void **state)
{
    (void)state;
    setting_t s;
    open_setting(&s);
    assert_int_equal(run(&s, 1, 0, 0), 1);
    assert_int_equal(run(&s, 1, 1, 0), 2);
    assert_int_equal(run(&s, 1, 2, 2), 5); /* cuts, of which no checkpoint came */
    assert_int_equal(run(&s, 1, 5, 0), 6);
    from_checkpoint(&s, "checkpoint-0000000001", 1, 4);
    assert_int_equal(run(&s, 4, 6, 0), 7);
    from_checkpoint(&s, "checkpoint-0000000002", 1, 8); /* its segment was not made any more */
    assert_int_equal(run(&s, 1, 0, 0), 9);
    assert_int_equal(run(&s, 9, 9, 0), 10); /* a chain that follows that checkpoint */
    close_setting(&s);
}

static void a_named_checkpoint_is_meant_alone(void **state)
{
    (void)state;
    setting_t s;
    ps_log_chain_t chain;
    psc_error_t error;
    open_setting(&s);
    assert_int_equal(run(&s, 1, 0, 3), 4);
    from_checkpoint(&s, "checkpoint-0000000002", 1, 3);
    s.start.replay = false;
    assert_int_equal(find(&s, &chain, &error), PSC_OK);
    assert_int_equal(chain.dropped_bytes, 2 * (PS_LOG_HEAD_BYTES + 8));
    ps_log_chain_clear(&chain);
    from_checkpoint(&s, "checkpoint-0000000001", 1, 2);
    assert_int_equal(run(&s, 1, 0, 0), 5);
    /* That is where the log goes on, and not at the newest one. */
    s.start.replay = true;
    from_checkpoint(&s, "checkpoint-0000000002", 1, 3);
    refused(&s, PSC_MISMATCH, "--resume checkpoint-0000000002");
    refused(&s, PSC_MISMATCH, "made after checkpoint-0000000001");
    from_checkpoint(&s, "checkpoint-0000000001", 1, 2);
    assert_int_equal(run(&s, 5, 5, 0), 6);
    /* Begun from nothing, with checkpoints there. */
    s.start.replay = false;
    s.start.base = "";
    assert_int_equal(run(&s, 1, 0, 0), 7);
    s.start.replay = true;
    from_checkpoint(&s, "checkpoint-0000000002", 1, 3);
    refused(&s, PSC_MISMATCH, "made after a start without a checkpoint");
    close_setting(&s);
}

static void other_numbers_of_servers_are_refused(void **state)
{
    (void)state;
    setting_t s;
    open_setting(&s);
    s.start.n_servers = 3;
    for (uint32_t rank = 0; rank < 3; rank++) {
        s.start.rank = rank;
        (void)run(&s, 1, 0, 1);
    }
    for (uint32_t n = 1; n <= 4; n++) {
        s.start.n_servers = n;
        for (uint32_t rank = 0; n != 3 && rank < n; rank++) {
            s.start.rank = rank;
            refused(&s, PSC_MISMATCH, "start 3 once more");
        }
    }
    /* All that is in the logs is in a checkpoint. */
    from_checkpoint(&s, "checkpoint-0000000001", 3, 3);
    s.start.n_servers = 2;
    for (uint32_t rank = 0; rank < 2; rank++) {
        s.start.rank = rank;
        assert_int_equal(run(&s, 1, 0, 0), 4);
    }
    s.start.n_servers = 3;
    refused(&s, PSC_MISMATCH, "start 2 once more");
    close_setting(&s);
}

static void foreign_and_missing_logs_are_named(void **state)
{
    (void)state;
    setting_t s;
    open_setting(&s);
    from_checkpoint(&s, "checkpoint-0000000001", 1, 1);
    refused(&s, PSC_NOT_FOUND, "/log/server-0 is missing");
    s.cuts[0] = 0;
    assert_int_equal(run(&s, 1, 0, 3), 4);
    s.start.lineage++;
    refused(&s, PSC_MISMATCH, "of other checkpoints");
    s.start.lineage--;
    char *own = ps_log_folder(s.folder, 0), *other = ps_log_folder(s.folder, 1);
    assert_int_equal(rename(own, other), 0);
    s.start.rank = 1;
    s.start.n_servers = 2;
    refused(&s, PSC_MISMATCH, "of server 0, not of server 1");
    s.start.rank = 0;
    refused(&s, PSC_MISMATCH, "of server 0, not of server 1");
    assert_int_equal(rename(other, own), 0);
    s.start.n_servers = 1;
    append(own, 2, "more");
    refused(&s, PSC_CORRUPT, "segment-0000000002");
    char *path = ps_log_path(own, 2);
    assert_int_equal(unlink(path), 0);
    refused(&s, PSC_NOT_FOUND, "segment-0000000002");
    psc_free(path);
    psc_free(own);
    psc_free(other);
    close_setting(&s);
}

static void a_start_that_fails_leaves_nothing(void **state)
{
    (void)state;
    setting_t s;
    ps_log_chain_t chain;
    psc_error_t error;
    open_setting(&s);
    assert_int_equal(find(&s, &chain, &error), PSC_OK);
    assert_int_equal(ps_log_chain_begin(&chain, s.folder, &error), PSC_OK);
    ps_log_chain_discard(&chain);
    ps_log_chain_clear(&chain);
    assert_int_equal(test_count_entries(s.folder), 0);
    close_setting(&s);
}

/* A file named as one that is being made, in the folder of this server's log. */
static void leave(const char *folder, const char *name)
{
    char path[512];
    FILE *file = fopen(test_path(path, sizeof path, folder, name), "wb");
    assert_non_null(file);
    assert_int_equal(fclose(file), 0);
}

static void what_a_crash_left_of_a_segment_goes_and_nothing_else(void **state)
{
    (void)state;
    static const char *const stay[] = {
        ".segment-0000000002.77-00112233445566778.tmp", ".segment-.77-0011223344556677.tmp",
        ".segment-0000000002.-0011223344556677.tmp",    ".segment-0000000002.77-0011223344556677",
        "segment-0000000002.77-0011223344556677.tmp",   ".notes.77-0011223344556677.tmp"};
    enum { N_STAY = sizeof stay / sizeof stay[0] };
    setting_t s;
    open_setting(&s);
    (void)run(&s, 1, 0, 0);
    char *folder = ps_log_folder(s.folder, 0);
    const size_t before = test_count_entries(folder);
    for (size_t i = 0; i < N_STAY; i++)
        leave(folder, stay[i]);
    leave(folder, ".segment-0000000002.77-0011223344556677.tmp");
    leave(folder, ".segment-0000000003.1234567-fedcba9876543210.tmp");
    (void)run(&s, 1, 1, 0);
    assert_int_equal(test_count_entries(folder), before + 1 + N_STAY);
    char path[512];
    for (size_t i = 0; i < N_STAY; i++)
        assert_int_equal(access(test_path(path, sizeof path, folder, stay[i]), F_OK), 0);
    psc_free(folder);
    close_setting(&s);
}

/* What is made has a name of that kind until it has its own. */
static void names_of_what_is_being_made_are_known(void **state)
{
    (void)state;
    char *folder = test_scratch_create();
    char *path = ps_log_path(folder, 12);
    psc_outfile_t *out = NULL;
    psc_error_t error = PSC_ERROR_INIT;
    assert_int_equal(psc_outfile_open(path, &out, &error), PSC_OK);
    DIR *entries = opendir(folder);
    assert_non_null(entries);
    size_t n_known = 0;
    for (const struct dirent *entry; (entry = readdir(entries)) != NULL;)
        n_known += ps_log_is_leftover(entry->d_name);
    (void)closedir(entries);
    assert_int_equal(n_known, 1);
    psc_outfile_abort(out);
    psc_free(path);
    test_scratch_destroy(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_chain_goes_on_from_start_to_start),
        cmocka_unit_test(a_named_checkpoint_is_meant_alone),
        cmocka_unit_test(other_numbers_of_servers_are_refused),
        cmocka_unit_test(foreign_and_missing_logs_are_named),
        cmocka_unit_test(a_start_that_fails_leaves_nothing),
        cmocka_unit_test(what_a_crash_left_of_a_segment_goes_and_nothing_else),
        cmocka_unit_test(names_of_what_is_being_made_are_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
