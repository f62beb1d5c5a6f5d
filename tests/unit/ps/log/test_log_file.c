/*
 * Segments of a log: what was appended comes back; a file that ends anywhere gives the records that
 * it has whole, and no others; a byte that is changed anywhere is found, and named by file and
 * offset.
 */
#include "ps/log/log_file.h"

#include "common/alloc.h"
#include "common/file.h"
#include "tests/support/cmocka.h"
#include "tests/support/scratch.h"
#include "tests/support/test_seed.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RECORDS = 7, ROOM = 4096 };

static const size_t sizes[RECORDS] = {40, 0, 1, 129, 8, 64, 33};

typedef struct made {
    char folder[256];
    char *path;
    uint8_t bytes[ROOM];        /* of the whole file */
    size_t size, ends[RECORDS]; /* where each record ends */
    uint8_t bodies[RECORDS][256];
} made_t;

static const ps_log_head_t head = {.lineage = 0x1234,
                                   .rank = 3,
                                   .n_servers = 5,
                                   .number = 12,
                                   .first = 10,
                                   .previous_bytes = 999,
                                   .boot = {1, 2, 3},
                                   .base = "checkpoint-0000000004",
                                   .level = PS_LOG_LEVEL_SYNCED};

static void write_file(const char *path, const uint8_t *bytes, size_t size)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

/* unsynced: of each record. */
static void make(made_t *made, char *scratch, const uint32_t unsynced[RECORDS],
                 test_random_t *random)
{
    char *bytes;
    (void)snprintf(made->folder, sizeof made->folder, "%s", scratch);
    assert_int_equal(ps_log_make(made->folder, &head, NULL), PSC_OK);
    made->path = ps_log_path(made->folder, head.number);
    assert_int_equal(psc_file_read(made->path, ROOM, &bytes, &made->size, NULL), PSC_OK);
    assert_int_equal(made->size, PS_LOG_HEAD_BYTES);
    memcpy(made->bytes, bytes, made->size);
    psc_free(bytes);
    for (size_t r = 0; r < RECORDS; r++) {
        const size_t n = sizes[r], all = (size_t)ps_log_record_bytes(n);
        for (size_t i = 0; i < n; i++)
            made->bodies[r][i] = (uint8_t)test_next(random);
        ps_log_fill_head(made->bytes + made->size, head.number, made->size, unsynced[r],
                         (ps_log_kind_t)(1 + r % PS_LOG_KIND_LAST), made->bodies[r], n);
        memset(made->bytes + made->size + PS_LOG_RECORD_HEAD_BYTES, 0,
               all - PS_LOG_RECORD_HEAD_BYTES);
        memcpy(made->bytes + made->size + PS_LOG_RECORD_HEAD_BYTES, made->bodies[r], n);
        made->size += all;
        made->ends[r] = made->size;
    }
    write_file(made->path, made->bytes, made->size);
}

/* Reads it all; how many records there are, each of which must be the one that was written. */
static psc_status_t read_all(const made_t *made, ps_log_tail_t tail, size_t *n_out,
                             uint64_t *end_out, psc_error_t *error)
{
    ps_log_reader_t *reader = NULL;
    *n_out = 0;
    *end_out = 0;
    psc_status_t st = ps_log_reader_open(made->path, head.number, &reader, error);
    for (bool more = true; st == PSC_OK && more;) {
        ps_log_record_t record;
        st = ps_log_reader_next(reader, tail, &record, &more, end_out, error);
        if (st != PSC_OK || !more)
            break;
        const size_t r = (*n_out)++;
        assert_true(r < RECORDS);
        assert_int_equal(record.n, sizes[r]);
        assert_int_equal(record.kind, 1 + r % PS_LOG_KIND_LAST);
        assert_int_equal(record.offset + ps_log_record_bytes(record.n), made->ends[r]);
        assert_memory_equal(record.bytes, made->bodies[r], record.n);
    }
    ps_log_reader_close(reader);
    return st;
}

static size_t whole_below(const made_t *made, size_t size)
{
    size_t n = 0;
    while (n < RECORDS && made->ends[n] <= size)
        n++;
    return n;
}

static void what_was_written_comes_back(const made_t *made)
{
    ps_log_reader_t *reader;
    ps_log_numbers_t numbers;
    size_t n;
    uint64_t end;
    for (int tail = PS_LOG_TAIL_NONE; tail <= PS_LOG_TAIL_ANY; tail++) {
        assert_int_equal(read_all(made, (ps_log_tail_t)tail, &n, &end, NULL), PSC_OK);
        assert_int_equal(n, RECORDS);
        assert_int_equal(end, made->size);
    }
    assert_int_equal(ps_log_reader_open(made->path, head.number, &reader, NULL), PSC_OK);
    assert_memory_equal(ps_log_reader_head(reader), &head, sizeof head);
    assert_int_equal(ps_log_reader_bytes(reader), made->size);
    ps_log_reader_close(reader);
    assert_int_equal(ps_log_list(made->folder, &numbers, NULL), PSC_OK);
    assert_int_equal(numbers.n, 1);
    assert_int_equal(numbers.all[0], head.number);
    psc_free(numbers.all);
}

/* A process that is killed, or a machine, leaves a file that ends anywhere. */
static void a_file_that_ends_anywhere(const made_t *made)
{
    size_t n;
    uint64_t end;
    for (size_t size = 0; size < made->size; size++) {
        psc_error_t error = PSC_ERROR_INIT;
        write_file(made->path, made->bytes, size);
        const size_t whole = whole_below(made, size);
        const bool between =
            size == PS_LOG_HEAD_BYTES || (whole != 0 && made->ends[whole - 1] == size);
        const psc_status_t st = read_all(made, PS_LOG_TAIL_SHORT, &n, &end, &error);
        if (size < PS_LOG_HEAD_BYTES) {
            assert_int_equal(st, PSC_CORRUPT);
            continue;
        }
        assert_int_equal(st, PSC_OK);
        assert_int_equal(n, whole);
        assert_int_equal(end, whole != 0 ? made->ends[whole - 1] : PS_LOG_HEAD_BYTES);
        assert_int_equal(read_all(made, PS_LOG_TAIL_NONE, &n, &end, &error),
                         between ? PSC_OK : PSC_CORRUPT);
        assert_int_equal(n, whole);
    }
    write_file(made->path, made->bytes, made->size);
}

/* Each bit of each byte; after a power cut the last record may be what was lost. */
static void a_bit_that_is_changed(const made_t *made, test_random_t *random)
{
    static uint8_t bytes[ROOM];
    size_t n;
    uint64_t end;
    for (size_t at = 0; at < made->size; at++) {
        psc_error_t error = PSC_ERROR_INIT;
        memcpy(bytes, made->bytes, made->size);
        bytes[at] ^= (uint8_t)(1u << test_below(random, 8));
        write_file(made->path, bytes, made->size);
        assert_int_equal(read_all(made, PS_LOG_TAIL_SHORT, &n, &end, &error), PSC_CORRUPT);
        assert_non_null(strstr(error.message, made->path));
        assert_non_null(strstr(error.message, "at offset"));
        const psc_status_t lenient = read_all(made, PS_LOG_TAIL_ANY, &n, &end, &error);
        const bool last = at >= made->ends[RECORDS - 2];
        assert_int_equal(lenient, last ? PSC_OK : PSC_CORRUPT);
        if (last) {
            assert_int_equal(n, RECORDS - 1);
            assert_int_equal(end, made->ends[RECORDS - 2]);
        }
    }
    write_file(made->path, made->bytes, made->size);
}

/* Whatever a power cut leaves behind the last whole record. */
static void an_end_of_anything(const made_t *made, test_random_t *random)
{
    static uint8_t bytes[ROOM];
    size_t n;
    uint64_t end;
    for (size_t trial = 0; trial < 64; trial++) {
        const size_t keep = test_below(random, RECORDS);
        const size_t from = keep != 0 ? made->ends[keep - 1] : PS_LOG_HEAD_BYTES;
        const size_t more = 1 + test_below(random, 500);
        memcpy(bytes, made->bytes, from);
        for (size_t i = 0; i < more; i++)
            bytes[from + i] = trial % 2 == 0 ? 0 : (uint8_t)test_next(random);
        write_file(made->path, bytes, from + more);
        assert_int_equal(read_all(made, PS_LOG_TAIL_ANY, &n, &end, NULL), PSC_OK);
        assert_int_equal(n, keep);
        assert_int_equal(end, from);
        assert_int_equal(read_all(made, PS_LOG_TAIL_NONE, &n, &end, NULL), PSC_CORRUPT);
    }
    write_file(made->path, made->bytes, made->size);
}

/*
 * The last four records were one group, which was being synced when the power was cut: of its
 * sectors any may be there, and zeros in the place of others. What came before is whole, and so is
 * the first part of the group; the same damage before the group is found.
 */
static void any_sectors_of_a_group_that_was_not_synced(char *scratch, test_random_t *random)
{
    static made_t made;
    static uint8_t bytes[ROOM];
    const size_t first = RECORDS - 4;
    uint32_t unsynced[RECORDS] = {0};
    size_t n;
    uint64_t end;
    for (size_t r = first + 1; r < RECORDS; r++)
        unsynced[r] = unsynced[r - 1] + (uint32_t)ps_log_record_bytes(sizes[r - 1]);
    make(&made, scratch, unsynced, random);
    for (size_t trial = 0; trial < 64; trial++) {
        size_t whole = RECORDS;
        memcpy(bytes, made.bytes, made.size);
        for (size_t r = first; r < RECORDS; r++) {
            if (test_below(random, 2) != 0)
                continue;
            memset(bytes + made.ends[r - 1], 0, made.ends[r] - made.ends[r - 1]);
            whole = r < whole ? r : whole;
        }
        write_file(made.path, bytes, made.size);
        assert_int_equal(read_all(&made, PS_LOG_TAIL_ANY, &n, &end, NULL), PSC_OK);
        assert_int_equal(n, whole);
        assert_int_equal(end, made.ends[whole - 1]);
        if (whole < RECORDS) /* on the machine that is still up it is damage */
            assert_int_equal(read_all(&made, PS_LOG_TAIL_SHORT, &n, &end, NULL), PSC_CORRUPT);
    }
    memcpy(bytes, made.bytes, made.size);
    memset(bytes + made.ends[first - 2], 0, made.ends[first - 1] - made.ends[first - 2]);
    write_file(made.path, bytes, made.size);
    assert_int_equal(read_all(&made, PS_LOG_TAIL_ANY, &n, &end, NULL), PSC_CORRUPT);
    psc_free(made.path);
}

/*
 * With --durability push nothing is synced but all that is there, now and then: here before the
 * fourth record. A hole behind that is what a power cut may leave, and ends what counts; before it
 * it is damage, as it is anywhere on a machine that was not started again.
 */
static void holes_where_nothing_was_synced(char *scratch, test_random_t *random)
{
    static made_t made;
    static uint8_t bytes[ROOM];
    const size_t first = 3;
    uint32_t unsynced[RECORDS] = {0};
    size_t n;
    uint64_t end;
    for (size_t r = 1; r < RECORDS; r++)
        unsynced[r] =
            r == first ? 0 : unsynced[r - 1] + (uint32_t)ps_log_record_bytes(sizes[r - 1]);
    make(&made, scratch, unsynced, random);
    for (size_t hole = 0; hole < RECORDS; hole++) {
        const size_t begin = hole != 0 ? made.ends[hole - 1] : PS_LOG_HEAD_BYTES;
        ps_log_reader_t *reader = NULL;
        ps_log_record_t record;
        psc_error_t error = PSC_ERROR_INIT;
        bool more = true;
        memcpy(bytes, made.bytes, made.size);
        memset(bytes + begin, 0, made.ends[hole] - begin);
        write_file(made.path, bytes, made.size);
        assert_int_equal(read_all(&made, PS_LOG_TAIL_SHORT, &n, &end, NULL), PSC_CORRUPT);
        if (hole < first) {
            assert_int_equal(read_all(&made, PS_LOG_TAIL_ANY, &n, &end, &error), PSC_CORRUPT);
            assert_non_null(strstr(error.message, "had been on the disk"));
            continue;
        }
        assert_int_equal(read_all(&made, PS_LOG_TAIL_ANY, &n, &end, NULL), PSC_OK);
        assert_int_equal(n, hole);
        assert_int_equal(end, begin);
        assert_int_equal(ps_log_reader_open(made.path, head.number, &reader, NULL), PSC_OK);
        while (more)
            assert_int_equal(
                ps_log_reader_next(reader, PS_LOG_TAIL_ANY, &record, &more, NULL, NULL), PSC_OK);
        assert_int_equal(ps_log_reader_beyond(reader), RECORDS - 1 - hole);
        ps_log_reader_close(reader);
    }
    psc_free(made.path);
}

static void another_segment_and_a_later_format(const made_t *made)
{
    static uint8_t bytes[ROOM];
    ps_log_reader_t *reader;
    psc_error_t error = PSC_ERROR_INIT;
    size_t n;
    uint64_t end;
    assert_int_equal(ps_log_reader_open(made->path, 13, &reader, &error), PSC_MISMATCH);
    assert_non_null(strstr(error.message, made->path));
    assert_int_equal(ps_log_reader_open("/nowhere/segment", 1, &reader, &error), PSC_NOT_FOUND);
    /* Records of another place are none of this one: the second one where the first one was. */
    memcpy(bytes, made->bytes, made->ends[1]);
    memmove(bytes + PS_LOG_HEAD_BYTES, bytes + made->ends[0], made->ends[1] - made->ends[0]);
    write_file(made->path, bytes, made->ends[1]);
    assert_int_equal(read_all(made, PS_LOG_TAIL_SHORT, &n, &end, &error), PSC_CORRUPT);
    assert_int_equal(n, 0);
    write_file(made->path, made->bytes, made->size);
}

static void segments(void **state)
{
    (void)state;
    static made_t made;
    test_random_t random = test_random_start();
    char *scratch = test_scratch_create();
    const uint32_t all_synced[RECORDS] = {0};
    make(&made, scratch, all_synced, &random);
    what_was_written_comes_back(&made);
    a_file_that_ends_anywhere(&made);
    a_bit_that_is_changed(&made, &random);
    an_end_of_anything(&made, &random);
    another_segment_and_a_later_format(&made);
    psc_free(made.path);
    any_sectors_of_a_group_that_was_not_synced(scratch, &random);
    holes_where_nothing_was_synced(scratch, &random);
    test_scratch_destroy(scratch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(segments)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
