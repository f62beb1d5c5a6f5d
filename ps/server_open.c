/*
 * How a server comes into being: which checkpoint and log it goes on from, the data directory, the
 * cold tier as the checkpoint has it, store, shard, and who makes checkpoints.
 *
 * What can be refused is looked at first: the checkpoint whole, the log, then the claim of the data
 * directory, so that a start that is refused has changed nothing. Threads: the owner's; the store's
 * and the writer's begin here.
 */
#include "ps/server_inside.h"

#include "common/alloc.h"
#include "common/clock.h"
#include "common/hash.h"
#include "common/log.h"
#include "ps/serve/serve.h"
#include "ps/store/cold.h"
#include "ps/store/share.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#define WINDOW_BYTES ((size_t)8 << 20)       /* of one client, which asks for no more by itself */
#define WINDOWS_BYTES ((size_t)32 << 20)     /* of all */
#define GUEST_WINDOW_BYTES ((size_t)4 << 20) /* of one guest; their transport bounds all */
#define LEAST_MESSAGE_BYTES ((size_t)64 << 10)

/* What messages of one worker may take here, so that those of all have room. */
static size_t choose_window(uint32_t n_workers)
{
    size_t bytes = WINDOWS_BYTES / (n_workers != 0 ? n_workers : 1);
    return bytes < WINDOW_BYTES ? bytes : WINDOW_BYTES;
}

/* Several messages of each worker are here at once: 1 MiB from 32 MiB of memory up, less below, and
 * with more than 32 workers. */
static size_t choose_max_message(uint64_t memory_bytes, uint32_t n_workers)
{
    uint64_t bytes = memory_bytes / 32;
    if (bytes > choose_window(n_workers))
        bytes = choose_window(n_workers);
    if (bytes > PSP_MAX_MESSAGE_BYTES)
        bytes = PSP_MAX_MESSAGE_BYTES;
    return bytes > LEAST_MESSAGE_BYTES ? (size_t)bytes : LEAST_MESSAGE_BYTES;
}

/* What came after the checkpoint to go on from. */
static psc_status_t find_log(ps_server_t *server, psc_error_t *error)
{
    const ps_server_options_t *options = &server->options;
    const ps_server_log_options_t of_log = {.checkpoints = options->checkpoints,
                                            .lineage = ps_keeper_lineage(server->keeper),
                                            .rank = options->rank,
                                            .n_servers = options->n_servers,
                                            .n_workers = options->n_workers,
                                            .durability = options->durability,
                                            .resume = options->resume,
                                            .wake = ps_server_wake,
                                            .wake_context = server};
    psc_status_t st = ps_server_log_find(&of_log, server->restore, &server->log, error);
    if (st == PSC_OK && server->log != NULL && server->restore == NULL && options->same_run) {
        server->options.cluster = ps_server_log_cluster(server->log);
        ps_keeper_set_cluster(server->keeper, server->options.cluster);
    }
    return st;
}

/* Tables that go on with another optimizer. */
static psc_status_t reset_optimizers(const ps_server_t *server, psc_error_t *error)
{
    const ps_server_options_t *options = &server->options;
    psc_status_t st = PSC_OK;
    if (options->n_resets != 0 && server->restore == NULL)
        return psc_error_set(error, PSC_INVALID_ARGUMENT,
                             "--reset-optimizer %.80s: there is no checkpoint to go on from",
                             options->resets[0]);
    for (size_t i = 0; st == PSC_OK && i < options->n_resets; i++)
        st = ps_restore_reset(server->restore, options->resets[i], error);
    return st;
}

/* The checkpoint whose weights the run begins with, which may be another run's. */
static psc_status_t open_weights(ps_server_t *server, psc_error_t *error)
{
    const ps_server_options_t *options = &server->options;
    if (options->weights == NULL)
        return PSC_OK;
    if (server->restore != NULL) {
        psc_log(PSC_LOG_INFO, "goes on from %s, so --weights %s is left alone",
                ps_restore_name(server->restore), options->weights);
        return PSC_OK;
    }
    char *folder = psc_strdup(options->weights);
    char *slash = folder != NULL ? strrchr(folder, '/') : NULL;
    if (folder == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "out of memory for a path");
    if (slash != NULL)
        *slash = '\0';
    psc_status_t st =
        ps_restore_find_weights(slash != NULL ? folder : ".", slash != NULL ? slash + 1 : folder,
                                options->rank, options->n_servers, &server->restore, error);
    psc_free(folder);
    server->options.same_run = false;
    return st;
}

/* Which checkpoint, whole; then how it is taken. */
static psc_status_t find_checkpoint(ps_server_t *server, psc_error_t *error)
{
    const ps_server_options_t *options = &server->options;
    psc_status_t st = PSC_OK;
    if (options->checkpoints != NULL)
        st = ps_restore_find(options->checkpoints, options->resume, options->rank,
                             options->n_servers, options->n_workers != 0, &server->restore, error);
    const bool resumes = server->restore != NULL;
    if (st == PSC_OK)
        st = open_weights(server, error);
    if (st == PSC_OK)
        st = reset_optimizers(server, error);
    if (st == PSC_OK && !resumes && server->restore != NULL)
        ps_restore_weights(server->restore);
    if (st == PSC_OK && server->restore != NULL &&
        ps_restore_servers(server->restore) != options->n_servers)
        psc_log(PSC_LOG_INFO, "checkpoint %s is of %" PRIu32 " servers: its rows go to %" PRIu32,
                ps_restore_name(server->restore), ps_restore_servers(server->restore),
                options->n_servers);
    return st;
}

/* Nobody trains on a checkpoint that is only shown, and there must be one. */
static psc_status_t check_read_only(ps_server_t *server, psc_error_t *error)
{
    const ps_server_options_t *options = &server->options;
    server->options.same_run = false;
    if (options->n_workers != 0)
        return psc_error_set(error, PSC_INVALID_ARGUMENT,
                             "--read-only serves guests, and this job has %" PRIu32
                             " workers: start the servers without any",
                             options->n_workers);
    if (server->restore == NULL)
        return psc_error_set(error, PSC_NOT_FOUND,
                             "--read-only: there is no checkpoint to serve in %s (--resume %s)",
                             options->checkpoints, options->resume);
    return PSC_OK;
}

/* Its rows are a copy that nobody misses. So that the data of a run that writes is never taken for
 * one, nor the other way round, it is of a lineage of its own. */
static uint64_t data_lineage(const ps_server_t *server)
{
    const uint64_t lineage = server->keeper != NULL ? ps_keeper_lineage(server->keeper) : 0;
    return server->options.read_only ? psc_mix64(lineage) | 1 : lineage;
}

/* The folder of checkpoints, and the one to go on from. */
static psc_status_t open_checkpoints(ps_server_t *server, psc_error_t *error)
{
    const ps_server_options_t *options = &server->options;
    const ps_keeper_options_t keeper = {.folder = options->checkpoints,
                                        .rank = options->rank,
                                        .n_servers = options->n_servers,
                                        .cluster = options->cluster,
                                        .read_only = options->read_only,
                                        .keep = options->keep};
    psc_status_t st = PSC_OK;
    if (options->checkpoints != NULL)
        st = ps_keeper_open(&keeper, &server->keeper, error);
    if (st == PSC_OK)
        st = find_checkpoint(server, error);
    if (st == PSC_OK && options->read_only)
        st = check_read_only(server, error);
    if (st != PSC_OK || options->checkpoints == NULL)
        return st;
    if (ps_server_resumed(server) != NULL)
        ps_keeper_stand_at(server->keeper, ps_restore_name(server->restore),
                           ps_restore_with_state(server->restore));
    if (ps_server_resumed(server) != NULL && options->same_run) {
        server->options.cluster = ps_restore_cluster(server->restore);
        ps_keeper_set_cluster(server->keeper, server->options.cluster);
    }
    return options->read_only ? PSC_OK : find_log(server, error);
}

/* Directory and cold tier, empty or as a checkpoint has them. */
static psc_status_t open_cold(ps_server_t *server, ps_cold_t **cold_out, psc_error_t *error)
{
    const ps_server_options_t *options = &server->options;
    const ps_data_owner_t owner = {.cluster = options->cluster,
                                   .rank = options->rank,
                                   .n_servers = options->n_servers,
                                   .lineage = data_lineage(server)};
    const uint64_t memory_bytes = ps_cold_rocks_memory(options->memory_bytes);
    ps_restore_way_t way = {.memory_bytes = memory_bytes};
    ps_cold_t *cold = NULL;
    psc_status_t st = ps_data_dir_claim(options->data, &owner, &server->dir, error);
    if (st == PSC_OK)
        way.scratch = ps_data_dir_staging(server->dir);
    if (st == PSC_OK && server->restore != NULL)
        st = ps_restore_files(server->restore, ps_data_dir_rocksdb(server->dir), error);
    if (st == PSC_OK)
        st = ps_cold_rocks_open(ps_data_dir_rocksdb(server->dir), memory_bytes, &cold, error);
    if (st == PSC_OK && server->restore != NULL)
        st = ps_restore_rows(server->restore, &way, cold, error);
    if (st == PSC_OK)
        *cold_out = cold;
    else if (cold != NULL)
        cold->ops->destroy(cold);
    return st;
}

static psc_status_t start_writer(ps_server_t *server, psc_error_t *error)
{
    const ps_writer_options_t options = {.keeper = server->keeper,
                                         .rank = server->options.rank,
                                         .staging = ps_data_dir_staging(server->dir),
                                         .wake = ps_server_wake,
                                         .wake_context = server};
    return server->keeper != NULL ? ps_writer_start(&options, &server->writer, error) : PSC_OK;
}

static psc_status_t open_rounds(ps_server_t *server, psc_error_t *error)
{
    const ps_server_options_t *options = &server->options;
    const ps_server_rounds_options_t of_rounds = {.rank = options->rank,
                                                  .n_servers = options->n_servers,
                                                  .every_us = options->checkpoint_every_us,
                                                  .last = options->n_workers == 0 ||
                                                          options->n_servers == 1,
                                                  .shard = server->shard,
                                                  .fellows = options->fellows};
    if (server->writer == NULL || options->read_only ||
        (options->n_servers != 1 && options->fellows == NULL))
        return PSC_OK;
    return ps_server_rounds_create(&of_rounds, &server->rounds, error);
}

psc_status_t ps_server_open_parts(ps_server_t *server, psc_error_t *error)
{
    const ps_server_options_t *options = &server->options;
    server->held = psc_alloc_zeroed((size_t)options->n_workers + 1, sizeof *server->held);
    if (server->held == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "out of memory for a server");
    psc_status_t st = PSC_OK;
    if (options->surroundings != NULL)
        st = ps_watch_create(options->n_workers, options->n_servers, options->stopped_us,
                             &server->watch, error);
    if (st == PSC_OK)
        st = open_checkpoints(server, error);
    ps_store_options_t store_options = {
        .memory_bytes = options->memory_bytes, .wake = ps_server_wake, .wake_context = server};
    if (st == PSC_OK)
        st = open_cold(server, &store_options.cold, error);
    if (st != PSC_OK)
        return st;
    st = ps_store_open(&store_options, &server->store, error);
    if (st != PSC_OK) {
        store_options.cold->ops->destroy(store_options.cold);
        return st;
    }
    if (options->direct == PS_DIRECT_ON)
        st = ps_store_share(server->store, error);
    if (st == PSC_OK)
        st = start_writer(server, error);
    if (st != PSC_OK)
        return st;
    if (gethostname(server->host, sizeof server->host - 1) != 0)
        server->host[0] = '\0';
    ps_shard_options_t shard_options = {
        .serve = ps_serve_functions,
        .store = server->store,
        .pool = options->pool,
        .reply = ps_server_send_reply,
        .reply_context = server,
        .cluster = options->cluster,
        .rank = options->rank,
        .n_servers = options->n_servers,
        .n_workers = options->n_workers,
        .max_message_bytes = choose_max_message(options->memory_bytes, options->n_workers),
        .window_bytes = choose_window(options->n_workers),
        .host = server->host,
        .direct = options->direct,
        .n_guests = options->n_guests,
        .lease_us = options->lease_us,
        .guest_window_bytes = GUEST_WINDOW_BYTES,
        .addresses = options->addresses,
        .writer = server->writer != NULL ? ps_writer_interface(server->writer) : NULL,
        .read_only = options->read_only,
        .resumed = ps_server_resumed(server),
    };
    st = ps_shard_create(&shard_options, &server->shard, error);
    if (st == PSC_OK)
        ps_shard_set_time(server->shard, psc_clock_us());
    if (st == PSC_OK && server->restore != NULL)
        st = ps_restore_shard(server->restore, server->shard, options->same_run, error);
    if (st == PSC_OK)
        st = ps_server_log_open(server->log, server->shard, error);
    return st == PSC_OK ? open_rounds(server, error) : st;
}
