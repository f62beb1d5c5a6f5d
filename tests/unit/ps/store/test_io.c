/* The I/O thread: order, what it may touch of a row that is being loaded, failures. */
#include "common/alloc.h"
#include "ps/store/io.h"
#include "tests/support/cmocka.h"
#include "tests/support/store_tiers.h"

#include <stdatomic.h>
#include <string.h>

#define FLOATS 8
#define RECORD (sizeof(ps_row_header_t) + FLOATS * sizeof(float))
#define JOB_BYTES 4096
#define PLACE(i) ((ps_place_t)((i) * (64 / 16)))

typedef struct setting {
    ps_cold_t *inner;
    test_tier_t *tier;
    uint8_t *base; /* records of 64 bytes */
    ps_io_t *io;
    atomic_int n_wakes;
} setting_t;

static void wake(void *context)
{
    setting_t *setting = context;
    atomic_fetch_add(&setting->n_wakes, 1);
}

static ps_io_options_t options_of(setting_t *setting)
{
    return (ps_io_options_t){.cold = test_tier_cold(setting->tier),
                             .base = setting->base,
                             .n_read_jobs = 2,
                             .n_write_jobs = 3,
                             .job_bytes = JOB_BYTES,
                             .wake = wake,
                             .wake_context = setting};
}

static setting_t *start(uint64_t fail_read_at, uint64_t fail_write_at)
{
    setting_t *setting = psc_alloc_zeroed(1, sizeof *setting);
    psc_error_t error = PSC_ERROR_INIT;
    ps_cold_faults_t faults = {.fail_read_at = fail_read_at, .fail_write_at = fail_write_at};
    assert_int_equal(ps_cold_memory_create(&faults, &setting->inner, &error), PSC_OK);
    setting->tier = test_tier_create(setting->inner, true);
    setting->base = psc_alloc_aligned(1000 * 64);
    memset(setting->base, 0, 1000 * 64);
    ps_io_options_t options = options_of(setting);
    assert_int_equal(ps_io_start(&options, &setting->io, &error), PSC_OK);
    return setting;
}

static void stop(setting_t *setting)
{
    test_tier_hold(setting->tier, false);
    ps_io_stop(setting->io);
    test_tier_destroy(setting->tier);
    setting->inner->ops->destroy(setting->inner);
    psc_free(setting->base);
    psc_free(setting);
}

static ps_row_header_t *make_row(setting_t *setting, ps_place_t place, uint64_t id, float value)
{
    ps_row_header_t *row = ps_store_row(setting->base, place);
    *row = (ps_row_header_t){.id = id,
                             .version = (uint32_t)id + 1,
                             .push_seq = 2,
                             .update_count = 3,
                             .last_clock = 4,
                             .table = 5,
                             .pins = 6,
                             .state = PS_ROW_PRESENT,
                             .policy = 3,
                             .flags = PS_ROW_DIRTY};
    for (int i = 0; i < FLOATS; i++)
        ps_row_floats(row)[i] = value;
    return row;
}

/* A record to read into, as the store makes it. */
static ps_row_header_t *make_loading(setting_t *setting, ps_place_t place, uint64_t id)
{
    ps_row_header_t *row = ps_store_row(setting->base, place);
    memset(row, 0, RECORD);
    row->id = id;
    row->table = 5;
    row->state = PS_ROW_LOADING;
    return row;
}

static ps_io_job_t *next(setting_t *setting)
{
    ps_io_job_t *job;
    while ((job = ps_io_next(setting->io)) == NULL)
        ps_io_wait(setting->io);
    return job;
}

static void write_one(setting_t *setting, uint64_t id, float value)
{
    ps_io_job_t *job = ps_io_write_job(setting->io);
    assert_non_null(job);
    const ps_row_header_t *row = make_row(setting, 1, id, value);
    assert_true(ps_io_add_write(setting->io, job, row, RECORD, 77));
    (void)ps_io_submit(setting->io, job);
}

static uint64_t read_one(setting_t *setting, ps_place_t place)
{
    ps_io_job_t *job = ps_io_read_job(setting->io);
    assert_non_null(job);
    job->record_bytes = RECORD;
    assert_true(ps_io_add_read(job, place, 77));
    return ps_io_submit(setting->io, job);
}

static void a_read_after_a_write_sees_it_and_jobs_return_in_order(void **state)
{
    (void)state;
    setting_t *setting = start(0, 0);
    test_tier_hold(setting->tier, true);
    ps_row_header_t *row = make_loading(setting, 10, UINT64_MAX);
    write_one(setting, UINT64_MAX, 1);
    write_one(setting, UINT64_MAX, 2);
    assert_int_equal(read_one(setting, 10), 1);
    write_one(setting, UINT64_MAX, 3);
    /* The record that was copied is free for others at once. */
    memset(ps_store_row(setting->base, 1), 0xee, RECORD);
    /* The owner may pin, and use the policy's byte and the flags, while it loads. */
    row->pins = 9;
    row->flags = 1234;
    assert_null(ps_io_next(setting->io));
    assert_int_equal(ps_io_submitted(setting->io), 1);
    assert_false(ps_io_idle(setting->io));
    assert_int_equal(ps_io_finished(setting->io), 0);
    test_tier_hold(setting->tier, false);
    for (uint64_t n = 1; n <= 4; n++) {
        ps_io_job_t *job = next(setting);
        assert_int_equal(job->kind, n == 3 ? PS_IO_READ : PS_IO_WRITE);
        assert_int_equal(job->status, PSC_OK);
        assert_int_equal(ps_io_finished(setting->io), n >= 3);
        if (n == 3)
            assert_int_equal(job->reads[0].found, 1);
        ps_io_put(setting->io, job);
    }
    assert_true(ps_io_idle(setting->io));
    assert_true(ps_row_floats(row)[0] == 2 && ps_row_floats(row)[FLOATS - 1] == 2);
    assert_int_equal(row->version, 0);  /* UINT64_MAX + 1 in 32 bits */
    assert_int_equal(row->push_seq, 0); /* the owner's */
    assert_int_equal(row->update_count, 3);
    assert_int_equal(row->last_clock, 4);
    assert_int_equal(row->pins, 9);
    assert_int_equal(row->flags, 1234);
    assert_int_equal(row->state, PS_ROW_LOADING);
    assert_int_equal(row->policy, 0);
    assert_string_equal(test_tier_calls(setting->tier), "wwrw");
    stop(setting);
}

static void records_on_disk_are_present_clean_and_not_pinned(void **state)
{
    (void)state;
    setting_t *setting = start(0, 0);
    write_one(setting, 0, 1.5f);
    ps_io_put(setting->io, next(setting));
    psc_error_t error = PSC_ERROR_INIT;
    uint8_t record[RECORD];
    ps_cold_read_t read = {.head = record, .head_size = RECORD, .size = RECORD};
    ps_cold_key(read.key, 5, 77, 0);
    assert_int_equal(setting->inner->ops->read(setting->inner, &read, 1, &error), PSC_OK);
    assert_true(read.found);
    ps_row_header_t header;
    memcpy(&header, record, sizeof header);
    assert_int_equal(header.state, PS_ROW_PRESENT);
    assert_int_equal(header.pins, 0);
    assert_int_equal(header.policy, 0);
    assert_int_equal(header.flags, 0);
    assert_int_equal(header.version, 1);
    stop(setting);
}

static void many_rows_are_read_in_one_job(void **state)
{
    (void)state;
    setting_t *setting = start(0, 0);
    for (uint64_t id = 0; id < 500; id += 2) { /* every second one is there */
        ps_io_job_t *job = ps_io_write_job(setting->io);
        const ps_row_header_t *row = make_row(setting, 1, id, (float)id);
        assert_true(ps_io_add_write(setting->io, job, row, RECORD, (uint32_t)(id * 7919 % 16384)));
        (void)ps_io_submit(setting->io, job);
        ps_io_put(setting->io, next(setting));
    }
    ps_io_job_t *job = ps_io_read_job(setting->io);
    job->record_bytes = RECORD;
    for (uint64_t id = 0; id < 499; id++) {
        (void)make_loading(setting, (ps_place_t)(id * 8), id);
        assert_true(ps_io_add_read(job, (ps_place_t)(id * 8), (uint32_t)(id * 7919 % 16384)));
    }
    (void)ps_io_submit(setting->io, job);
    job = next(setting);
    assert_int_equal(job->status, PSC_OK);
    assert_int_equal(job->n, 499);
    bool seen[500] = {false};
    for (size_t i = 0; i < job->n; i++) {
        const ps_row_header_t *row = ps_store_row(setting->base, job->reads[i].place);
        assert_false(seen[row->id]);
        seen[row->id] = true;
        assert_int_equal(job->reads[i].found, row->id % 2 == 0);
        if (job->reads[i].found)
            assert_int_equal(row->version, row->id + 1);
    }
    stop(setting);
}

static void jobs_linked_by_more_are_read_as_one(void **state)
{
    (void)state;
    setting_t *setting = start(0, 0);
    write_one(setting, 3, 3);
    ps_io_put(setting->io, next(setting));
    test_tier_hold(setting->tier, true);
    ps_io_job_t *jobs[2];
    for (uint64_t j = 0; j < 2; j++) {
        jobs[j] = ps_io_read_job(setting->io);
        jobs[j]->record_bytes = RECORD;
        for (uint64_t i = 0; i < 20; i++) { /* 0, 2, ... and 1, 3, ... */
            ps_place_t place = PLACE(1 + 2 * i + j);
            (void)make_loading(setting, place, 2 * i + j);
            assert_true(ps_io_add_read(jobs[j], place, 77));
        }
        jobs[j]->more = j == 0;
        (void)ps_io_submit(setting->io, jobs[j]);
    }
    test_tier_hold(setting->tier, false);
    for (size_t j = 0; j < 2; j++) {
        ps_io_job_t *job = next(setting);
        assert_ptr_equal(job, jobs[j]);
        assert_int_equal(job->status, PSC_OK);
        for (size_t i = 0; i < job->n; i++)
            assert_int_equal(job->reads[i].found, j == 1 && i == 1);
    }
    assert_true(ps_row_floats(ps_store_row(setting->base, PLACE(4)))[7] == 3);
    assert_string_equal(test_tier_calls(setting->tier), "wr");
    stop(setting);
}

/* Writes that the tier refuses for a while; rows in them, and others, are read meanwhile. */
static void reads_pass_writes_that_have_to_wait_and_see_what_is_in_them(void **state)
{
    (void)state;
    setting_t *setting = start(0, 0);
    write_one(setting, 1, 1);
    write_one(setting, 5, 5);
    for (int i = 0; i < 2; i++)
        ps_io_put(setting->io, next(setting));
    test_tier_stall(setting->tier, true);
    write_one(setting, 1, 10);
    ps_io_job_t *job = ps_io_write_job(setting->io);
    for (uint64_t id = 9; id > 0; id--) { /* twice in this job: the later one counts */
        const ps_row_header_t *row = make_row(setting, PLACE(1), id % 3, (float)(20 + id));
        if (id == 6) /* as number 0, which is made again afterwards */
            assert_true(ps_io_add_remove(setting->io, job, row, 77));
        else
            assert_true(ps_io_add_write(setting->io, job, row, RECORD, 77));
    }
    (void)ps_io_submit(setting->io, job);
    job = ps_io_write_job(setting->io);
    const ps_row_header_t *gone = make_row(setting, PLACE(1), 5, 0);
    assert_true(ps_io_add_remove(setting->io, job, gone, 77));
    (void)ps_io_submit(setting->io, job);
    assert_null(ps_io_write_job(setting->io)); /* this is what the owner sees of it */
    const uint64_t ids[] = {0, 1, 2, 5, 7};
    const float values[] = {23, 21, 22, 0, 0}; /* 0: not there */
    for (int round = 0; round < 2; round++) {
        job = ps_io_read_job(setting->io);
        job->record_bytes = RECORD;
        for (size_t i = 0; i < 5; i++) {
            (void)make_loading(setting, PLACE(10 + i), ids[i]);
            assert_true(ps_io_add_read(job, PLACE(10 + i), 77));
        }
        (void)ps_io_submit(setting->io, job);
        job = next(setting);
        assert_int_equal(job->kind, PS_IO_READ);
        for (size_t i = 0; i < 5; i++) {
            const ps_row_header_t *row = ps_store_row(setting->base, job->reads[i].place);
            size_t at = 0;
            while (ids[at] != row->id)
                at++;
            assert_int_equal(job->reads[i].found, values[at] != 0);
            assert_true(ps_row_floats(ps_store_row(setting->base, PLACE(10 + at)))[0] ==
                        values[at]);
        }
        ps_io_put(setting->io, job);
        if (round == 1)
            break;
        assert_null(ps_io_next(setting->io));
        assert_true(ps_io_stalls(setting->io).now);
        test_tier_stall(setting->tier, false);
        for (int i = 0; i < 3; i++) {
            job = next(setting);
            assert_int_equal(job->kind, PS_IO_WRITE);
            assert_int_equal(job->status, PSC_OK);
        }
    }
    assert_true(ps_io_idle(setting->io));
    ps_io_stalls_t stalls = ps_io_stalls(setting->io);
    assert_true(stalls.n == 1 && stalls.us > 0 && !stalls.now);
    stop(setting);
}

static void jobs_are_limited_in_number_and_size(void **state)
{
    (void)state;
    setting_t *setting = start(0, 0);
    assert_int_equal(ps_io_free_writes(setting->io), 3);
    ps_io_job_t *jobs[3];
    for (int i = 0; i < 3; i++) {
        jobs[i] = ps_io_write_job(setting->io);
        assert_non_null(jobs[i]);
    }
    assert_null(ps_io_write_job(setting->io));
    const ps_row_header_t *row = make_row(setting, 1, 1, 1);
    size_t n = 0;
    while (ps_io_add_write(setting->io, jobs[0], row, RECORD, 0))
        n++;
    assert_int_equal(n, JOB_BYTES / 128); /* entries are counted for 128 bytes each */
    n = 0;
    while (ps_io_add_write(setting->io, jobs[1], row, 1000, 0))
        n++;
    assert_int_equal(n, JOB_BYTES / 1000);
    for (int i = 0; i < 3; i++)
        ps_io_put(setting->io, jobs[i]);
    ps_io_job_t *a = ps_io_read_job(setting->io), *b = ps_io_read_job(setting->io);
    assert_non_null(a);
    assert_non_null(b);
    assert_null(ps_io_read_job(setting->io));
    for (n = 0; ps_io_add_read(a, 1, 0); n++)
        continue;
    assert_int_equal(n, PS_IO_JOB_READS);
    ps_io_put(setting->io, a);
    ps_io_put(setting->io, b);
    stop(setting);
}

static void after_a_failure_nothing_is_done_any_more(void **state)
{
    (void)state;
    setting_t *setting = start(0, 2);
    test_tier_hold(setting->tier, true);
    (void)make_loading(setting, 10, 1);
    write_one(setting, 1, 1);
    write_one(setting, 2, 1);
    (void)read_one(setting, 10);
    test_tier_hold(setting->tier, false);
    assert_int_equal(next(setting)->status, PSC_OK);
    assert_int_equal(next(setting)->status, PSC_DISK_FULL);
    assert_int_equal(next(setting)->status, PSC_DISK_FULL);
    assert_int_equal(ps_io_error(setting->io)->code, PSC_DISK_FULL);
    assert_non_null(strstr(ps_io_error(setting->io)->message, "write 2"));
    assert_string_equal(test_tier_calls(setting->tier), "ww");
    stop(setting);
}

static void a_sync_comes_after_what_was_written(void **state)
{
    (void)state;
    setting_t *setting = start(0, 0);
    psc_error_t error = PSC_ERROR_INIT;
    test_tier_hold(setting->tier, true);
    write_one(setting, 1, 1);
    assert_int_equal(ps_io_submit_sync(setting->io, &error), PSC_OK);
    assert_int_equal(ps_io_submit_sync(setting->io, &error), PSC_BUSY);
    test_tier_hold(setting->tier, false);
    assert_int_equal(next(setting)->kind, PS_IO_WRITE);
    while (!ps_io_idle(setting->io)) {
        assert_null(ps_io_next(setting->io));
        ps_io_wait(setting->io);
    }
    assert_string_equal(test_tier_calls(setting->tier), "ws");
    assert_int_equal(ps_io_submit_sync(setting->io, &error), PSC_OK);
    stop(setting); /* does what was submitted first */
}

static void wakes_the_owner_once_for_each_job(void **state)
{
    (void)state;
    setting_t *setting = start(0, 0);
    for (uint64_t id = 0; id < 5; id++) {
        write_one(setting, id, 1);
        ps_io_put(setting->io, next(setting));
    }
    ps_io_stop(setting->io);
    setting->io = NULL;
    assert_int_equal(atomic_load(&setting->n_wakes), 5);
    stop(setting);
}

static void memory_is_what_was_announced_and_a_failed_start_leaks_nothing(void **state)
{
    (void)state;
    setting_t *setting = start(0, 0);
    assert_true(ps_io_memory(2, 3, JOB_BYTES) > 3 * JOB_BYTES);
    assert_true(ps_io_memory(2, 3, JOB_BYTES) < 3 * JOB_BYTES + 40000);
    psc_error_t error = PSC_ERROR_INIT;
    ps_io_options_t options = options_of(setting);
    psc_status_t st = PSC_NO_MEMORY;
    unsigned long n = 0;
    while (st != PSC_OK) {
        ps_io_t *io;
        psc_alloc_fail_at(++n);
        st = ps_io_start(&options, &io, &error);
        psc_alloc_fail_at(0);
        if (st == PSC_OK)
            ps_io_stop(io);
        else
            assert_int_equal(st, PSC_NO_MEMORY);
    }
    assert_true(n > 10);
    stop(setting);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_read_after_a_write_sees_it_and_jobs_return_in_order),
        cmocka_unit_test(records_on_disk_are_present_clean_and_not_pinned),
        cmocka_unit_test(many_rows_are_read_in_one_job),
        cmocka_unit_test(jobs_linked_by_more_are_read_as_one),
        cmocka_unit_test(reads_pass_writes_that_have_to_wait_and_see_what_is_in_them),
        cmocka_unit_test(jobs_are_limited_in_number_and_size),
        cmocka_unit_test(after_a_failure_nothing_is_done_any_more),
        cmocka_unit_test(a_sync_comes_after_what_was_written),
        cmocka_unit_test(wakes_the_owner_once_for_each_job),
        cmocka_unit_test(memory_is_what_was_announced_and_a_failed_start_leaks_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
