/*
 * Which log counts. Servers without workers that go on from the newest checkpoint (or from none
 * yet) replay what came after it. Workers go on from a checkpoint that has their own state, and
 * push anew what came after it; and whoever names a checkpoint means that one. So in these two
 * cases the log is left out, which is said, and a new chain begins.
 *
 * Where there is a log from earlier runs it is kept in step (a segment for each start and each cut)
 * also by servers that log nothing themselves, so that it can never be replayed onto what it does
 * not fit.
 */
#include "ps/server_log.h"

#include "common/alloc.h"
#include "common/hash.h"
#include "common/log.h"
#include "ps/log/log_replay.h"
#include "ps/log/log_writer.h"
#include "ps/table/shard_state.h"

#include <inttypes.h>
#include <string.h>

struct ps_server_log {
    ps_server_log_options_t options;
    ps_log_chain_t chain;
    bool made; /* the segment that the run begins with */
    const ps_shard_t *shard;
    ps_log_writer_t *writer;
};

static psc_status_t find_cuts(const ps_restore_t *restore, ps_log_start_t *start,
                              psc_error_t *error)
{
    start->n_before =
        restore != NULL && !ps_restore_is_weights(restore) ? ps_restore_servers(restore) : 0;
    start->cut_segment = psc_alloc_zeroed((size_t)start->n_before + 1, sizeof(uint64_t));
    if (start->cut_segment == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "out of memory for a log");
    psc_status_t st = PSC_OK;
    for (uint32_t i = 0; st == PSC_OK && i < start->n_before; i++)
        st = ps_restore_log_segment(restore, i, &start->cut_segment[i], error);
    return st;
}

/* Pushes of a log do not say which optimizer they were for, nor which rows they found: none are
 * replayed into others. */
static psc_status_t check_renewed(const ps_server_log_options_t *options,
                                  const ps_restore_t *restore, const ps_log_chain_t *chain,
                                  psc_error_t *error)
{
    if (restore == NULL || !ps_restore_renews(restore))
        return PSC_OK;
    const char *option = ps_restore_is_weights(restore) ? "--weights" : "--reset-optimizer";
    if (options->durability >= PS_DURABILITY_PUSH)
        return psc_error_set(error, PSC_INVALID_ARGUMENT,
                             "%s makes rows that are in no checkpoint yet, and a log of what "
                             "follows would not fit to any: start with --durability checkpoint "
                             "until there is one",
                             option);
    if (chain->replay_bytes == 0)
        return PSC_OK;
    return psc_error_set(error, PSC_MISMATCH,
                         "%s has changes that no checkpoint has yet, of rows as they were before: "
                         "start once without %s, which replays them, and let the servers end in "
                         "order; --resume says to go on without them (the name of a checkpoint, or "
                         "none)",
                         chain->folder, option);
}

psc_status_t ps_server_log_find(const ps_server_log_options_t *options, const ps_restore_t *restore,
                                ps_server_log_t **log_out, psc_error_t *error)
{
    ps_log_start_t start = {
        .checkpoints = options->checkpoints,
        .lineage = options->lineage,
        .rank = options->rank,
        .n_servers = options->n_servers,
        .base = restore != NULL && !ps_restore_is_weights(restore) ? ps_restore_name(restore) : "",
        .replay = options->n_workers == 0 && strcmp(options->resume, "auto") == 0};
    ps_server_log_t *log = psc_alloc_zeroed(1, sizeof *log);
    *log_out = NULL;
    if (log == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "out of memory for a log");
    log->options = *options;
    psc_status_t st = find_cuts(restore, &start, error);
    if (st == PSC_OK)
        st = ps_log_chain_find(&start, &log->chain, error);
    psc_free(start.cut_segment);
    if (st == PSC_OK)
        st = check_renewed(options, restore, &log->chain, error);
    if (st == PSC_OK && (log->chain.follows || options->durability >= PS_DURABILITY_PUSH)) {
        *log_out = log;
        return PSC_OK;
    }
    ps_log_chain_clear(&log->chain);
    psc_free(log);
    return st;
}

uint64_t ps_server_log_cluster(const ps_server_log_t *log)
{
    const uint64_t cluster = psc_mix64(log->options.lineage);
    return cluster != 0 ? cluster : 1;
}

/* What became of the end of the log. */
static void say_end(const ps_log_chain_t *chain, const ps_log_replayed_t *replayed)
{
    if (replayed->other_boot && replayed->level == PS_LOG_LEVEL_WRITTEN)
        psc_log(chain->replay_bytes != 0 ? PSC_LOG_WARN : PSC_LOG_INFO, /* none: all ended well */
                "%s was written with --durability push before this machine was started (or on "
                "another one): of segment %" PRIu64 " the first %" PRIu64
                " bytes are there, whole, and are gone on from. Pushes of the last seconds before "
                "a power cut may be lost, though acknowledged; behind that place %" PRIu64
                " bytes (%" PRIu64 " later records) are left out",
                chain->folder, chain->to, replayed->end, replayed->cut_off, replayed->beyond);
    else if (replayed->cut_off != 0)
        psc_log(PSC_LOG_INFO,
                "the last %" PRIu64 " bytes of %s were of an unfinished record, which nobody was "
                "told of",
                replayed->cut_off, chain->folder);
}

static psc_status_t replay(ps_server_log_t *log, ps_shard_t *shard, psc_error_t *error)
{
    ps_log_replayed_t replayed = {.records = 0};
    if (log->chain.dropped_bytes != 0)
        psc_log(PSC_LOG_WARN,
                "%s has changes that are not in %s (%" PRIu64 " bytes): they are left out, since "
                "%s",
                log->chain.folder,
                log->chain.head.base[0] != '\0' ? log->chain.head.base : "any checkpoint",
                log->chain.dropped_bytes,
                log->options.n_workers != 0 ? "workers go on from what they were at the checkpoint"
                                            : "--resume says to go on from there");
    psc_status_t st = ps_log_replay(&log->chain, shard, &replayed, error);
    if (st == PSC_OK && replayed.records != 0)
        psc_log(PSC_LOG_INFO,
                "replayed %" PRIu64 " pushes of %s (%" PRIu64 " records, %" PRIu64 " bytes)",
                replayed.pushes, log->chain.folder, replayed.records, replayed.bytes);
    if (st == PSC_OK)
        say_end(&log->chain, &replayed);
    return st;
}

psc_status_t ps_server_log_open(ps_server_log_t *log, ps_shard_t *shard, psc_error_t *error)
{
    if (log == NULL)
        return PSC_OK;
    /* No number of a session is given twice, whatever of a log was lost with the machine. */
    shard->sessions.n_given = ps_restore_count_given(shard->sessions.n_given);
    psc_status_t st = replay(log, shard, error);
    if (log->options.durability >= PS_DURABILITY_PUSH)
        log->chain.head.level = log->options.durability == PS_DURABILITY_SYNC
                                    ? PS_LOG_LEVEL_SYNCED
                                    : PS_LOG_LEVEL_WRITTEN;
    if (st == PSC_OK)
        st = ps_log_chain_begin(&log->chain, log->options.checkpoints, error);
    log->made = st == PSC_OK;
    const ps_log_writer_options_t options = {.checkpoints = log->options.checkpoints,
                                             .folder = log->chain.folder,
                                             .head = log->chain.head,
                                             .records =
                                                 log->options.durability >= PS_DURABILITY_PUSH,
                                             .sync = log->options.durability == PS_DURABILITY_SYNC,
                                             .wake = log->options.wake,
                                             .wake_context = log->options.wake_context};
    if (st == PSC_OK)
        st = ps_log_writer_start(&options, &log->writer, error);
    if (st == PSC_OK)
        ps_logger_start(shard, ps_log_writer_sink(log->writer));
    log->shard = shard;
    return st;
}

void ps_server_log_begin(const ps_server_log_t *log)
{
    if (log != NULL)
        ps_log_chain_prune(&log->chain);
}

void ps_server_log_stop(ps_server_log_t *log)
{
    uint64_t bytes, groups;
    if (log == NULL)
        return;
    ps_log_writer_stop(log->writer);
    if (log->writer == NULL || log->shard->logger.n_records == 0)
        return;
    const ps_logger_t *logger = &log->shard->logger;
    logger->sink->count(logger->sink->context, &bytes, &groups);
    psc_log(PSC_LOG_INFO,
            "log: %" PRIu64 " records, %" PRIu64 " bytes in %" PRIu64 " writes; %" PRIu64
            " answers waited for them, %" PRIu64 " us on average, the longest %" PRIu64 " us",
            logger->n_records, bytes, groups, logger->n_replies_held,
            logger->n_replies_held != 0 ? logger->held_us / logger->n_replies_held : 0,
            logger->longest_us);
}

void ps_server_log_close(ps_server_log_t *log, bool discard)
{
    if (log == NULL)
        return;
    ps_log_writer_destroy(log->writer);
    if (discard && log->made)
        ps_log_chain_discard(&log->chain);
    ps_log_chain_clear(&log->chain);
    psc_free(log);
}
