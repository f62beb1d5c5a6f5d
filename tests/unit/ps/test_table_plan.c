/*
 * Plans against stores: rows are pushed into real ones until their memory is full, and closed ones
 * are weighed on disk. And embps plan, which prints plans.
 */
#include "ps/table_plan.h"

#include "common/alloc.h"
#include "common/rng.h"
#include "common/slots.h"
#include "ps/table/growth.h"
#include "ps/table/schema.h"
#include "tests/support/cmocka.h"
#include "tests/support/scratch.h"
#include "tests/support/store_fixture.h"
#include "worker/tool/commands.h"

#include <dirent.h>
#include <jansson.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MIB ((uint64_t)1 << 20)

static ps_table_plan_t plan_of(const ps_table_plan_request_t *request)
{
    ps_table_plan_t plan;
    psc_error_t error = PSC_ERROR_INIT;
    psc_status_t st = ps_table_plan(request, &plan, &error);
    assert_string_equal(error.message, "");
    assert_int_equal(st, PSC_OK);
    return plan;
}

static size_t row_bytes_of(const ps_table_plan_t *plan)
{
    return plan->weight_bytes + plan->state_bytes;
}

static ps_store_t *open_store(uint64_t memory_bytes, ps_cold_t *cold)
{
    ps_store_options_t options = {.memory_bytes = memory_bytes, .cold = cold};
    ps_store_t *store = NULL;
    assert_int_equal(ps_store_open(&options, &store, NULL), PSC_OK);
    return store;
}

/* Makes rows first to first + n - 1; their values are random bytes. */
static void make_rows(ps_store_t *store, size_t row_bytes, uint64_t first, size_t n)
{
    static test_request_t request;
    psc_error_t error = PSC_ERROR_INIT;
    for (size_t i = 0; i < n; i++)
        request.ids[i] = first + i;
    test_request_set(&request, 1, PS_BATCH_WRITE, n);
    psc_status_t st;
    bool progress;
    while ((st = ps_store_prepare(store, &request.batch, &error)) == PSC_BUSY)
        assert_int_equal(ps_store_poll(store, &progress, &error), PSC_OK);
    assert_int_equal(st, PSC_OK);
    while (!ps_store_ready(store, &request.batch))
        assert_int_equal(ps_store_poll(store, &progress, &error), PSC_OK);
    for (size_t i = 0; i < n; i++) {
        ps_row_header_t *row = ps_store_row(ps_store_base(store), request.places[i]);
        if (row->state == PS_ROW_ABSENT)
            ps_store_mark_new(store, row);
        for (size_t c = 0; c < row_bytes / sizeof(float); c++)
            ps_row_floats(row)[c] = (float)psc_rng_at(first + i, c);
        row->version++;
        ps_store_mark_dirty(row);
    }
    ps_store_release(store, &request.batch);
}

static void memory_is_what_a_store_counts(void **state)
{
    (void)state;
    static const ps_table_plan_request_t requests[] = {
        {.dim = 1, .optimizer = "sgd", .precision = "f32", .memory_bytes = 8 * MIB},
        {.dim = 50, .optimizer = "adagrad", .precision = "bf16", .memory_bytes = 8 * MIB},
        {.dim = 300, .optimizer = "adam", .precision = "f16", .memory_bytes = 13 * MIB},
        {.dim = 4001, .optimizer = "ftrl", .precision = "f32", .memory_bytes = 40 * MIB},
    };
    for (size_t k = 0; k < sizeof requests / sizeof requests[0]; k++) {
        ps_table_plan_request_t request = requests[k];
        request.rows = 1000000;
        request.n_servers = 1;
        request.state_precision = "f32";
        ps_table_plan_t plan = plan_of(&request);
        ps_store_t *store = open_store(request.memory_bytes, test_cold_memory(0, 0));
        test_table_add(store, 1, row_bytes_of(&plan));
        ps_store_counters_t counters;
        uint64_t n = 0;
        for (size_t batch = 50; n < plan.server_hot_rows; n += batch) {
            if (batch > plan.server_hot_rows - n)
                batch = (size_t)(plan.server_hot_rows - n);
            make_rows(store, row_bytes_of(&plan), n, batch);
        }
        ps_store_counters(store, &counters);
        assert_int_equal(counters.bytes_budget, plan.store.rows_bytes);
        assert_int_equal(counters.rows_hot, plan.server_hot_rows);
        assert_int_equal(counters.evicted, 0);
        assert_true(counters.bytes_hot <= counters.bytes_budget);
        assert_true(fabs((double)counters.bytes_hot / (double)n - plan.row_memory_bytes) < 1e-6);
        make_rows(store, row_bytes_of(&plan), n, 1);
        ps_store_counters(store, &counters);
        assert_int_equal(counters.evicted, 1);
        test_store_close(store);
    }
}

/* Rows that come late or expire: their counts are taken off a store's budget, on every server. */
static void what_admission_and_expiry_take_is_in_the_plan(void **state)
{
    (void)state;
    static const ps_table_plan_request_t requests[] = {
        {.admit_after = 3},
        {.admit_after = 200, .admit_shared = true, .admit_counters = 64, .n_servers = 3},
        {.expire_after = 1000, .n_servers = 2},
        {.expire_after = 1000, .expire_floor = 5},
        {.expire_rare_after = 7, .expire_rare_below = 2, .expire_floor = 1, .admit_after = 2},
    };
    for (size_t k = 0; k < sizeof requests / sizeof requests[0]; k++) {
        ps_table_plan_request_t request = requests[k];
        request.rows = 1000000;
        request.dim = 16;
        request.optimizer = "adagrad";
        request.precision = request.state_precision = "f32";
        request.n_servers = request.n_servers != 0 ? request.n_servers : 1;
        request.memory_bytes = 32 * MIB;
        ps_table_plan_t plan = plan_of(&request);
        assert_true(plan.server_growth_bytes != 0);
        psp_open_table_t open = {.name = "grows",
                                 .dim = request.dim,
                                 .init = "zeros",
                                 .optimizer = "adagrad",
                                 .table = 1,
                                 .admit_after = request.admit_after,
                                 .admit_counters = request.admit_counters,
                                 .admit_shared = request.admit_shared,
                                 .expire_after = request.expire_after,
                                 .expire_rare_after = request.expire_rare_after,
                                 .expire_rare_below = request.expire_rare_below,
                                 .expire_floor = request.expire_floor};
        static ps_table_t table;
        assert_int_equal(ps_table_define(&open, &table, NULL), PSC_OK);
        table.number = 1;
        psc_slot_map_t map;
        assert_int_equal(psc_slot_map_init(&map, request.n_servers, NULL), PSC_OK);
        for (uint64_t memory = plan.smallest_memory_bytes; memory <= 32 * MIB; memory += 8 * MIB) {
            ps_store_t *store = open_store(memory, test_cold_memory(0, 0));
            ps_growth_t *growth = NULL;
            assert_int_equal(ps_growth_create(&table, &map, 0, 0, store, &growth, NULL), PSC_OK);
            test_table_add(store, 1, ps_table_row_bytes(&table));
            request.memory_bytes = memory;
            plan = plan_of(&request);
            ps_store_counters_t counters;
            ps_store_counters(store, &counters);
            assert_int_equal(counters.bytes_budget, plan.store.rows_bytes);
            assert_int_equal(growth->memory_bytes, plan.server_growth_bytes);
            assert_int_equal(growth->companion.number != 0, plan.server_shared_rows != 0);
            ps_growth_destroy(growth, store);
            test_store_close(store);
        }
    }
}

static void a_table_with_shared_rows_has_one_for_each_slot_beside_its_own(void **state)
{
    (void)state;
    ps_table_plan_request_t request = {.rows = 100000,
                                       .dim = 8,
                                       .optimizer = "sgd",
                                       .precision = "f32",
                                       .state_precision = "f32",
                                       .memory_bytes = 256 * MIB,
                                       .n_servers = 5,
                                       .admit_after = 2};
    ps_table_plan_t without = plan_of(&request);
    request.admit_shared = true;
    ps_table_plan_t with = plan_of(&request);
    assert_int_equal(without.server_shared_rows, 0);
    assert_int_equal(with.server_shared_rows, (PSC_SLOT_COUNT + 4) / 5);
    assert_int_equal(with.server_rows, without.server_rows);
    assert_int_equal(with.server_hot_rows, with.server_rows + with.server_shared_rows);
    assert_int_equal(with.server_live_disk_bytes - without.server_live_disk_bytes,
                     with.server_shared_rows * with.store.disk_row_bytes);
}

static void the_smallest_memory_works_and_a_smaller_one_does_not(void **state)
{
    (void)state;
    static const uint32_t dims[] = {1, 900, 4096, 16384, 65536};
    for (size_t k = 0; k < sizeof dims / sizeof dims[0]; k++) {
        ps_table_plan_request_t request = {.rows = 10000,
                                           .dim = dims[k],
                                           .optimizer = "rowwise_adagrad",
                                           .precision = "f32",
                                           .state_precision = "f32",
                                           .memory_bytes = 4096 * MIB,
                                           .n_servers = 1};
        ps_table_plan_t plan = plan_of(&request);
        uint64_t smallest = plan.smallest_memory_bytes;
        for (uint64_t memory = smallest; memory >= smallest - MIB && memory >= 8 * MIB;
             memory -= MIB) {
            ps_cold_t *cold = test_cold_memory(0, 0);
            ps_store_t *store = open_store(memory, cold);
            psc_status_t st = ps_store_table_add(store, 1, row_bytes_of(&plan), NULL);
            assert_int_equal(st, memory == smallest ? PSC_OK : PSC_INVALID_ARGUMENT);
            test_store_close(store);
        }
        request.memory_bytes = plan.all_hot_memory_bytes;
        assert_int_equal(plan_of(&request).server_hot_rows, request.rows);
        request.memory_bytes -= MIB;
        if (request.memory_bytes >= smallest)
            assert_true(plan_of(&request).server_hot_rows < request.rows);
        request.memory_bytes = smallest - MIB;
        if (request.memory_bytes >= 8 * MIB) {
            psc_error_t error = PSC_ERROR_INIT;
            assert_int_equal(ps_table_plan(&request, &plan, &error), PSC_INVALID_ARGUMENT);
            assert_non_null(strstr(error.message, "the smallest that works is"));
        }
    }
}

/* Bytes of all files, or of those that hold rows. */
static uint64_t weigh(const char *folder, bool tables_only)
{
    uint64_t bytes = 0;
    DIR *entries = opendir(folder);
    assert_non_null(entries);
    for (struct dirent *entry; (entry = readdir(entries)) != NULL;) {
        char path[512];
        struct stat file;
        (void)test_path(path, sizeof path, folder, entry->d_name);
        bool counts = !tables_only || strstr(entry->d_name, ".sst") != NULL;
        if (counts && stat(path, &file) == 0 && S_ISREG(file.st_mode))
            bytes += (uint64_t)file.st_size;
    }
    (void)closedir(entries);
    return bytes;
}

static void disk_is_near_what_rocksdb_takes(void **state)
{
    (void)state;
    static const ps_table_plan_request_t requests[] = {
        {.dim = 4, .optimizer = "sgd", .precision = "f32", .rows = 100000},
        {.dim = 64, .optimizer = "adam", .precision = "bf16", .rows = 12000},
        {.dim = 2048, .optimizer = "rowwise_adagrad", .precision = "f32", .rows = 1500},
    };
    for (size_t k = 0; k < sizeof requests / sizeof requests[0]; k++) {
        ps_table_plan_request_t request = requests[k];
        request.memory_bytes = 8 * MIB;
        request.n_servers = 1;
        request.state_precision = "f32";
        ps_table_plan_t plan = plan_of(&request);
        char *folder = test_scratch_create();
        ps_cold_t *cold = NULL;
        uint64_t memory = ps_cold_rocks_memory(request.memory_bytes);
        assert_int_equal(ps_cold_rocks_open(folder, memory, &cold, NULL), PSC_OK);
        ps_store_t *store = open_store(request.memory_bytes, cold);
        test_table_add(store, 1, row_bytes_of(&plan));
        for (uint64_t n = 0; n < request.rows; n += 50)
            make_rows(store, row_bytes_of(&plan), n, 50);
        test_store_close(store);
        /* What is still in a log is written as a table when the tier is opened again. */
        assert_int_equal(ps_cold_rocks_open(folder, memory, &cold, NULL), PSC_OK);
        cold->ops->destroy(cold);
        double ratio = (double)weigh(folder, true) / (double)plan.server_live_disk_bytes;
        print_message("%zu bytes a row: tables take %.3f of the plan\n", row_bytes_of(&plan),
                      ratio);
        assert_true(ratio > 0.8 && ratio < 1.05);
        assert_true(weigh(folder, false) < plan.server_disk_bytes);
        test_scratch_destroy(folder);
    }
}

/* Runs embps plan; what it prints goes to text. */
static psc_status_t run_tool(const char *line, char *text, size_t size, psc_error_t *error)
{
    char words[256], *argv[24], *rest = NULL;
    int argc = 0;
    (void)snprintf(words, sizeof words, "plan %s", line);
    for (char *word = strtok_r(words, " ", &rest); word != NULL; word = strtok_r(NULL, " ", &rest))
        argv[argc++] = word;
    argv[argc] = NULL;
    FILE *file = tmpfile();
    assert_non_null(file);
    (void)fflush(stdout);
    int saved = dup(STDOUT_FILENO);
    assert_true(saved >= 0 && dup2(fileno(file), STDOUT_FILENO) >= 0);
    psc_status_t st = psw_tool_plan(argc, argv, error);
    (void)fflush(stdout);
    assert_true(dup2(saved, STDOUT_FILENO) >= 0);
    (void)close(saved);
    rewind(file);
    text[fread(text, 1, size - 1, file)] = '\0';
    (void)fclose(file);
    return st;
}

#define GROWS " --admit-after 3 --admit-shared --expire-after 100 --expire-floor 10"
#define EXAMPLE "--rows 50M --dim 4096 --optimizer adam --precision bf16 --memory 600M --servers 4"

static void the_tool_prints_the_plan_as_a_table_and_as_json(void **state)
{
    (void)state;
    static char text[8192];
    ps_table_plan_request_t request = {.rows = 50000000,
                                       .dim = 4096,
                                       .optimizer = "adam",
                                       .precision = "bf16",
                                       .state_precision = "f32",
                                       .memory_bytes = 600 * MIB,
                                       .n_servers = 4};
    ps_table_plan_t plan = plan_of(&request);
    assert_int_equal(plan.weight_bytes, 2 * 4096);
    assert_int_equal(plan.state_bytes, 2 * 4 * 4096);
    assert_int_equal(plan.server_rows, 12500000);
    assert_int_equal(run_tool(EXAMPLE, text, sizeof text, NULL), PSC_OK);
    assert_non_null(strstr(text, "50,000,000 rows of 4096 numbers"));
    assert_non_null(strstr(text, "32,768"));
    assert_non_null(strstr(text, "600M"));
    assert_int_equal(run_tool(EXAMPLE " --json", text, sizeof text, NULL), PSC_OK);
    json_t *value = json_loads(text, 0, NULL);
    const json_t *server = json_object_get(value, "server"), *row = json_object_get(value, "row");
    assert_int_equal(json_integer_value(json_object_get(server, "rows_in_memory")),
                     plan.server_hot_rows);
    assert_int_equal(json_integer_value(json_object_get(server, "disk_bytes")),
                     plan.server_disk_bytes);
    assert_int_equal(json_integer_value(json_object_get(server, "smallest_memory_bytes")),
                     plan.smallest_memory_bytes);
    assert_int_equal(json_integer_value(json_object_get(row, "record_bytes")),
                     plan.store.record_bytes);
    assert_true(
        fabs(json_real_value(json_object_get(row, "memory_bytes")) - plan.row_memory_bytes) < 0.1);
    json_decref(value);
    assert_null(strstr(text, "shared rows"));
    assert_int_equal(run_tool("--rows 1M --dim 8" GROWS, text, sizeof text, NULL), PSC_OK);
    assert_non_null(strstr(text, "shared rows beside them"));
    assert_non_null(strstr(text, "of it for counts"));
}

static void what_cannot_be_planned_is_said(void **state)
{
    (void)state;
    static const struct {
        const char *line, *said;
    } cases[] = {
        {"--rows 1X --dim 4", "--rows 1X is no number of rows"},
        {"--rows -1 --dim 4", "--rows -1 is no number of rows"},
        {"--rows 99999999999999G --dim 4", "is no number of rows"},
        {"--rows 2000G --dim 4", "more than can be planned for"},
        {"--rows 10 --dim 4 --optimizer no", "there is no optimizer \"no\""},
        {"--rows 10 --dim 4 --state-precision bf16", "has no moments"},
        {"--rows 10 --dim 65536 --memory 8M", "the smallest that works is"},
        {"--rows 10 --dim 4 --admit-after 2 --memory 8M", "the smallest that works is"},
        {"--rows 10 --dim 4 --admit-after 2 --admit-counters 5", "admit_counters is 5"},
    };
    char text[256];
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        psc_error_t error = PSC_ERROR_INIT;
        assert_int_equal(run_tool(cases[k].line, text, sizeof text, &error), PSC_INVALID_ARGUMENT);
        assert_non_null(strstr(error.message, cases[k].said));
    }
}

static void no_rows_and_the_most_rows_can_be_planned(void **state)
{
    (void)state;
    ps_table_plan_request_t request = {.dim = 65536,
                                       .optimizer = "adam",
                                       .precision = "f32",
                                       .state_precision = "f32",
                                       .memory_bytes = (uint64_t)1 << 46,
                                       .n_servers = 1};
    ps_table_plan_t plan = plan_of(&request);
    assert_int_equal(plan.server_hot_rows, 0);
    assert_int_equal(plan.server_live_disk_bytes, 0);
    request.rows = (uint64_t)1 << 40;
    plan = plan_of(&request);
    assert_int_equal(plan.all_hot_memory_bytes, 0);
    assert_true(plan.server_live_disk_bytes > (uint64_t)1 << 59);
    assert_true(plan.server_disk_bytes > 2 * plan.server_live_disk_bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_is_what_a_store_counts),
        cmocka_unit_test(what_admission_and_expiry_take_is_in_the_plan),
        cmocka_unit_test(a_table_with_shared_rows_has_one_for_each_slot_beside_its_own),
        cmocka_unit_test(the_smallest_memory_works_and_a_smaller_one_does_not),
        cmocka_unit_test(disk_is_near_what_rocksdb_takes),
        cmocka_unit_test(the_tool_prints_the_plan_as_a_table_and_as_json),
        cmocka_unit_test(what_cannot_be_planned_is_said),
        cmocka_unit_test(no_rows_and_the_most_rows_can_be_planned),
    };
    return cmocka_run_group_tests(tests, test_store_setup, test_store_teardown);
}
