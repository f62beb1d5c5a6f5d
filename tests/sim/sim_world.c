/*
 * What a seed draws first is a world: how many servers, clients and rows, how slow and how
 * unreliable everything is, and how often which mischief is done. Most worlds have few kinds of
 * it, so that some seeds get far in spite of one, and others see many at once.
 *
 * Then it runs for some simulated seconds. A job of servers of which one has failed is killed and
 * started again, by as many servers or by others. At the end all mischief is over: clients finish
 * what they have under way, the table is read and compared, servers end in order, every checkpoint
 * is looked at, and the table is read once more of another number of servers.
 */
#include "tests/sim/sim_world.h"

#include "common/file.h"
#include "common/log.h"
#include "common/process.h"
#include "proto/saved_folder.h"
#include "tests/sim/sim_clients.h"
#include "tests/sim/sim_disk.h"
#include "tests/sim/sim_servers.h"
#include "tests/support/scratch.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define SECOND_US UINT64_C(1000000)
#define CALLS_MAX 1500
#define PATIENCE_US (600 * SECOND_US)

static struct {
    char *folder;
    uint64_t begin_us, end_us;
    sim_job_options_t job;
    sim_clients_options_t clients;
    sim_weather_t weather;
    /* Mischief comes every so often at most; each kind has a share of it. */
    uint64_t mischief_us;
    uint64_t kill, kill_at_file, stop, ask, pause, kill_client, pause_client;
    uint64_t power_cut_one_in; /* starts */
    uint64_t other_number_one_in;
    bool over, ending; /* no mischief any more; a kill or a start is planned */
    bool ended_badly;  /* the last job that served */
    bool faulty;       /* the job's files may fail */
    uint64_t n_kills, n_power_cuts, n_checkpoints;
} world;

/* ---- a world ---- */

static uint64_t pick(uint64_t one_in, uint64_t most)
{
    return sim_one_in(one_in) ? 1 + sim_below(most) : 0;
}

static void draw_servers(void)
{
    world.job = (sim_job_options_t){.folder = world.folder,
                                    .n_servers = 1 + (uint32_t)sim_below(4),
                                    .durability = PS_DURABILITY_CHECKPOINT,
                                    .boot = 1,
                                    .safe = true,
                                    .keep = 1 + sim_below(3),
                                    .every_us = pick(2, 2 * SECOND_US),
                                    .lease_us = sim_one_in(3) ? 15 * SECOND_US : 0,
                                    .disk_us = 1 + sim_below(sim_one_in(4) ? 20000 : 400),
                                    .disk_faults = (uint32_t)pick(4, 20)};
    if (sim_one_in(2))
        world.job.durability = sim_one_in(2) ? PS_DURABILITY_PUSH : PS_DURABILITY_SYNC;
    if (world.job.every_us != 0)
        world.job.every_us += SECOND_US / 5;
    if (sim_one_in(6))
        world.job.cold_faults =
            (ps_cold_faults_t){.stall_write_at = 1 + sim_below(20), .stall_more = sim_below(200)};
}

static void draw_clients(void)
{
    const bool wide = sim_one_in(6); /* rows that do not all fit into memory */
    world.clients = (sim_clients_options_t){.n = 1 + (uint32_t)sim_below(SIM_CLIENTS_MAX),
                                            .n_ids = wide ? 1200 : 20 + sim_below(200),
                                            .dim = wide ? 1024 : SIM_COLUMNS,
                                            .batch = 1 + sim_below(16),
                                            .nap_us = 1 + sim_below(50000),
                                            .checkpoint_one_in = sim_one_in(2) ? 20 : 0};
}

static void draw_weather(void)
{
    world.weather = (sim_weather_t){.latency_us = 20 + sim_below(500),
                                    .jitter_us = sim_below(sim_one_in(3) ? 20000 : 300)};
    if (sim_one_in(2))
        world.weather.lost_one_in = 20 + sim_below(300);
    if (sim_one_in(2))
        world.weather.late_one_in = 20 + sim_below(300);
    if (sim_one_in(2))
        world.weather.reset_one_in = 10 + sim_below(300);
    world.weather.late_us = sim_below(sim_one_in(3) ? 20 * SECOND_US : SECOND_US) + 1;
}

static void draw_mischief(void)
{
    world.mischief_us = SECOND_US / 2 + sim_below(4 * SECOND_US);
    world.kill = pick(2, 4);
    world.kill_at_file = pick(2, 8);
    world.stop = pick(3, 3);
    world.ask = pick(2, 6);
    world.pause = pick(4, 3);
    world.kill_client = pick(4, 3);
    world.pause_client = pick(5, 2);
    world.power_cut_one_in = sim_one_in(2) ? 1 + sim_below(3) : 0;
    world.other_number_one_in = sim_one_in(2) ? 1 + sim_below(4) : 0;
    world.end_us = sim_now() + 3 * SECOND_US + sim_below(12 * SECOND_US);
}

/* ---- mischief ---- */

static uint32_t any_server(void)
{
    return (uint32_t)sim_below(sim_job_servers());
}

static void start_again(void *context);

static void kill_rest(void *context)
{
    (void)context;
    world.ending = false;
    if (sim_job_state() != SIM_JOB_ENDED)
        sim_job_kill();
}

static void start_client(void *context)
{
    const uint32_t client = (uint32_t)(uintptr_t)context;
    if (!world.over && !sim_client_runs(client))
        sim_client_start(client);
}

/* A signal on its way to one server: which server, and of which start: the processes of the next
 * start do not get it. */
static void *signal_to(uint32_t rank)
{
    return (void *)((uintptr_t)sim_job_number() * SIM_SERVERS_MAX + rank);
}

static bool takes_signal(const void *to, uint32_t *rank_out)
{
    *rank_out = (uint32_t)((uintptr_t)to % SIM_SERVERS_MAX);
    return (uintptr_t)to / SIM_SERVERS_MAX == sim_job_number();
}

static void ask_server(void *context)
{
    uint32_t rank;
    if (takes_signal(context, &rank))
        sim_job_ask(rank, true);
}

static void stop_server(void *context)
{
    uint32_t rank;
    if (takes_signal(context, &rank))
        sim_job_stop(rank);
}

/* A signal that all servers get, each at its time. */
static void signal_all(void (*fn)(void *context))
{
    for (uint32_t rank = 0; rank < sim_job_servers(); rank++)
        sim_at(sim_now() + sim_below(SECOND_US / 10), fn, signal_to(rank));
}

/* One of the kinds, by their shares. */
static bool chosen(uint64_t *left, uint64_t share)
{
    const bool is = *left < share;
    *left -= is ? 0 : share;
    return is;
}

static void do_mischief(void)
{
    const uint64_t all = world.kill + world.kill_at_file + world.stop + world.ask + world.pause +
                         world.kill_client + world.pause_client;
    uint64_t left = all != 0 ? sim_below(all) : 0;
    const uint32_t client = (uint32_t)sim_below(world.clients.n);
    const uint64_t pause_us = sim_now() + sim_below(sim_one_in(3) ? 90 * SECOND_US : SECOND_US);
    if (all == 0)
        return;
    if (chosen(&left, world.kill)) {
        world.n_kills++;
        sim_job_kill_one(any_server());
    } else if (chosen(&left, world.kill_at_file)) {
        sim_job_kill_at_file(any_server(), 1 + sim_below(120));
        if (sim_one_in(2))
            signal_all(ask_server);
    } else if (chosen(&left, world.stop)) {
        sim_log("the servers are to end");
        signal_all(stop_server);
    } else if (chosen(&left, world.ask)) {
        signal_all(ask_server);
    } else if (chosen(&left, world.pause)) {
        sim_log("a server is stopped for a while");
        sim_job_pause(any_server(), pause_us);
    } else if (chosen(&left, world.kill_client)) {
        if (sim_client_runs(client))
            sim_client_kill(client);
        sim_at(sim_now() + sim_below(SECOND_US), start_client, (void *)(uintptr_t)client);
    } else {
        sim_client_pause(client, pause_us);
    }
}

static void mischief(void *context)
{
    (void)context;
    if (world.over)
        return;
    if (sim_job_state() == SIM_JOB_SERVING || sim_one_in(4))
        do_mischief();
    sim_at(sim_now() + 1 + sim_below(world.mischief_us), mischief, NULL);
}

/* ---- servers that end ---- */

static void path_of(char path[512], const char *name)
{
    (void)snprintf(path, 512, "%.400s/%s", world.folder, name);
}

static void cut_power(void)
{
    char path[512];
    world.n_power_cuts++;
    world.job.boot++;
    world.job.safe = false; /* until servers serve again */
    sim_log("the power is cut");
    path_of(path, "checkpoints");
    sim_disk_cut_power(path);
    path_of(path, "data");
    sim_disk_cut_power(path);
}

static void start_again(void *context)
{
    psc_error_t error = PSC_ERROR_INIT;
    char data[512];
    (void)context;
    world.ending = false;
    const psc_status_t result = sim_job_result(&error);
    sim_job_options_t options = world.job;
    if (sim_job_never_served() && result != PSC_INTERRUPTED) {
        const bool refused = result == PSC_UNCLEAN && world.ended_badly;
        if (!refused && !world.faulty)
            sim_fail("the servers do not start: %s", error.message);
        options.disk_faults = 0;
        path_of(data, "data");
        SIM_CHECK(psc_file_remove_all(data, NULL) == PSC_OK);
    } else {
        world.ended_badly = result != PSC_OK && result != PSC_INTERRUPTED;
    }
    if (!sim_job_never_served())
        world.job.safe = true;
    if (result == PSC_INTERRUPTED && !world.over && sim_one_in(world.power_cut_one_in))
        cut_power();
    options.boot = world.job.boot;
    options.safe = world.job.safe;
    if (world.over) {
        options.disk_faults = 0;
        options.cold_faults = (ps_cold_faults_t){.fail_read_at = 0};
    }
    /* A log is of as many servers, and is empty after an end in order. */
    const bool logged = options.durability >= PS_DURABILITY_PUSH && result != PSC_OK;
    if (!logged && sim_one_in(world.other_number_one_in))
        options.n_servers = 1 + (uint32_t)sim_below(5);
    world.job.n_servers = options.n_servers;
    world.faulty = options.disk_faults != 0;
    sim_job_start(&options);
}

/* What has to be done about the servers. */
static void look_after_servers(void)
{
    if (world.ending)
        return;
    const sim_job_state_t state = sim_job_state();
    if (state == SIM_JOB_FAILED)
        sim_at(sim_now() + sim_below(SECOND_US / 20), kill_rest, NULL);
    else if (state == SIM_JOB_ENDED)
        sim_at(sim_now() + sim_below(SECOND_US), start_again, NULL);
    else
        return;
    world.ending = true;
}

/* ---- the end ---- */

/* Until it is so. */
static void run_until(bool (*is_so)(void), const char *what)
{
    const uint64_t end_us = sim_now() + PATIENCE_US;
    while (!is_so()) {
        if (!sim_step(end_us))
            sim_fail("this never comes: %s", what);
        look_after_servers();
    }
}

static bool servers_serve(void)
{
    return sim_job_state() == SIM_JOB_SERVING;
}

static bool clients_have_ended(void)
{
    for (uint32_t i = 0; i < world.clients.n; i++) {
        if (sim_client_runs(i))
            return false;
    }
    return true;
}

static bool reader_has_ended(void)
{
    return !sim_reader_runs();
}

static void read_table(void)
{
    run_until(servers_serve, "servers that serve");
    sim_reader_start();
    run_until(reader_has_ended, "the end of whoever reads");
}

static void stop_servers(void)
{
    psc_error_t error = PSC_ERROR_INIT;
    const uint64_t end_us = sim_now() + PATIENCE_US;
    world.ending = true; /* they are not started again by themselves */
    signal_all(stop_server);
    while (sim_job_state() != SIM_JOB_ENDED) {
        if (sim_job_state() == SIM_JOB_FAILED || !sim_step(end_us))
            sim_fail("the servers do not end in order");
    }
    if (sim_job_result(&error) != PSC_OK)
        sim_fail("the servers end badly: %s", error.message);
}

static void check_checkpoint(const char *folder, const char *name, bool newest)
{
    psp_saved_t *saved = NULL, *part = NULL;
    psc_error_t error = PSC_ERROR_INIT;
    psc_status_t st = psp_saved_open(folder, name, &saved, &error);
    for (uint32_t rank = 0; st == PSC_OK && rank < psp_saved_manifest(saved)->n_servers; rank++) {
        st = psp_saved_open_part(folder, psp_saved_manifest(saved), rank, &part, &error);
        if (st == PSC_OK)
            st = psp_saved_check_files(folder, psp_saved_manifest(saved), psp_saved_part(part),
                                       true, NULL, NULL, &error);
        psp_saved_destroy(part);
        part = NULL;
    }
    psp_saved_destroy(saved);
    if (st != PSC_OK && (newest || world.n_power_cuts == 0))
        sim_fail("checkpoint %s is not whole: %s", name, error.message);
}

static void check_checkpoints(void)
{
    char folder[512];
    psp_saved_names_t names;
    path_of(folder, "checkpoints");
    SIM_CHECK(psp_saved_list(folder, &names, NULL) == PSC_OK);
    for (size_t i = 0; i < names.n; i++)
        check_checkpoint(folder, names.all[i], i + 1 == names.n);
    world.n_checkpoints = names.n;
    psp_saved_names_clear(&names);
}

static void finish(void)
{
    world.over = true;
    sim_log("no more mischief");
    sim_weather = (sim_weather_t){.latency_us = 50, .jitter_us = 50, .late_us = 1};
    sim_job_set_disk_faults(0);
    world.job.disk_faults = 0;
    for (uint32_t rank = 0; rank < sim_job_servers(); rank++) {
        sim_job_pause(rank, 0);
        sim_job_kill_at_file(rank, 0);
    }
    for (uint32_t i = 0; i < world.clients.n; i++)
        sim_client_pause(i, 0);
    run_until(servers_serve, "servers that serve");
    sim_clients_stop();
    run_until(clients_have_ended, "the end of clients");
    read_table();
    stop_servers();
    check_checkpoints();
    world.job.n_servers = 1 + (uint32_t)sim_below(5);
    start_again(NULL);
    read_table();
    stop_servers();
}

/* ---- all ---- */

/* In a world where all goes fast. */
static bool enough_calls(void)
{
    uint64_t n_calls, n_told;
    sim_clients_count(&n_calls, &n_told);
    return n_calls >= CALLS_MAX;
}

static void end_of_process(int status)
{
    sim_fail("the product ends the process with status %d", status);
}

static void killed_at_file(sim_process_t *process)
{
    (void)process;
    world.n_kills++;
}

void sim_run(uint64_t seed, bool verbose, sim_result_t *result_out)
{
    memset(&world, 0, sizeof world);
    psc_log_set_level(verbose ? PSC_LOG_INFO : PSC_LOG_ERROR);
    psc_process_set_abort(end_of_process);
    sim_set_verbose(verbose);
    sim_tasks_begin(seed);
    world.folder = test_scratch_create();
    world.begin_us = sim_now();
    sim_set_folder(world.folder);
    draw_servers();
    draw_clients();
    draw_weather();
    draw_mischief();
    if (seed % 3 == 0) /* so that others go as they went before there was that */
        world.weather.damaged_one_in = 10 + seed % 200;
    sim_weather = world.weather;
    sim_disk_begin(killed_at_file);
    sim_net_begin(sim_model_answer, sim_model_hear);
    sim_model_begin(world.clients.n_ids);
    sim_clients_begin(&world.clients);
    world.faulty = world.job.disk_faults != 0;
    sim_job_start(&world.job);
    for (uint32_t i = 0; i < world.clients.n; i++)
        sim_client_start(i);
    sim_at(sim_now() + sim_below(world.mischief_us), mischief, NULL);
    while (!enough_calls() && sim_step(world.end_us))
        look_after_servers();
    finish();
    *result_out = (sim_result_t){.history = sim_history(),
                                 .simulated_us = sim_now() - world.begin_us,
                                 .n_starts = sim_model_starts(),
                                 .n_kills = world.n_kills,
                                 .n_power_cuts = world.n_power_cuts,
                                 .n_checkpoints = world.n_checkpoints};
    sim_clients_count(&result_out->n_calls, &result_out->n_told);
    sim_tasks_end();
    sim_net_end();
    sim_model_end();
    sim_disk_end();
    test_scratch_destroy(world.folder);
}
