/*
 * All servers start, or none: each waits until all are open, as ps/main.c does over MPI, and then
 * guests are let in. When one fails the job fails, and whoever runs the simulation kills the rest,
 * as MPI_Abort does.
 *
 * RocksDB's place is taken by tiers in memory, and calls by which the model (sim_model.c) learns of
 * cuts, names and commits are wrapped; all else is the product.
 */
#include "tests/sim/sim_servers.h"

#include "common/alloc.h"
#include "ps/checkpoint/keeper.h"
#include "ps/log/log_file.h"
#include "ps/rounds.h"
#include "ps/server.h"
#include "ps/table/logger.h"
#include "ps/table/shard_state.h"
#include "tests/sim/sim_disk.h"
#include "tests/sim/sim_model.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define POOL_BYTES ((size_t)1 << 20)
#define MEMORY_BYTES PS_STORE_MIN_MEMORY
#define GUESTS 64u
#define LOOK_US 200

typedef struct server {
    sim_process_t process;
    uint32_t rank;
    psp_pool_t *pool;
    psp_transport_t *door;
    ps_server_t *server; /* NULL: not open, or closed */
    ps_fellows_t fellows;
    bool opened, failed, serves;
    bool to_stop;     /* SIGTERM has come */
    uint64_t held_us; /* since when calls of clients are held for a cut */
    psc_error_t error;
} server_t;

static struct {
    sim_job_options_t options;
    server_t servers[SIM_SERVERS_MAX];
    uint64_t cluster;
    char data[512], checkpoints[512];
    const char *addresses[SIM_SERVERS_MAX];
    bool started, served, let_in;
} job;
static uint32_t n_jobs; /* so far */

psc_status_t sim_rocks_open(const char *dir, uint64_t memory_bytes, ps_cold_t **cold_out,
                            psc_error_t *error) __asm__("__wrap_ps_cold_rocks_open");
psc_status_t
sim_rocks_open_to_read(const char *dir, const char *log_dir, uint64_t memory_bytes,
                       ps_cold_t **cold_out,
                       psc_error_t *error) __asm__("__wrap_ps_cold_rocks_open_to_read");
void real_calls_hold(ps_calls_t *calls) __asm__("__real_ps_calls_hold");
void sim_calls_hold(ps_calls_t *calls) __asm__("__wrap_ps_calls_hold");
void real_logger_cut(struct ps_shard *shard) __asm__("__real_ps_logger_cut");
void sim_logger_cut(struct ps_shard *shard) __asm__("__wrap_ps_logger_cut");
psc_status_t real_keeper_begin(ps_keeper_t *keeper, char name[PSP_SAVED_NAME_MAX + 1],
                               psc_error_t *error) __asm__("__real_ps_keeper_begin");
psc_status_t sim_keeper_begin(ps_keeper_t *keeper, char name[PSP_SAVED_NAME_MAX + 1],
                              psc_error_t *error) __asm__("__wrap_ps_keeper_begin");
psc_status_t real_keeper_abandon(const ps_keeper_t *keeper, const char *name,
                                 psc_error_t *error) __asm__("__real_ps_keeper_abandon");
psc_status_t sim_keeper_abandon(const ps_keeper_t *keeper, const char *name,
                                psc_error_t *error) __asm__("__wrap_ps_keeper_abandon");
psc_status_t real_keeper_commit(ps_keeper_t *keeper, const char *name,
                                const ps_keeper_client_t *client,
                                psc_error_t *error) __asm__("__real_ps_keeper_commit");
psc_status_t sim_keeper_commit(ps_keeper_t *keeper, const char *name,
                               const ps_keeper_client_t *client,
                               psc_error_t *error) __asm__("__wrap_ps_keeper_commit");

void sim_log_boot(uint8_t boot[PS_LOG_BOOT_BYTES]) __asm__("__wrap_ps_log_boot");
void real_logger_push(struct ps_shard *shard,
                      ps_request_t *request) __asm__("__real_ps_logger_push");
void sim_logger_push(struct ps_shard *shard,
                     ps_request_t *request) __asm__("__wrap_ps_logger_push");
void real_guests_keep(struct ps_shard *shard, const ps_request_t *request,
                      psp_buffer_t *reply) __asm__("__real_ps_guests_keep");
void sim_guests_keep(struct ps_shard *shard, const ps_request_t *request,
                     psp_buffer_t *reply) __asm__("__wrap_ps_guests_keep");

/* ---- in the product's place ---- */

static server_t *current(void)
{
    return sim_current()->owner;
}

psc_status_t sim_rocks_open(const char *dir, uint64_t memory_bytes, ps_cold_t **cold_out,
                            psc_error_t *error)
{
    (void)memory_bytes;
    return ps_cold_memory_open(dir, &job.options.cold_faults, cold_out, error);
}

psc_status_t sim_rocks_open_to_read(const char *dir, const char *log_dir, uint64_t memory_bytes,
                                    ps_cold_t **cold_out, psc_error_t *error)
{
    (void)log_dir;
    (void)memory_bytes;
    return ps_cold_memory_open(dir, NULL, cold_out, error);
}

void sim_log_boot(uint8_t boot[PS_LOG_BOOT_BYTES])
{
    memset(boot, 0, PS_LOG_BOOT_BYTES);
    memcpy(boot, &job.options.boot, sizeof job.options.boot);
}

void sim_logger_push(struct ps_shard *shard, ps_request_t *request)
{
    if (!sim_current()->dead)
        sim_model_apply(current()->rank, &request->message);
    real_logger_push(shard, request);
}

/* Of every answer that is made for a guest, not of one that is given again. */
void sim_guests_keep(struct ps_shard *shard, const ps_request_t *request, psp_buffer_t *reply)
{
    if (!sim_current()->dead)
        sim_model_compare(current()->rank, &request->message, reply);
    real_guests_keep(shard, request, reply);
}

void sim_calls_hold(ps_calls_t *calls)
{
    current()->held_us = sim_now();
    real_calls_hold(calls);
}

/* A server that has waited for calls to come to their end for long enough, or is to end, cuts what
 * there is. */
static bool cuts_through(const server_t *server, const struct ps_shard *shard)
{
    return server->to_stop || ps_calls_missing(&shard->calls) != 0 ||
           sim_now() - server->held_us >= PS_ROUND_HOLD_US;
}

/* The moment of a cut. */
void sim_logger_cut(struct ps_shard *shard)
{
    if (!sim_current()->dead)
        sim_model_cut(current()->rank, job.options.n_servers, cuts_through(current(), shard));
    real_logger_cut(shard);
}

psc_status_t sim_keeper_begin(ps_keeper_t *keeper, char name[PSP_SAVED_NAME_MAX + 1],
                              psc_error_t *error)
{
    const psc_status_t st = real_keeper_begin(keeper, name, error);
    if (st == PSC_OK && !sim_current()->dead)
        sim_model_name(current()->rank, name);
    return st;
}

psc_status_t sim_keeper_abandon(const ps_keeper_t *keeper, const char *name, psc_error_t *error)
{
    if (!sim_current()->dead)
        sim_model_give_up(current()->rank);
    return real_keeper_abandon(keeper, name, error);
}

psc_status_t sim_keeper_commit(ps_keeper_t *keeper, const char *name,
                               const ps_keeper_client_t *client, psc_error_t *error)
{
    const psc_status_t st = real_keeper_commit(keeper, name, client, error);
    if (st == PSC_OK && !sim_current()->dead)
        sim_model_commit(name);
    return st;
}

static void tell(void *context, uint32_t to, const ps_round_word_t *word)
{
    server_t *server = context;
    sim_words_tell(&server->process, server->rank, to, word);
}

static bool hear(void *context, ps_round_word_t *word_out, uint32_t *from_out)
{
    server_t *server = context;
    return sim_words_hear(&server->process, server->rank, word_out, from_out);
}

/* ---- a server ---- */

static psc_status_t open_server(server_t *server)
{
    const sim_job_options_t *of_job = &job.options;
    server->fellows = (ps_fellows_t){.context = server, .tell = tell, .hear = hear};
    const ps_server_options_t options = {
        .data = job.data,
        .memory_bytes = MEMORY_BYTES,
        .cluster = job.cluster,
        .rank = server->rank,
        .n_servers = of_job->n_servers,
        .pool = server->pool,
        .n_guests = GUESTS,
        .lease_us = of_job->lease_us,
        .checkpoints = job.checkpoints,
        .resume = "auto",
        .keep = of_job->keep,
        .same_run = true,
        .durability = of_job->durability,
        .checkpoint_every_us = of_job->every_us,
        .fellows = of_job->n_servers != 1 ? &server->fellows : NULL,
        .addresses = job.addresses,
    };
    return ps_server_open(&options, &server->server, &server->error);
}

static bool all_opened(void)
{
    for (uint32_t rank = 0; rank < job.options.n_servers; rank++) {
        if (!job.servers[rank].opened || job.servers[rank].process.dead)
            return false;
    }
    return true;
}

static bool any_failed(void)
{
    for (uint32_t rank = 0; rank < job.options.n_servers; rank++) {
        if (job.servers[rank].failed)
            return true;
    }
    return false;
}

/* All have their rows: what they go on from is known, and guests may come. */
static void let_guests_in(void)
{
    const char *name = ps_server_resumed(job.servers[0].server);
    for (uint32_t rank = 1; rank < job.options.n_servers; rank++) {
        const char *other = ps_server_resumed(job.servers[rank].server);
        if (strcmp(name != NULL ? name : "", other != NULL ? other : "") != 0)
            sim_fail("server 0 goes on from %s, and server %" PRIu32 " from %s", name, rank, other);
    }
    const ps_durability_t level = job.options.durability;
    sim_model_restore(name, job.options.n_servers,
                      level == PS_DURABILITY_SYNC ||
                          (level == PS_DURABILITY_PUSH && job.options.safe));
    for (uint32_t rank = 0; rank < job.options.n_servers; rank++) {
        sim_door_let_in(job.servers[rank].door);
        job.servers[rank].serves = true;
        if (job.servers[rank].to_stop)
            ps_server_stop(job.servers[rank].server);
    }
    job.served = true;
}

static void serve(server_t *server)
{
    psc_error_t ignored = PSC_ERROR_INIT;
    psc_status_t st = ps_server_run(server->server, server->door, &server->error);
    server->serves = false;
    if (st != PSC_OK && !server->process.dead) {
        sim_log("%s fails: %.150s", server->process.label, server->error.message);
        server->failed = true;
        server->process.dead = true; /* MPI_Abort */
    }
    ps_server_t *closing = server->server;
    server->server = NULL;
    if (st != PSC_OK) {
        (void)!ps_server_close(closing, true, false, &ignored);
        return;
    }
    st = ps_server_close(closing, false, false, &server->error);
    if (st != PSC_OK && !server->process.dead) {
        sim_log("%s ends badly: %.150s", server->process.label, server->error.message);
        server->failed = true;
    }
}

static void run_server(void *argument)
{
    server_t *server = argument;
    psc_error_t ignored = PSC_ERROR_INIT;
    SIM_CHECK(psp_pool_create(POOL_BYTES, &server->pool, NULL) == PSC_OK);
    server->door = sim_door_create(server->rank, &server->process, server->pool);
    psc_status_t st = open_server(server);
    if (st != PSC_OK && !server->process.dead) {
        sim_log("%s does not start: %.150s", server->process.label, server->error.message);
        server->failed = true;
    }
    server->opened = st == PSC_OK;
    while (!server->process.dead && !any_failed() && !job.let_in && !all_opened())
        sim_wait_until(sim_now() + LOOK_US);
    if (st == PSC_OK && !server->process.dead && !any_failed()) {
        if (!job.let_in) {
            job.let_in = true;
            let_guests_in();
        }
        serve(server);
    } else if (st == PSC_OK) {
        ps_server_t *closing = server->server;
        server->server = NULL;
        (void)!ps_server_close(closing, true, true, &ignored);
    }
    psp_transport_destroy(server->door);
    psp_pool_destroy(server->pool);
}

/* ---- the job ---- */

void sim_job_start(const sim_job_options_t *options)
{
    memset(&job, 0, sizeof job);
    job.options = *options;
    job.started = true;
    n_jobs++;
    job.cluster = sim_below(UINT64_MAX) | 1;
    (void)snprintf(job.data, sizeof job.data, "%.400s/data", options->folder);
    (void)snprintf(job.checkpoints, sizeof job.checkpoints, "%.400s/checkpoints", options->folder);
    sim_words_clear();
    sim_model_start();
    sim_log("%" PRIu32 " servers start", options->n_servers);
    for (uint32_t rank = 0; rank < options->n_servers; rank++)
        job.addresses[rank] = sim_net_address(rank);
    for (uint32_t rank = 0; rank < options->n_servers; rank++) {
        server_t *server = &job.servers[rank];
        server->rank = rank;
        server->error = (psc_error_t)PSC_ERROR_INIT;
        server->process = (sim_process_t){
            .owner = server, .disk_us = options->disk_us, .disk_faults = options->disk_faults};
        (void)snprintf(server->process.label, sizeof server->process.label, "server %" PRIu32,
                       rank);
        (void)sim_task_start(&server->process, run_server, server);
    }
}

sim_job_state_t sim_job_state(void)
{
    bool any_left = false, any_dead = false;
    if (!job.started)
        return SIM_JOB_NONE;
    for (uint32_t rank = 0; rank < job.options.n_servers; rank++) {
        any_left = any_left || job.servers[rank].process.n_tasks != 0;
        any_dead = any_dead || job.servers[rank].process.dead;
    }
    if (!any_left)
        return SIM_JOB_ENDED;
    if (any_dead || (any_failed() && job.served))
        return SIM_JOB_FAILED;
    return job.served ? SIM_JOB_SERVING : SIM_JOB_STARTING;
}

psc_status_t sim_job_result(psc_error_t *error_out)
{
    for (uint32_t rank = 0; rank < job.options.n_servers; rank++) {
        if (!job.servers[rank].failed)
            continue;
        *error_out = job.servers[rank].error;
        return error_out->code;
    }
    for (uint32_t rank = 0; rank < job.options.n_servers; rank++) {
        if (job.servers[rank].process.dead)
            return psc_error_set(error_out, PSC_INTERRUPTED, "server %" PRIu32 " was killed", rank);
    }
    return PSC_OK;
}

bool sim_job_never_served(void)
{
    return !job.served;
}

uint32_t sim_job_servers(void)
{
    return job.options.n_servers;
}

uint32_t sim_job_number(void)
{
    return n_jobs;
}

void sim_job_kill_one(uint32_t rank)
{
    sim_kill(&job.servers[rank].process);
}

void sim_job_kill(void)
{
    for (uint32_t rank = 0; rank < job.options.n_servers; rank++)
        job.servers[rank].process.dead = true; /* none of them sees another end */
    sim_log("the servers are killed");
    for (uint32_t rank = 0; rank < job.options.n_servers; rank++)
        sim_kill(&job.servers[rank].process);
}

void sim_job_stop(uint32_t rank)
{
    job.servers[rank].to_stop = true;
    if (job.servers[rank].serves)
        ps_server_stop(job.servers[rank].server);
}

void sim_job_ask(uint32_t rank, bool passed_on)
{
    if (job.servers[rank].serves)
        ps_server_ask(job.servers[rank].server, passed_on);
}

void sim_job_pause(uint32_t rank, uint64_t until_us)
{
    if (job.servers[rank].serves)
        job.servers[rank].process.stopped_until_us = until_us;
}

void sim_job_kill_at_file(uint32_t rank, uint64_t n)
{
    job.servers[rank].process.files_left = n;
}

void sim_job_set_disk_faults(uint32_t faults)
{
    job.options.disk_faults = faults;
    for (uint32_t rank = 0; rank < job.options.n_servers; rank++)
        job.servers[rank].process.disk_faults = faults;
}
