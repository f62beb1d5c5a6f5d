/* The command line of embps-server: what it takes, and what it says about what it does not take. */
#include "tests/support/cmocka.h"

#include "ps/server_options.h"

#include <stdlib.h>
#include <string.h>

#define MIB (UINT64_C(1) << 20)

static psc_status_t parse(const char *line, ps_server_arguments_t *arguments,
                          psc_log_level_t *level, psc_error_t *error)
{
    static char words[256];
    char *argv[16], *rest = NULL;
    int argc = 0;
    (void)snprintf(words, sizeof words, "embps-server %s", line);
    for (char *word = strtok_r(words, " ", &rest); word != NULL; word = strtok_r(NULL, " ", &rest))
        argv[argc++] = word;
    argv[argc] = NULL;
    psc_parse_result_t result;
    return ps_server_arguments_parse(argc, argv, arguments, level, &result, error);
}

static int no_environment(void **unused)
{
    (void)unused;
    return unsetenv("EMBPS_DATA") + unsetenv("EMBPS_MEMORY") + unsetenv("EMBPS_LOG_LEVEL") +
           unsetenv("EMBPS_DIRECT") + unsetenv("EMBPS_ON_WORKER_LOSS") +
           unsetenv("EMBPS_WORKER_TIMEOUT") + unsetenv("EMBPS_LISTEN") +
           unsetenv("EMBPS_PORT_FILE") + unsetenv("EMBPS_PLAIN_TEXT") + unsetenv("EMBPS_GUESTS") +
           unsetenv("EMBPS_LEASE") + unsetenv("EMBPS_TLS_CERT") + unsetenv("EMBPS_TLS_KEY") +
           unsetenv("EMBPS_TLS_CLIENT_CA") + unsetenv("EMBPS_CHECKPOINTS") +
           unsetenv("EMBPS_DURABILITY") + unsetenv("EMBPS_KEEP") + unsetenv("EMBPS_RESUME") +
           unsetenv("EMBPS_CHECKPOINT_EVERY") + unsetenv("EMBPS_WEIGHTS") +
           unsetenv("EMBPS_CHECKSUMS") + unsetenv("EMBPS_READ_ONLY");
}

static void takes_its_options_and_defaults(void **unused)
{
    (void)unused;
    ps_server_arguments_t arguments;
    psc_log_level_t level;
    assert_int_equal(parse("--data d", &arguments, &level, NULL), PSC_OK);
    assert_string_equal(arguments.data, "d");
    assert_int_equal(arguments.memory_bytes, 256 * MIB);
    assert_int_equal(level, PSC_LOG_WARN);
    assert_int_equal(arguments.direct, PS_DIRECT_AUTO);
    assert_int_equal(arguments.loss_rule, PS_LOSS_AUTO);
    assert_true(arguments.worker_timeout_s == 10);
    assert_false(arguments.checksums);
    assert_int_equal(parse("--data d --checksums", &arguments, &level, NULL), PSC_OK);
    assert_true(arguments.checksums);
    assert_int_equal(parse("--memory 8M --data=x --log-level debug", &arguments, &level, NULL),
                     PSC_OK);
    assert_int_equal(arguments.memory_bytes, 8 * MIB);
    assert_int_equal(level, PSC_LOG_DEBUG);
    assert_int_equal(
        parse("--data=x --on-worker-loss rollback --worker-timeout 0.5", &arguments, &level, NULL),
        PSC_OK);
    assert_int_equal(arguments.loss_rule, PS_LOSS_ROLLBACK);
    assert_true(arguments.worker_timeout_s == 0.5);
    assert_int_equal(parse("--data=x --on-worker-loss continue", &arguments, &level, NULL), PSC_OK);
    assert_int_equal(arguments.loss_rule, PS_LOSS_CONTINUE);
    assert_int_equal(parse("--memory 4G --data=x --direct on", &arguments, &level, NULL), PSC_OK);
    assert_int_equal(arguments.memory_bytes, 4096 * MIB);
    assert_int_equal(arguments.direct, PS_DIRECT_ON);
    assert_int_equal(parse("--data=x --direct off", &arguments, &level, NULL), PSC_OK);
    assert_int_equal(arguments.direct, PS_DIRECT_OFF);
    assert_true(arguments.checkpoint_every_s == 0);
    assert_int_equal(
        parse("--data=x --checkpoints c --checkpoint-every 0.5", &arguments, &level, NULL), PSC_OK);
    assert_true(arguments.checkpoint_every_s == 0.5);
    assert_int_equal(arguments.durability, PS_DURABILITY_CHECKPOINT);
    assert_int_equal(parse("--data=x --durability none", &arguments, &level, NULL), PSC_OK);
    assert_int_equal(arguments.durability, PS_DURABILITY_NONE);
    assert_int_equal(parse("--data=x --checkpoints c --durability sync", &arguments, &level, NULL),
                     PSC_OK);
    assert_int_equal(arguments.durability, PS_DURABILITY_SYNC);
}

static void listens_only_when_told_to(void **unused)
{
    (void)unused;
    ps_server_arguments_t arguments;
    psc_log_level_t level;
    assert_int_equal(parse("--data d", &arguments, &level, NULL), PSC_OK);
    assert_null(arguments.listen);
    assert_int_equal(parse("--data d --listen [::1]:0 --port-file p --guests 7 --lease 0.5",
                           &arguments, &level, NULL),
                     PSC_OK);
    assert_string_equal(arguments.listen, "[::1]:0");
    assert_string_equal(arguments.port_file, "p");
    assert_int_equal(arguments.guests, 7);
    assert_true(arguments.lease_s == 0.5);
    assert_false(arguments.plain_text);
}

static void refuses_what_cannot_be(void **unused)
{
    (void)unused;
    static const struct {
        const char *line, *words;
    } cases[] = {
        {"", "--data"},
        {"--data d --memory 7M", "memory"},
        {"--data d --memory lots", "memory"},
        {"--data d --on-worker-loss wait", "auto, rollback or continue"},
        {"--data d --worker-timeout -1", "worker-timeout"},
        {"--data d --log-level loud", "error, warn, info or debug"},
        {"--data d --direct often", "off, auto or on"},
        {"--data d --memmory 8M", "memory"},
        {"--data d stray", "stray"},
        {"--data d --port-file p", "--listen"},
        {"--data d --plain-text", "--listen"},
        {"--data d --listen [::1]:0 --tls-cert c", "--tls-key"},
        {"--data d --listen [::1]:0 --tls-client-ca c", "--tls-cert"},
        {"--data d --tls-cert c --tls-key k", "--listen"},
        {"--data d --listen [::1]:0 --guests 0", "guests"},
        {"--data d --checkpoint-every 5", "--checkpoint-every is of use with --checkpoints"},
        {"--data d --checkpoints c --checkpoint-every -1", "checkpoint-every"},
        {"--data d --checkpoints c --durability often", "none, checkpoint, push or sync"},
        {"--data d --durability push", "--durability push keeps a log"},
        {"--data d --durability sync", "--durability sync keeps a log"},
        {"--data d --durability none --checkpoints c", "--durability none makes no checkpoints"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ps_server_arguments_t arguments;
        psc_log_level_t level;
        psc_error_t error = PSC_ERROR_INIT;
        assert_int_equal(parse(cases[i].line, &arguments, &level, &error), PSC_INVALID_ARGUMENT);
        if (strstr(error.message, cases[i].words) == NULL)
            fail_msg("\"%s\" is not in \"%s\"", cases[i].words, error.message);
    }
}

static void a_wrong_level_from_the_environment_names_the_variable(void **unused)
{
    (void)unused;
    ps_server_arguments_t arguments;
    psc_log_level_t level;
    psc_error_t error = PSC_ERROR_INIT;
    assert_int_equal(setenv("EMBPS_LOG_LEVEL", "foo", 1), 0);
    assert_int_equal(parse("--data d", &arguments, &level, &error), PSC_INVALID_ARGUMENT);
    assert_string_equal(error.message,
                        "EMBPS_LOG_LEVEL=foo: unknown; possible: error, warn, info or debug");
}

static void resets_optimizers_with_checkpoints_alone(void **unused)
{
    (void)unused;
    ps_server_arguments_t arguments;
    psc_log_level_t level;
    psc_error_t error = PSC_ERROR_INIT;
    assert_int_equal(parse("--data d --checkpoints c --reset-optimizer a=adam b=sgd", &arguments,
                           &level, &error),
                     PSC_OK);
    assert_int_equal(arguments.reset_optimizer.n, 2);
    assert_string_equal(arguments.reset_optimizer.items[1], "b=sgd");
    assert_int_equal(parse("--data d --reset-optimizer a=adam", &arguments, &level, &error),
                     PSC_INVALID_ARGUMENT);
    assert_non_null(strstr(error.message, "--checkpoints"));
    assert_int_equal(
        parse("--data d --checkpoints c --reset-optimizer a=best", &arguments, &level, &error),
        PSC_INVALID_ARGUMENT);
    assert_non_null(strstr(error.message, "optimizers are"));
}

static void weights_are_of_a_checkpoint_by_name(void **unused)
{
    (void)unused;
    static const char *const wrong[] = {"dir/", "dir/auto", "dir/none", "/name", "dir/.name"};
    ps_server_arguments_t arguments;
    psc_log_level_t level;
    psc_error_t error = PSC_ERROR_INIT;
    char line[64];
    assert_int_equal(parse("--data d --weights dir/name", &arguments, &level, &error), PSC_OK);
    assert_string_equal(arguments.weights, "dir/name");
    assert_int_equal(parse("--data d --weights name", &arguments, &level, &error), PSC_OK);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        (void)snprintf(line, sizeof line, "--data d --weights %s", wrong[i]);
        assert_int_equal(parse(line, &arguments, &level, &error), PSC_INVALID_ARGUMENT);
        assert_non_null(strstr(error.message, "DIR/NAME"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(takes_its_options_and_defaults, no_environment),
        cmocka_unit_test_setup(listens_only_when_told_to, no_environment),
        cmocka_unit_test_setup(refuses_what_cannot_be, no_environment),
        cmocka_unit_test_setup_teardown(a_wrong_level_from_the_environment_names_the_variable,
                                        no_environment, no_environment),
        cmocka_unit_test(resets_optimizers_with_checkpoints_alone),
        cmocka_unit_test(weights_are_of_a_checkpoint_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
