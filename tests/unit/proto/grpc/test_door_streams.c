/*
 * The door's own services that are streams: reflection and Health.Watch. What reflection says is
 * compared with protobuf-c's descriptors; tests/cluster/test_door_python.sh asks with a client that
 * protobuf made, and compares whole files.
 */
#include "proto/grpc/grpc_reflection.h"
#include "proto/grpc/grpc_server.h"

#include "proto/embps.pb-c.h"
#include "tests/support/cmocka.h"
#include "tests/support/grpc_stream.h"
#include "tests/support/test_seed.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REFLECTION "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
#define REFLECTION_ALPHA "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
#define WATCH "/grpc.health.v1.Health/Watch"
#define EMBPS_FILE "proto/embps.proto"

/* Fields of a question, and of an answer. */
enum { BY_FILENAME = 3, CONTAINING_SYMBOL, CONTAINING_EXTENSION, NUMBERS, LIST_SERVICES };
enum { FILE_ANSWER = 4, NUMBERS_ANSWER, SERVICES_ANSWER, ERROR_ANSWER };

/* A door without an owner: nobody takes messages of embps. */
typedef struct open_door {
    psp_pool_t *pool;
    psp_transport_t *door;
    char address[64];
} open_door_t;

static void open_door(open_door_t *opened, uint32_t max_streams)
{
    psc_error_t error = PSC_ERROR_INIT;
    psp_door_options_t options = PSP_DOOR_OPTIONS_DEFAULT;
    options.listen = "127.0.0.1:0";
    options.max_streams = max_streams;
    assert_int_equal(psp_pool_create((size_t)4 << 20, &opened->pool, NULL), PSC_OK);
    if (psp_door_open(&options, opened->pool, &opened->door, &error) != PSC_OK)
        fail_msg("%s", error.message);
    (void)snprintf(opened->address, sizeof opened->address, "%s", psp_door_address(opened->door));
}

static void close_door(open_door_t *opened)
{
    psp_transport_destroy(opened->door);
    assert_int_equal(psp_pool_bytes_out(opened->pool), 0);
    psp_pool_destroy(opened->pool);
}

/* A request: host "h", and one field. Returns its size. */
static size_t make_question(uint32_t field, const char *text, uint8_t *out)
{
    const size_t n = strlen(text);
    assert_true(n < 128);
    const uint8_t head[5] = {1 << 3 | 2, 1, 'h', (uint8_t)(field << 3 | 2), (uint8_t)n};
    memcpy(out, head, sizeof head);
    for (size_t i = 0; i < n; i++)
        out[sizeof head + i] = (uint8_t)text[i];
    return sizeof head + n;
}

static uint64_t read_varint(const uint8_t **at)
{
    uint64_t value = 0;
    for (unsigned int shift = 0;; shift += 7) {
        const uint8_t byte = *(*at)++;
        value |= (uint64_t)(byte & 127) << shift;
        if (byte < 128)
            return value;
    }
}

/* The answer repeats host and question; returns the field behind them, and its bytes. */
static uint32_t read_answer(const grpc_stream_t *stream, const uint8_t *asked, size_t asked_size,
                            const uint8_t **bytes_out, size_t *size_out)
{
    const uint8_t *at = stream->heard, *end = stream->heard + stream->heard_size;
    assert_true(stream->heard_size > asked_size + 6);
    assert_memory_equal(at, "\x0a\x01h\x12", 4);
    at += 4;
    assert_int_equal(read_varint(&at), asked_size);
    assert_memory_equal(at, asked, asked_size);
    at += asked_size;
    const uint8_t tag = *at++;
    assert_int_equal(tag & 7, 2);
    *size_out = read_varint(&at);
    *bytes_out = at;
    assert_ptr_equal(at + *size_out, end);
    return tag >> 3;
}

static bool contains(const uint8_t *bytes, size_t size, const char *text)
{
    return memmem(bytes, size, text, strlen(text)) != NULL;
}

/* Asks, and checks what kind of answer it is, and that it contains a text. */
static void ask(grpc_stream_t *stream, uint32_t field, const char *text, uint32_t expected,
                const char *within)
{
    uint8_t asked[160];
    const uint8_t *bytes;
    size_t size;
    const size_t n = make_question(field, text, asked);
    assert_true(grpc_stream_say(stream, asked, n));
    assert_true(grpc_stream_hear(stream));
    if (read_answer(stream, asked, n, &bytes, &size) != expected)
        fail_msg("%u \"%s\" is answered by another kind than %u", field, text, expected);
    if (!contains(bytes, size, within))
        fail_msg("the answer to %u \"%s\" is without %s", field, text, within);
    if (expected == ERROR_ANSWER)
        assert_memory_equal(bytes, "\x08\x05\x12", 3); /* NOT_FOUND, and a text */
}

static void services_and_their_files_are_told(void **state)
{
    (void)state;
    static const char *const methods[] = {REFLECTION, REFLECTION_ALPHA};
    static const struct {
        uint32_t field;
        const char *text;
        uint32_t answer;
        const char *within;
    } cases[] = {
        {LIST_SERVICES, "", SERVICES_ANSWER, "embps.v1.Embps"},
        {LIST_SERVICES, "*", SERVICES_ANSWER, "grpc.health.v1.Health"},
        {LIST_SERVICES, "", SERVICES_ANSWER, "grpc.reflection.v1.ServerReflection"},
        {LIST_SERVICES, "", SERVICES_ANSWER, "grpc.reflection.v1alpha.ServerReflection"},
        {BY_FILENAME, EMBPS_FILE, FILE_ANSWER, EMBPS_FILE},
        {BY_FILENAME, "grpc/health/v1/health.proto", FILE_ANSWER, "HealthCheckRequest"},
        {BY_FILENAME, "embps.proto", ERROR_ANSWER, "no file"},
        {BY_FILENAME, "", ERROR_ANSWER, "no file"},
        {CONTAINING_SYMBOL, "embps.v1.Embps", FILE_ANSWER, EMBPS_FILE},
        {CONTAINING_SYMBOL, "embps.v1.Embps.Pull", FILE_ANSWER, EMBPS_FILE},
        {CONTAINING_SYMBOL, "embps.v1.PullRequest", FILE_ANSWER, EMBPS_FILE},
        {CONTAINING_SYMBOL, "embps.v1.PullRequest.ids", FILE_ANSWER, EMBPS_FILE},
        {CONTAINING_SYMBOL, "grpc.health.v1.HealthCheckResponse.ServingStatus", FILE_ANSWER,
         "health.proto"},
        {CONTAINING_SYMBOL, "grpc.health.v1.HealthCheckResponse.NOT_SERVING", FILE_ANSWER,
         "health.proto"},
        {CONTAINING_SYMBOL, "grpc.reflection.v1alpha.ServiceResponse", FILE_ANSWER,
         "grpc/reflection/v1alpha/reflection.proto"},
        {CONTAINING_SYMBOL, "grpc.reflection.v1.ServerReflectionRequest.message_request",
         FILE_ANSWER, "grpc/reflection/v1/reflection.proto"},
        {CONTAINING_SYMBOL, "embps.v1", ERROR_ANSWER, "no file"},
        {CONTAINING_SYMBOL, "embps.v1.", ERROR_ANSWER, "no file"},
        {CONTAINING_SYMBOL, "embps.v1.Embps.", ERROR_ANSWER, "no file"},
        {CONTAINING_SYMBOL, "embps.v1.Embps.Pul", ERROR_ANSWER, "no file"},
        {CONTAINING_SYMBOL, "embps.v1.Embps.Pull.x", ERROR_ANSWER, "no file"},
        {CONTAINING_SYMBOL, "embps.v1.Emb", ERROR_ANSWER, "no file"},
        {CONTAINING_SYMBOL, "Embps", ERROR_ANSWER, "no file"},
        {CONTAINING_SYMBOL, ".", ERROR_ANSWER, "no file"},
        {CONTAINING_SYMBOL, "", ERROR_ANSWER, "no file"},
        {NUMBERS, "embps.v1.PullRequest", NUMBERS_ANSWER, "embps.v1.PullRequest"},
        {NUMBERS, "embps.v1.Embps", ERROR_ANSWER, "no message"},
        {CONTAINING_EXTENSION, "\x0a\x01x", ERROR_ANSWER, "no message here has extensions"},
    };
    open_door_t opened;
    grpc_caller_t caller;
    open_door(&opened, 8);
    grpc_caller_open(&caller, opened.address);
    for (size_t m = 0; m < sizeof methods / sizeof methods[0]; m++) {
        grpc_stream_t stream;
        grpc_stream_open(&stream, &caller, methods[m]);
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
            ask(&stream, cases[i].field, cases[i].text, cases[i].answer, cases[i].within);
        grpc_stream_said(&stream);
        assert_false(grpc_stream_hear(&stream));
        assert_int_equal(grpc_stream_end(&stream), GRPC_STATUS_OK);
    }
    grpc_caller_close(&caller);
    close_door(&opened);
}

/* What protobuf-c made of the same file: each method and its messages. */
static void every_method_and_message_is_found(void **state)
{
    (void)state;
    const ProtobufCServiceDescriptor *service = &embps__v1__embps__descriptor;
    open_door_t opened;
    grpc_caller_t caller;
    grpc_stream_t stream;
    open_door(&opened, 8);
    grpc_caller_open(&caller, opened.address);
    grpc_stream_open(&stream, &caller, REFLECTION);
    for (unsigned int i = 0; i < service->n_methods; i++) {
        const ProtobufCMethodDescriptor *method = &service->methods[i];
        char symbol[128];
        (void)snprintf(symbol, sizeof symbol, "%s.%s", service->name, method->name);
        ask(&stream, CONTAINING_SYMBOL, symbol, FILE_ANSWER, EMBPS_FILE);
        ask(&stream, CONTAINING_SYMBOL, method->input->name, FILE_ANSWER, EMBPS_FILE);
        ask(&stream, NUMBERS, method->output->name, NUMBERS_ANSWER, method->output->name);
        for (unsigned int f = 0; f < method->input->n_fields; f++) {
            (void)snprintf(symbol, sizeof symbol, "%s.%s", method->input->name,
                           method->input->fields[f].name);
            ask(&stream, CONTAINING_SYMBOL, symbol, FILE_ANSWER, EMBPS_FILE);
        }
    }
    grpc_stream_cancel(&stream);
    assert_int_equal(grpc_stream_end(&stream), GRPC_STATUS_CANCELLED);
    grpc_caller_close(&caller);
    close_door(&opened);
}

static void questions_that_are_none_end_the_stream(void **state)
{
    (void)state;
    static char long_one[PSP_REFLECTION_MAX_BYTES + 1];
    static const struct {
        const char *bytes;
        size_t size;
        grpc_status_code status;
    } cases[] = {
        {"\x22\x05oth", 5, GRPC_STATUS_INVALID_ARGUMENT},
        {"\x20\x05", 2, GRPC_STATUS_INVALID_ARGUMENT},
        {"\x0d"
         "1234",
         5, GRPC_STATUS_INVALID_ARGUMENT},
        {long_one, sizeof long_one, GRPC_STATUS_RESOURCE_EXHAUSTED},
    };
    open_door_t opened;
    grpc_caller_t caller;
    grpc_stream_t stream;
    open_door(&opened, 8);
    grpc_caller_open(&caller, opened.address);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        grpc_stream_open(&stream, &caller, REFLECTION);
        ask(&stream, LIST_SERVICES, "", SERVICES_ANSWER, "embps.v1.Embps");
        (void)grpc_stream_say(&stream, cases[i].bytes, cases[i].size);
        assert_false(grpc_stream_hear(&stream));
        assert_int_equal(grpc_stream_end(&stream), cases[i].status);
    }
    /* One that asks nothing is answered in words. */
    grpc_stream_open(&stream, &caller, REFLECTION);
    assert_true(grpc_stream_say(&stream, "", 0));
    assert_true(grpc_stream_hear(&stream));
    assert_true(contains(stream.heard, stream.heard_size, "asks nothing"));
    grpc_stream_said(&stream);
    assert_int_equal(grpc_stream_end(&stream), GRPC_STATUS_OK);
    grpc_caller_close(&caller);
    close_door(&opened);
}

static void who_watches_is_told_how_it_is_and_when_it_ends(void **state)
{
    (void)state;
    static const struct {
        const char *request;
        size_t size;
        uint8_t now;
    } cases[] = {{"", 0, 1},
                 {"\x0a\x0e"
                  "embps.v1.Embps",
                  16, 1},
                 {"\x0a\x05other", 7, 3}};
    enum { N = sizeof cases / sizeof cases[0] };
    grpc_stream_t streams[N], left, wrong;
    open_door_t opened;
    grpc_caller_t caller;
    open_door(&opened, 8);
    grpc_caller_open(&caller, opened.address);
    for (size_t i = 0; i < N; i++) {
        const uint8_t now[2] = {8, cases[i].now};
        grpc_stream_open(&streams[i], &caller, WATCH);
        assert_true(grpc_stream_say(&streams[i], cases[i].request, cases[i].size));
        grpc_stream_said(&streams[i]);
        assert_true(grpc_stream_hear(&streams[i]));
        assert_int_equal(streams[i].heard_size, 2);
        assert_memory_equal(streams[i].heard, now, 2);
    }
    grpc_stream_open(&left, &caller, WATCH); /* one that leaves again */
    assert_true(grpc_stream_say(&left, "", 0));
    assert_true(grpc_stream_hear(&left));
    grpc_stream_cancel(&left);
    assert_int_equal(grpc_stream_end(&left), GRPC_STATUS_CANCELLED);
    grpc_stream_open(&wrong, &caller, WATCH);
    (void)grpc_stream_say(&wrong, "\x0a\x05oth", 5);
    assert_int_equal(grpc_stream_end(&wrong), GRPC_STATUS_INVALID_ARGUMENT);

    psp_transport_stop(opened.door);
    for (size_t i = 0; i < N; i++) {
        const bool told = grpc_stream_hear(&streams[i]);
        assert_int_equal(told, cases[i].now == 1);
        if (told)
            assert_memory_equal(streams[i].heard, "\x08\x02", 2);
        assert_int_equal(grpc_stream_end(&streams[i]), GRPC_STATUS_UNAVAILABLE);
        assert_non_null(strstr(streams[i].text, "ends"));
    }
    grpc_caller_close(&caller);
    close_door(&opened);
}

static void no_more_streams_than_may_be_open(void **state)
{
    (void)state;
    enum { MOST = 3 };
    grpc_stream_t streams[MOST + 1];
    open_door_t opened;
    grpc_caller_t caller;
    grpc_called_t called;
    open_door(&opened, MOST);
    grpc_caller_open(&caller, opened.address);
    for (size_t i = 0; i < MOST; i++) {
        grpc_stream_open(&streams[i], &caller, i == 0 ? REFLECTION : WATCH);
        assert_true(grpc_stream_say(&streams[i], "", 0));
        assert_true(grpc_stream_hear(&streams[i]));
    }
    grpc_stream_open(&streams[MOST], &caller, WATCH);
    assert_int_equal(grpc_stream_end(&streams[MOST]), GRPC_STATUS_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(streams[MOST].text, "more than 3 streams"));
    assert_int_equal(grpc_caller_call(&caller, "/grpc.health.v1.Health/Check", "", 0, &called),
                     GRPC_STATUS_OK); /* calls are none */
    free(called.reply);
    for (size_t i = 0; i < MOST; i++) {
        grpc_stream_cancel(&streams[i]);
        assert_int_equal(grpc_stream_end(&streams[i]), GRPC_STATUS_CANCELLED);
    }
    /* Those have left: there is room again, as soon as the door knows. */
    for (grpc_status_code status = GRPC_STATUS_RESOURCE_EXHAUSTED;
         status == GRPC_STATUS_RESOURCE_EXHAUSTED;) {
        grpc_stream_open(&streams[0], &caller, REFLECTION);
        grpc_stream_said(&streams[0]);
        status = grpc_stream_end(&streams[0]);
        assert_true(status == GRPC_STATUS_OK || status == GRPC_STATUS_RESOURCE_EXHAUSTED);
    }
    grpc_caller_close(&caller);
    close_door(&opened);
}

/* Streams without end, each left somewhere, until the door is gone. */
typedef struct load {
    const char *address;
    uint64_t seed;
    size_t n_heard;
    pthread_t thread;
} load_t;

static grpc_status_code one_stream(grpc_caller_t *caller, test_random_t *random, size_t *n_heard)
{
    const bool watches = test_below(random, 2) == 0;
    const uint64_t steps = test_below(random, 4);
    bool goes_on = true;
    uint8_t asked[160];
    grpc_stream_t stream;
    grpc_stream_open(&stream, caller, watches ? WATCH : REFLECTION);
    const size_t n = watches ? 0 : make_question(CONTAINING_SYMBOL, "embps.v1.Embps", asked);
    for (uint64_t i = 0; goes_on && i < steps; i++) {
        goes_on = (watches && i > 0) || grpc_stream_say(&stream, asked, n);
        if (goes_on && (!watches || i == 0 || test_below(random, 8) == 0)) {
            goes_on = grpc_stream_hear(&stream); /* a watcher's second: until the door closes */
            *n_heard += goes_on;
        }
    }
    if (test_below(random, 4) == 0 && !(watches && steps > 0))
        grpc_stream_said(&stream);
    else
        grpc_stream_cancel(&stream);
    return grpc_stream_end(&stream);
}

static void *make_load(void *context)
{
    load_t *load = context;
    test_random_t random = {.key = load->seed};
    grpc_caller_t caller;
    grpc_caller_open(&caller, load->address);
    while (one_stream(&caller, &random, &load->n_heard) != GRPC_STATUS_UNAVAILABLE)
        continue;
    grpc_caller_close(&caller);
    return NULL;
}

static void streams_end_at_any_moment(void **state)
{
    (void)state;
    enum { TIMES = 40, LOADS = 3 };
    test_random_t random = test_random_start();
    size_t n_heard = 0;
    /* Where threads hardly get to run, more doors, which are open for longer. */
    for (size_t i = 0; i < TIMES || n_heard <= TIMES; i++) {
        open_door_t opened;
        load_t loads[LOADS];
        open_door(&opened, 128);
        for (size_t l = 0; l < LOADS; l++) {
            loads[l] = (load_t){.address = opened.address, .seed = test_next(&random)};
            assert_int_equal(pthread_create(&loads[l].thread, NULL, make_load, &loads[l]), 0);
        }
        for (uint64_t turns = test_below(&random, 40 * (1 + i / TIMES)); turns > 0; turns--) {
            psp_buffer_t *none;
            assert_int_equal(psp_transport_poll(opened.door, &none, NULL), PSC_OK);
            assert_null(none);
            psp_transport_wait(opened.door, 500);
        }
        if (i % 2 == 0)
            psp_transport_stop(opened.door);
        if (i % 4 == 0)
            assert_int_equal(psp_transport_flush(opened.door, 60000000, NULL), PSC_OK);
        close_door(&opened);
        for (size_t l = 0; l < LOADS; l++) {
            assert_int_equal(pthread_join(loads[l].thread, NULL), 0);
            n_heard += loads[l].n_heard;
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(services_and_their_files_are_told),
        cmocka_unit_test(every_method_and_message_is_found),
        cmocka_unit_test(questions_that_are_none_end_the_stream),
        cmocka_unit_test(who_watches_is_told_how_it_is_and_when_it_ends),
        cmocka_unit_test(no_more_streams_than_may_be_open),
        cmocka_unit_test(streams_end_at_any_moment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
