/* Memory of messages that another process reads: by a second mapping in this process, which is the
 * same to it. */
#include "common/alloc.h"
#include "common/rng.h"
#include "proto/message_memory.h"

#include "tests/support/cmocka.h"
#include "tests/support/test_seed.h"

#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct fixture {
    psp_pool_t *owner, *reader;
    psp_memory_t *memory; /* the owner's */
    psp_memory_map_t *map;
    psc_error_t error;
} fixture_t;

static void start(fixture_t *f)
{
    *f = (fixture_t){.error = PSC_ERROR_INIT};
    assert_int_equal(psp_pool_create(1 << 20, &f->owner, &f->error), PSC_OK);
    assert_int_equal(psp_pool_create(1 << 20, &f->reader, &f->error), PSC_OK);
    assert_int_equal(psp_memory_create(&f->memory, &f->error), PSC_OK);
    psp_pool_use(f->owner, f->memory);
    const psp_memory_where_t where = psp_memory_where(f->memory);
    assert_int_equal(psp_memory_open(&where, &f->map, &f->error), PSC_OK);
}

static void finish(fixture_t *f)
{
    assert_int_equal(psp_pool_bytes_out(f->owner), 0);
    assert_int_equal(psp_pool_bytes_out(f->reader), 0);
    psp_memory_close(f->map);
    psp_pool_destroy(f->owner);
    psp_pool_destroy(f->reader);
}

static psp_buffer_t *get(fixture_t *f, size_t size)
{
    psp_buffer_t *buffer;
    assert_int_equal(psp_buffer_get(f->owner, size, &buffer, &f->error), PSC_OK);
    assert_true(buffer->capacity >= size);
    assert_int_equal((uintptr_t)buffer->data % 64, 0);
    assert_null(buffer->lender);
    buffer->size = size;
    return buffer;
}

static psp_buffer_t *borrow(fixture_t *f, psp_memory_place_t place)
{
    psp_buffer_t *buffer;
    assert_int_equal(psp_memory_borrow(f->map, f->reader, &place, &buffer, &f->error), PSC_OK);
    return buffer;
}

static void a_reader_sees_a_message_until_it_is_put_back(void **state)
{
    (void)state;
    fixture_t f;
    start(&f);
    psp_buffer_t *buffer = get(&f, 100000);
    assert_true(psp_memory_owns(f.memory, buffer));
    memset(buffer->data, 7, buffer->size);
    psp_buffer_t *lent = borrow(&f, psp_memory_lend(f.memory, buffer));
    assert_false(psp_memory_is_back(f.memory, buffer));
    assert_int_equal(lent->size, 100000);
    assert_int_equal(lent->data[0], 7);
    assert_int_equal(lent->data[99999], 7);
    assert_false(psp_memory_owns(f.memory, lent));
    psp_buffer_put(lent);
    assert_true(psp_memory_is_back(f.memory, buffer));
    psp_buffer_put(buffer);
    finish(&f);
}

static void a_borrowed_buffer_can_be_given_back_and_stay(void **state)
{
    (void)state;
    fixture_t f;
    start(&f);
    psp_buffer_t *buffer = get(&f, 5000);
    psp_buffer_t *lent = borrow(&f, psp_memory_lend(f.memory, buffer));
    psp_buffer_give_back(lent);
    assert_true(psp_memory_is_back(f.memory, buffer));
    assert_int_equal(lent->size, 0);
    memset(lent->data, 1, lent->capacity);
    psp_buffer_give_back(lent);
    psp_buffer_put(lent);
    psp_buffer_give_back(buffer); /* not borrowed: nothing happens */
    assert_int_equal(buffer->size, 5000);
    psp_buffer_put(buffer);
    finish(&f);
}

static void small_buffers_and_those_without_room_are_the_pools_own(void **state)
{
    (void)state;
    fixture_t f;
    start(&f);
    psp_buffer_t *small = get(&f, PSP_MEMORY_LEAST_BYTES);
    assert_false(psp_memory_owns(f.memory, small));
    psp_buffer_t *all = get(&f, PSP_MEMORY_BYTES);
    assert_true(psp_memory_owns(f.memory, all));
    psp_buffer_t *more = get(&f, PSP_MEMORY_LEAST_BYTES + 1);
    assert_false(psp_memory_owns(f.memory, more));
    psp_buffer_put(all);
    psp_buffer_put(more);
    more = get(&f, PSP_MEMORY_LEAST_BYTES + 1);
    assert_true(psp_memory_owns(f.memory, more));
    psp_buffer_put(more);
    psp_buffer_put(small);
    psp_buffer_t *larger = get(&f, PSP_MEMORY_BYTES + 1);
    assert_false(psp_memory_owns(f.memory, larger));
    psp_buffer_put(larger);
    finish(&f);
}

/* Buffers of random sizes come and go; each holds its own bytes, so that two at one place show. */
static void no_two_buffers_overlap(void **state)
{
    (void)state;
    enum { HELD = 40, STEPS = 20000 };
    fixture_t f;
    test_random_t random = test_random_start();
    psp_buffer_t *held[HELD] = {NULL};
    size_t n_shared = 0, n_own = 0;
    start(&f);
    for (size_t step = 0; step < STEPS; step++) {
        const size_t at = test_below(&random, HELD);
        psp_buffer_t *buffer = held[at];
        if (buffer != NULL) {
            assert_int_equal(buffer->data[0], at);
            assert_int_equal(buffer->data[buffer->size - 1], at);
            psp_buffer_put(buffer);
            held[at] = NULL;
            continue;
        }
        buffer = held[at] = get(&f, 1 + test_below(&random, (size_t)1 << (5 + step % 16)));
        buffer->data[0] = buffer->data[buffer->size - 1] = (uint8_t)at;
        n_shared += psp_memory_owns(f.memory, buffer);
        n_own += !psp_memory_owns(f.memory, buffer) && buffer->size > PSP_MEMORY_LEAST_BYTES;
    }
    assert_true(n_shared > 1000);
    for (size_t at = 0; at < HELD; at++)
        psp_buffer_put(held[at]);
    psp_buffer_t *all = get(&f, PSP_MEMORY_BYTES); /* nothing was left behind */
    assert_true(psp_memory_owns(f.memory, all));
    psp_buffer_put(all);
    print_message("%zu from the memory, %zu beside it\n", n_shared, n_own);
    finish(&f);
}

static void places_where_no_message_can_be_are_refused(void **state)
{
    (void)state;
    fixture_t f;
    start(&f);
    static const psp_memory_place_t places[] = {{UINT32_MAX, 1},
                                                {PSP_MEMORY_BYTES / 8192, 1},
                                                {PSP_MEMORY_BYTES / 8192 - 1, 8193},
                                                {1, PSP_MEMORY_BYTES},
                                                {0, UINT32_MAX}};
    psp_buffer_t *buffer;
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++)
        assert_int_equal(psp_memory_borrow(f.map, f.reader, &places[i], &buffer, &f.error),
                         PSC_PROTOCOL);
    finish(&f);
}

static void other_hosts_and_other_files_are_not_mapped(void **state)
{
    (void)state;
    fixture_t f;
    psp_memory_map_t *map;
    start(&f);
    psp_memory_where_t where = psp_memory_where(f.memory);
    where.host++;
    assert_int_equal(psp_memory_open(&where, &map, &f.error), PSC_MISMATCH);
    where.host = 0;
    assert_int_equal(psp_memory_open(&where, &map, &f.error), PSC_MISMATCH);
    where = psp_memory_where(f.memory);
    where.key++;
    assert_int_equal(psp_memory_open(&where, &map, &f.error), PSC_NOT_FOUND);
    where = psp_memory_where(f.memory);
    memset(where.path, 'x', sizeof where.path);
    assert_int_equal(psp_memory_open(&where, &map, &f.error), PSC_MISMATCH);
    psc_memory_file_t file; /* of another size */
    assert_int_equal(psc_memory_file_create("messages", 8192, &file, &f.error), PSC_OK);
    where = psp_memory_where(f.memory);
    where.key = file.key;
    memcpy(where.path, file.path, sizeof where.path);
    assert_int_equal(psp_memory_open(&where, &map, &f.error), PSC_MISMATCH);
    (void)close(file.fd);
    finish(&f);
}

/* Writes where a message lies, waits, and is killed. */
static pid_t start_owner(int to_test[2])
{
    assert_int_equal(pipe(to_test), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid != 0)
        return pid;
    fixture_t f;
    start(&f);
    psp_buffer_t *buffer = get(&f, 10000);
    memset(buffer->data, 9, 10000);
    const psp_memory_where_t where = psp_memory_where(f.memory);
    const psp_memory_place_t place = psp_memory_lend(f.memory, buffer);
    if (write(to_test[1], &where, sizeof where) < 0 || write(to_test[1], &place, sizeof place) < 0)
        _exit(1);
    for (;;)
        (void)pause();
}

static void what_is_lent_can_be_read_when_its_owner_is_killed(void **state)
{
    (void)state;
    int pipes[2];
    psp_memory_where_t where;
    psp_memory_place_t place;
    pid_t pid = start_owner(pipes);
    assert_int_equal(read(pipes[0], &where, sizeof where), sizeof where);
    assert_int_equal(read(pipes[0], &place, sizeof place), sizeof place);
    fixture_t f;
    start(&f);
    psp_memory_map_t *map;
    psp_buffer_t *buffer;
    assert_int_equal(psp_memory_open(&where, &map, &f.error), PSC_OK);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_int_equal(psp_memory_borrow(map, f.reader, &place, &buffer, &f.error), PSC_OK);
    assert_int_equal(buffer->data[9999], 9);
    psp_buffer_put(buffer);
    psp_memory_close(map);
    (void)close(pipes[0]);
    (void)close(pipes[1]);
    finish(&f);
}

static void what_is_abandoned_stays_mapped(void **state)
{
    (void)state;
    fixture_t f;
    start(&f);
    psp_buffer_t *buffer = get(&f, 10000);
    uint8_t *data = buffer->data;
    psp_buffer_abandon(buffer);
    finish(&f);
    data[9999] = 1;
}

static void failed_allocations_are_reported(void **state)
{
    (void)state;
    fixture_t f;
    start(&f);
    psp_memory_t *memory;
    psp_memory_map_t *map;
    const psp_memory_where_t where = psp_memory_where(f.memory);
    psc_alloc_fail_at(1);
    assert_int_equal(psp_memory_create(&memory, &f.error), PSC_NO_MEMORY);
    psc_alloc_fail_at(1);
    assert_int_equal(psp_memory_open(&where, &map, &f.error), PSC_NO_MEMORY);
    psc_alloc_fail_at(0);
    finish(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_reader_sees_a_message_until_it_is_put_back),
        cmocka_unit_test(a_borrowed_buffer_can_be_given_back_and_stay),
        cmocka_unit_test(small_buffers_and_those_without_room_are_the_pools_own),
        cmocka_unit_test(no_two_buffers_overlap),
        cmocka_unit_test(places_where_no_message_can_be_are_refused),
        cmocka_unit_test(other_hosts_and_other_files_are_not_mapped),
        cmocka_unit_test(what_is_lent_can_be_read_when_its_owner_is_killed),
        cmocka_unit_test(what_is_abandoned_stays_mapped),
        cmocka_unit_test(failed_allocations_are_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
