/* Where a server may listen, the addresses of all, the file that says them, and stopping it. */
#include "ps/listening.h"

#include "common/alloc.h"
#include "common/file.h"
#include "proto/grpc/grpc_server.h"
#include "tests/support/cmocka.h"
#include "tests/support/scratch.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static psc_status_t try_with_tokens(const char *listen, bool plain_text, const char *tokens,
                                    uint32_t rank, char address_out[300], psc_error_t *error)
{
    const ps_server_arguments_t arguments = {
        .listen = listen, .plain_text = plain_text, .tokens = tokens};
    psp_transport_t *door;
    psp_pool_t *pool;
    assert_int_equal(psp_pool_create(0, &pool, NULL), PSC_OK);
    psc_status_t st = ps_listening_open(&arguments, rank, pool, NULL, &door, error);
    if (st == PSC_OK) {
        (void)snprintf(address_out, 300, "%s", psp_door_address(door));
        psp_transport_destroy(door);
    }
    psp_pool_destroy(pool);
    return st;
}

static psc_status_t try_to_open(const char *listen, bool plain_text, uint32_t rank,
                                char address_out[300], psc_error_t *error)
{
    return try_with_tokens(listen, plain_text, NULL, rank, address_out, error);
}

static void tokens_come_in_plain_text_from_this_machine_alone(void **state)
{
    (void)state;
    char address[300], path[256];
    psc_error_t error = PSC_ERROR_INIT;
    char *folder = test_scratch_create();
    (void)test_path(path, sizeof path, folder, "tokens");
    const mode_t before = umask(077);
    assert_int_equal(psc_file_write(path, "some-token-or-other read *\n", 27, NULL), PSC_OK);
    (void)umask(before);
    assert_int_equal(try_with_tokens("127.0.0.1:0", false, path, 0, address, &error), PSC_OK);
    assert_int_equal(try_with_tokens("0.0.0.0:0", false, path, 0, address, &error),
                     PSC_INVALID_ARGUMENT);
    assert_non_null(strstr(error.message, "tokens would come to it in plain text"));
    assert_int_equal(try_with_tokens("0.0.0.0:0", true, path, 0, address, &error), PSC_OK);
    assert_int_equal(chmod(path, 0644), 0);
    assert_int_equal(try_with_tokens("127.0.0.1:0", false, path, 0, address, &error),
                     PSC_INVALID_ARGUMENT);
    assert_non_null(strstr(error.message, path));
    test_scratch_destroy(folder);
}

static void only_loopback_without_a_word(void **state)
{
    (void)state;
    char address[300];
    psc_error_t error = PSC_ERROR_INIT;
    static const char *const open[] = {"0.0.0.0:0", "[::]:0"};
    assert_int_equal(try_to_open("127.0.0.1:0", false, 0, address, &error), PSC_OK);
    assert_int_equal(strncmp(address, "127.0.0.1:", 10), 0);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(try_to_open(open[i], false, 0, address, &error), PSC_INVALID_ARGUMENT);
        assert_non_null(strstr(error.message, "--plain-text"));
    }
    assert_int_equal(try_to_open("0.0.0.0:0", true, 0, address, &error), PSC_OK);
    assert_null(strstr(address, "0.0.0.0")); /* others cannot use that */
}

static void a_sockets_file_is_for_clients_alone(void **state)
{
    (void)state;
    char address[300];
    psc_error_t error = PSC_ERROR_INIT;
    assert_int_equal(try_to_open("unix:/tmp/embps", false, 0, address, &error),
                     PSC_INVALID_ARGUMENT);
    assert_non_null(strstr(error.message, "unix: is for clients"));
}

static void servers_of_a_job_take_one_port_after_the_other(void **state)
{
    (void)state;
    char first[300], second[300], wanted[300];
    psc_error_t error = PSC_ERROR_INIT;
    assert_int_equal(try_to_open("127.0.0.1:65535", false, 1, first, &error), PSC_INVALID_ARGUMENT);
    for (int attempt = 0; attempt < 20; attempt++) { /* the port behind a free one may be in use */
        assert_int_equal(try_to_open("127.0.0.1:0", false, 3, first, &error), PSC_OK);
        unsigned long port = strtoul(strchr(first, ':') + 1, NULL, 10);
        if (port > 65000)
            continue;
        psc_status_t st = try_to_open(first, false, 3, second, &error);
        if (st == PSC_IN_USE)
            continue;
        assert_int_equal(st, PSC_OK);
        (void)snprintf(wanted, sizeof wanted, "127.0.0.1:%lu", port + 3);
        assert_string_equal(second, wanted);
        return;
    }
    skip();
}

static void all_servers_listen_or_none(void **state)
{
    (void)state;
    const char **addresses;
    psc_error_t error = PSC_ERROR_INIT;
    const size_t both[] = {3, 5}, none[] = {0, 0}, one[] = {0, 5};
    assert_int_equal(ps_listening_split("a:1bcd:2", both, 2, &addresses, &error), PSC_OK);
    assert_string_equal(addresses[0], "a:1");
    assert_string_equal(addresses[1], "bcd:2");
    char *folder = test_scratch_create(), *bytes;
    char path[256];
    size_t size;
    (void)test_path(path, sizeof path, folder, "ports");
    assert_int_equal(ps_listening_write(path, addresses, 2, &error), PSC_OK);
    assert_int_equal(psc_file_read(path, 100, &bytes, &size, &error), PSC_OK);
    assert_int_equal(size, 10);
    assert_memory_equal(bytes, "a:1\nbcd:2\n", 10);
    psc_free(bytes);
    test_scratch_destroy(folder);
    psc_free(addresses);
    assert_int_equal(ps_listening_split("", none, 2, &addresses, &error), PSC_OK);
    assert_null(addresses);
    assert_int_equal(ps_listening_split("bcd:2", one, 2, &addresses, &error), PSC_INVALID_ARGUMENT);
    assert_non_null(strstr(error.message, "1 of 2"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_loopback_without_a_word),
        cmocka_unit_test(tokens_come_in_plain_text_from_this_machine_alone),
        cmocka_unit_test(a_sockets_file_is_for_clients_alone),
        cmocka_unit_test(servers_of_a_job_take_one_port_after_the_other),
        cmocka_unit_test(all_servers_listen_or_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
