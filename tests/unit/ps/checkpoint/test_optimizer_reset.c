/*
 * A run goes on from a checkpoint with another optimizer: what the option's text may say; the
 * weights of every row stay, wherever rows lay and whatever the number of servers is; the state and
 * the count of steps begin, as one push shows; nothing of it happens twice, nor without the option.
 */
#include "ps/checkpoint/optimizer_reset.h"

#include "ps/checkpoint/restore.h"
#include "tests/support/client_calls.h"
#include "tests/support/cmocka.h"
#include "tests/support/door_servers.h"
#include "tests/support/scratch.h"

#include "embps.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { DIM = 6, IDS = 3000, VALUES = IDS * DIM };

static uint64_t ids[IDS];
static float weights[VALUES], before[VALUES], gradients[VALUES];

/* ---- the text ---- */

static void takes_a_table_an_optimizer_and_its_parameters(void **unused)
{
    (void)unused;
    ps_optimizer_reset_t reset;
    assert_int_equal(ps_optimizer_reset_parse("items=adagrad", &reset, NULL), PSC_OK);
    assert_string_equal(reset.table, "items");
    assert_string_equal(reset.optim->name, "adagrad");
    assert_true(reset.params[0] == 0 && reset.params[1] == 1e-10);
    assert_int_equal(reset.state_precision, PSP_F32);
    assert_int_equal(ps_optimizer_reset_parse("a=b,c=adam,beta2=0.9,state_precision=bf16,beta1=0.5",
                                              &reset, NULL),
                     PSC_OK);
    assert_string_equal(reset.table, "a=b,c");
    assert_true(reset.params[0] == 0.5 && reset.params[1] == 0.9);
    assert_int_equal(reset.state_precision, PSP_BF16);
}

static void says_what_is_wrong_and_what_is_possible(void **unused)
{
    (void)unused;
    static const struct {
        const char *text, *says;
    } wrong[] = {{"items", "wants TABLE=OPTIMIZER; optimizers are sgd, "},
                 {"items=adamm", "wants TABLE=OPTIMIZER"},
                 {"=adam", "wants TABLE=OPTIMIZER"},
                 {"items=adam,", "beta1=NUMBER"},
                 {"items=adam,beta1", "beta1=NUMBER"},
                 {"items=adam,beta1=", "beta1=NUMBER"},
                 {"items=adam,beta1=0.5x", "beta1=NUMBER"},
                 {"items=adam,beta1=nan", "beta1=NUMBER"},
                 {"items=adam,beta3=0.5", "beta1=NUMBER"},
                 {"items=adam,state_precision=f16", "state_precision=f32 or bf16"},
                 {"items=adam,beta1=2", "must be between"}};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        ps_optimizer_reset_t reset;
        psc_error_t fault = PSC_ERROR_INIT;
        assert_int_equal(ps_optimizer_reset_parse(wrong[i].text, &reset, &fault),
                         PSC_INVALID_ARGUMENT);
        if (strstr(fault.message, wrong[i].says) == NULL)
            fail_msg("%s: %s", wrong[i].text, fault.message);
    }
    char name[PSP_NAME_MAX + 2 + sizeof "=adam"];
    memset(name, 'n', PSP_NAME_MAX + 1);
    memcpy(name + PSP_NAME_MAX + 1, "=adam", sizeof "=adam");
    ps_optimizer_reset_t reset;
    assert_int_equal(ps_optimizer_reset_parse(name, &reset, NULL), PSC_INVALID_ARGUMENT);
    assert_int_equal(ps_optimizer_reset_parse(name + 1, &reset, NULL), PSC_OK);
}

static psc_status_t define(const psp_open_table_t *options, const char *text, ps_table_t *table_out,
                           bool *changed_out, psc_error_t *fault)
{
    ps_optimizer_reset_t reset;
    ps_table_t was;
    assert_int_equal(ps_table_define(options, &was, NULL), PSC_OK);
    was.number = 7;
    was.epoch = 3;
    assert_int_equal(ps_optimizer_reset_parse(text, &reset, NULL), PSC_OK);
    return ps_optimizer_reset_define(&reset, &was, table_out, changed_out, fault);
}

static void only_the_optimizer_of_a_table_changes(void **unused)
{
    (void)unused;
    psp_open_table_t options = {
        .name = "t", .dim = 4, .init = "uniform", .optimizer = "adagrad", .l2 = 0.5, .seed = 9};
    ps_table_t table;
    bool changed;
    psc_error_t fault = PSC_ERROR_INIT;
    assert_int_equal(define(&options, "t=adagrad", &table, &changed, NULL), PSC_OK);
    assert_false(changed);
    assert_int_equal(table.epoch, 3);
    assert_int_equal(define(&options, "t=adagrad,eps=0.1", &table, &changed, NULL), PSC_OK);
    assert_true(changed);
    assert_int_equal(define(&options, "t=adam,state_precision=bf16", &table, &changed, NULL),
                     PSC_OK);
    assert_true(changed && table.number == 7 && table.epoch == 4 && table.seed == 9);
    assert_true(table.l2 == 0.5F && table.state_precision == PSP_BF16);
    assert_int_equal(define(&options, "t=sgd,state_precision=bf16", &table, &changed, &fault),
                     PSC_INVALID_ARGUMENT);
    assert_non_null(strstr(fault.message, "no moments"));
    options.expire_rare_after = 5;
    options.expire_rare_below = 2;
    assert_int_equal(define(&options, "t=sgd", &table, &changed, NULL), PSC_OK);
    assert_int_equal(define(&options, "t=adam", &table, &changed, &fault), PSC_INVALID_ARGUMENT);
    assert_non_null(strstr(fault.message, "expire_rare_below"));
}

/* ---- with servers ---- */

typedef struct kind {
    const char *was, *text, *becomes, *precision, *state_precision;
    uint32_t admit_after;
} kind_t;

static embps_table_t *open_table(embps_client_t *client, const kind_t *kind, const char *optimizer)
{
    embps_table_options_t options = EMBPS_TABLE_OPTIONS_DEFAULT;
    embps_table_t *table = NULL;
    options.dim = DIM;
    options.optimizer = optimizer;
    options.precision = kind->precision;
    options.state_precision = strcmp(optimizer, kind->was) == 0 ? "f32" : kind->state_precision;
    options.admit_after = kind->admit_after;
    options.admit_shared = kind->admit_after != 0;
    ok(embps_table_open(client, "t", &options, &table, &error));
    return table;
}

typedef struct home {
    char *folder;
    char checkpoints[256], data[256];
    door_servers_options_t options;
    door_servers_t *servers;
    embps_client_t *client;
} home_t;

static void begin(home_t *home, uint32_t n)
{
    char name[32];
    (void)snprintf(name, sizeof name, "data-%zu", test_count_entries(home->folder));
    home->options.n = n;
    home->options.folder = test_path(home->data, sizeof home->data, home->folder, name);
    home->servers = door_servers_start(&home->options);
    home->client = connect_to(door_servers_address(home->servers, 0));
}

static void end(home_t *home, bool checkpoint)
{
    char name[EMBPS_CHECKPOINT_NAME_BYTES];
    if (checkpoint)
        ok(embps_checkpoint(home->client, NULL, 0, name, &error));
    ok(embps_close(home->client, &error));
    door_servers_stop(home->servers);
}

static void make_home(home_t *home)
{
    *home = (home_t){.folder = test_scratch_create(), .options = DOOR_SERVERS_DEFAULT};
    home->options.checkpoints =
        test_path(home->checkpoints, sizeof home->checkpoints, home->folder, "saved");
    for (size_t i = 0; i < IDS; i++)
        ids[i] = i * 977;
    for (size_t i = 0; i < VALUES; i++)
        gradients[i] = (float)(i % 17) - 8.25F;
}

static void push(home_t *home, embps_table_t *table, size_t n)
{
    (void)home;
    ok(embps_push(table, EMBPS_GRADIENT, ids, n, gradients, 0.125F, &error));
}

static void pull(embps_table_t *table, float *values_out)
{
    ok(embps_pull(table, ids, IDS, values_out, &error));
}

/* The n-th push of the same gradients onto a state that was fresh. */
static void check_step(const kind_t *kind, unsigned n)
{
    for (size_t i = 0; i < VALUES; i++) {
        float square = gradients[i] * gradients[i], sum = square;
        for (unsigned k = 1; k < n; k++)
            sum = sum + square;
        const float by_adagrad = -0.125F * gradients[i] / (sqrtf(sum) + 1e-10F);
        const float by_adam = gradients[i] > 0 ? -0.125F : 0.125F; /* whatever n is */
        const float step = strcmp(kind->becomes, "adam") == 0 ? by_adam : by_adagrad;
        const bool halves =
            strcmp(kind->precision, "f32") != 0 || strcmp(kind->state_precision, "f32") != 0;
        const float most = halves ? 0.02F : 1e-5F;
        if (fabsf(weights[i] - before[i] - step) > most)
            fail_msg("%s: value %zu moved by %g, not %g", kind->text, i,
                     (double)(weights[i] - before[i]), (double)step);
    }
}

static void run_kind(const kind_t *kind, uint32_t n_before, uint32_t n_after)
{
    home_t home;
    make_home(&home);
    begin(&home, n_before);
    embps_table_t *table = open_table(home.client, kind, kind->was);
    for (unsigned i = 0; i < 5; i++)
        push(&home, table, IDS);
    end(&home, true);
    begin(&home, n_before); /* by now all rows are in the cold tier, and some in memory again */
    table = open_table(home.client, kind, kind->was);
    push(&home, table, IDS / 2);
    pull(table, before);
    end(&home, true);

    const char *const resets[] = {kind->text};
    home.options.resets = resets;
    home.options.n_resets = 1;
    for (unsigned start = 1; start <= 2; start++) { /* the second time nothing is dropped */
        begin(&home, n_after);
        table = open_table(home.client, kind, kind->becomes);
        pull(table, weights);
        assert_memory_equal(weights, before, sizeof weights);
        push(&home, table, IDS);
        pull(table, weights);
        check_step(kind, start);
        memcpy(before, weights, sizeof before);
        end(&home, true);
    }
    test_scratch_destroy(home.folder);
}

static void weights_stay_and_the_state_begins(void **unused)
{
    (void)unused;
    static const kind_t kinds[] = {
        {"sgd", "t=adagrad", "adagrad", "f32", "f32", 0},
        {"adam", "t=adagrad", "adagrad", "f32", "f32", 0},
        {"adagrad", "t=adam", "adam", "f32", "f32", 2},
        {"adam", "t=adagrad", "adagrad", "bf16", "f32", 2},
        {"adagrad", "t=adam,state_precision=bf16", "adam", "f32", "bf16", 0},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        run_kind(&kinds[i], i % 2 == 0 ? 1 : 2, i % 2 == 0 ? 1 : (uint32_t)i);
    }
}

static const kind_t plain = {"adagrad", "t=adam", "adam", "f32", "f32", 0};

static void without_the_option_another_optimizer_is_refused_with_both(void **unused)
{
    (void)unused;
    home_t home;
    embps_table_options_t options = EMBPS_TABLE_OPTIONS_DEFAULT;
    embps_table_t *table = NULL;
    make_home(&home);
    begin(&home, 1);
    push(&home, open_table(home.client, &plain, "adagrad"), IDS);
    end(&home, true);
    begin(&home, 1);
    options.dim = DIM;
    options.optimizer = "adam";
    assert_int_equal(embps_table_open(home.client, "t", &options, &table, &error), PSC_MISMATCH);
    assert_non_null(strstr(error.message, "exists with optimizer adagrad, but adam was asked for"));
    assert_non_null(strstr(error.message, "--reset-optimizer"));
    end(&home, false);
    test_scratch_destroy(home.folder);
}

/* The one that comes again means the former optimizer with its pushes. */
static void who_stays_is_not_served_with_another_optimizer(void **unused)
{
    (void)unused;
    home_t home;
    const char *const resets[] = {"t=adam"};
    make_home(&home);
    begin(&home, 1);
    embps_table_t *table = open_table(home.client, &plain, "adagrad");
    const uint16_t port = door_servers_port(home.servers, 0);
    push(&home, table, IDS);
    door_servers_stop(home.servers);
    home.options.ports = &port;
    home.options.resets = resets;
    home.options.n_resets = 1;
    home.servers = door_servers_start(&home.options);
    assert_int_not_equal(embps_push(table, EMBPS_GRADIENT, ids, IDS, gradients, 0.125F, &error), 0);
    if (strstr(error.message, "table t") == NULL)
        fail_msg("refused, but for something else: %s", error.message);
    (void)embps_close(home.client, &error);
    door_servers_stop(home.servers);
    test_scratch_destroy(home.folder);
}

static void a_table_that_is_not_there_or_there_twice_is_refused(void **unused)
{
    (void)unused;
    home_t home;
    ps_restore_t *restore = NULL;
    psc_error_t fault = PSC_ERROR_INIT;
    make_home(&home);
    begin(&home, 1);
    push(&home, open_table(home.client, &plain, "adagrad"), IDS);
    end(&home, false);
    assert_int_equal(ps_restore_find(home.checkpoints, "auto", 0, 1, false, &restore, &fault),
                     PSC_OK);
    assert_int_equal(ps_restore_reset(restore, "other=adam", &fault), PSC_NOT_FOUND);
    assert_non_null(strstr(fault.message, "has no table of this name"));
    assert_int_equal(ps_restore_reset(restore, "t=adagrad", &fault), PSC_OK);
    assert_false(ps_restore_renews(restore));
    assert_int_equal(ps_restore_reset(restore, "t=adam", &fault), PSC_OK);
    assert_true(ps_restore_renews(restore));
    assert_int_equal(ps_restore_reset(restore, "t=sgd", &fault), PSC_INVALID_ARGUMENT);
    assert_non_null(strstr(fault.message, "twice"));
    ps_restore_destroy(restore);
    test_scratch_destroy(home.folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(takes_a_table_an_optimizer_and_its_parameters),
        cmocka_unit_test(says_what_is_wrong_and_what_is_possible),
        cmocka_unit_test(only_the_optimizer_of_a_table_changes),
        cmocka_unit_test(weights_stay_and_the_state_begins),
        cmocka_unit_test(without_the_option_another_optimizer_is_refused_with_both),
        cmocka_unit_test(who_stays_is_not_served_with_another_optimizer),
        cmocka_unit_test(a_table_that_is_not_there_or_there_twice_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
