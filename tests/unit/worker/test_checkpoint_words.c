/*
 * The vocabulary of a client in its checkpoints: a file of its own, which the next checkpoint
 * shares where it is the same, and never one that another checkpoint's bytes can be changed by.
 */
#include "worker/checkpoint_making.h"

#include "common/alloc.h"
#include "common/file.h"
#include "proto/saved_folder.h"
#include "tests/support/client_calls.h"
#include "tests/support/cmocka.h"
#include "tests/support/door_servers.h"
#include "tests/support/scratch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

enum { LARGE = 700000 }; /* more than one message */

typedef struct home {
    char *folder;
    char checkpoints[256];
    door_servers_t *servers;
    embps_client_t *client;
} home_t;

static psc_error_t fault;

static void begin(home_t *home)
{
    door_servers_options_t options = DOOR_SERVERS_DEFAULT;
    *home = (home_t){.folder = test_scratch_create()};
    options.keep = 0;
    options.n = 2;
    options.checkpoints =
        test_path(home->checkpoints, sizeof home->checkpoints, home->folder, "saved");
    home->servers = door_servers_start(&options);
    home->client = connect_to(door_servers_address(home->servers, 0));
}

static void end(home_t *home)
{
    ok(embps_close(home->client, &error));
    door_servers_stop(home->servers);
    test_scratch_destroy(home->folder);
}

static psw_words_t words_of(const char *text, size_t n)
{
    return (psw_words_t){.bytes = (const uint8_t *)text, .n = n, .checksum = XXH3_64bits(text, n)};
}

static void make(home_t *home, const psw_words_t *words)
{
    psw_making_t making;
    psc_status_t st = psw_making_begin(home->client, false, "s", 1, &making, &fault);
    if (st == PSC_OK) {
        making.words = *words;
        st = psw_making_wait(&making, &fault);
    }
    if (st != PSC_OK)
        fail_msg("%s", fault.message);
}

/* Checkpoint N has these words, and is whole. Returns its file's number. */
static ino_t check(const home_t *home, unsigned n, const psw_words_t *words)
{
    char name[64], folder[512], path[600], *bytes = NULL;
    size_t size = 0;
    struct stat status = {.st_ino = 0};
    (void)snprintf(name, sizeof name, "checkpoint-%010u", n);
    (void)test_path(folder, sizeof folder, home->checkpoints, name);
    (void)test_path(path, sizeof path, folder, "vocabulary");
    if (psp_saved_verify(home->checkpoints, name, true, NULL, NULL, &fault) != PSC_OK)
        fail_msg("%s", fault.message);
    if (words->n == 0) {
        assert_int_not_equal(stat(path, &status), 0);
        return 0;
    }
    assert_int_equal(psc_file_read(path, (size_t)LARGE + 1, &bytes, &size, NULL), PSC_OK);
    assert_int_equal(size, words->n);
    assert_memory_equal(bytes, words->bytes, size);
    psc_free(bytes);
    assert_int_equal(stat(path, &status), 0);
    return status.st_ino;
}

static void it_is_a_file_that_checkpoints_share(void **unused)
{
    (void)unused;
    home_t home;
    char *large = malloc(LARGE);
    assert_non_null(large);
    for (size_t i = 0; i < LARGE; i++)
        large[i] = (char)('a' + i % 25);
    const psw_words_t none = {.n = 0}, first = words_of("a 3\nb 2\n", 8),
                      other = words_of(large, LARGE);
    begin(&home);
    make(&home, &first);
    make(&home, &first);
    make(&home, &other);
    make(&home, &other);
    make(&home, &none);
    assert_true(check(&home, 1, &first) == check(&home, 2, &first));
    assert_true(check(&home, 3, &other) == check(&home, 4, &other));
    (void)check(&home, 5, &none);
    end(&home);
    free(large);
}

/* A step as a client that means no good would take it. */
static psc_status_t take(home_t *home, const psp_checkpoint_t *step)
{
    psw_request_t *request;
    psp_message_t message = {.kind = PSP_CHECKPOINT, .u.checkpoint = *step};
    assert_int_equal(psw_client_ask(home->client, &message, 0, 1, &request, &fault), PSC_OK);
    assert_int_equal(psw_driver_wait(&home->client->driver, request, &fault), PSC_OK);
    return psw_client_finish(home->client, request, &fault);
}

static void no_bytes_reach_one_that_is_shared(void **unused)
{
    (void)unused;
    home_t home;
    const psw_words_t words = words_of("a 3\nb 2\n", 8);
    psw_making_t making;
    begin(&home);
    make(&home, &words);
    if (psw_making_begin(home.client, false, "s", 1, &making, &fault) != PSC_OK)
        fail_msg("%s", fault.message);
    psp_checkpoint_t step = making.step;
    step.detached = false;
    step.step = PSP_CHECKPOINT_STATE;
    step.vocabulary = true;
    step.whole_bytes = words.n;
    step.checksum = words.checksum;
    psc_status_t st;
    while ((st = take(&home, &step)) == PSC_NOT_FOUND) { /* the part is not on disk yet */
    }
    assert_int_equal(st, PSC_OK);
    step.whole_bytes = step.checksum = 0;
    step.offset = words.n;
    step.state = (const uint8_t *)"more";
    step.n = 4;
    assert_int_equal(take(&home, &step), PSC_INVALID_ARGUMENT);
    assert_non_null(strstr(fault.message, "no more of it is taken"));
    (void)check(&home, 1, &words);
    assert_int_not_equal(psw_making_wait(&making, &fault), PSC_OK); /* that one has failed */
    make(&home, &words);
    (void)check(&home, 1, &words);
    end(&home);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_is_a_file_that_checkpoints_share),
        cmocka_unit_test(no_bytes_reach_one_that_is_shared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
