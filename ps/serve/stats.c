/*
 * Stats: every counter of this server in one reply. Names are stable: a client sums equal names
 * over the servers, so each is a count or a size that adds up.
 */
#include "ps/serve/serve.h"

#include <string.h>

#define KIND(name, kind)                                                                           \
    {                                                                                              \
        "requests." name, counters->requests[kind]                                                 \
    }

#define LOG_COUNTERS 5u
#define ACCOUNT_COUNTERS 4u
#define OTHER_COUNTERS (LOG_COUNTERS + ACCOUNT_COUNTERS)

/* Adds those of the log to n counters; how many there are then. */
static size_t count_log(const ps_logger_t *logger, size_t n, psp_counter_t *counters_out)
{
    uint64_t bytes = 0, groups = 0;
    if (logger->sink != NULL)
        logger->sink->count(logger->sink->context, &bytes, &groups);
    const psp_counter_t all[LOG_COUNTERS] = {
        {"log.records", logger->n_records},
        {"log.bytes", bytes},
        {"log.groups", groups},
        {"log.replies_held", logger->n_replies_held},
        {"log.held_us", logger->held_us},
    };
    memcpy(counters_out + n, all, sizeof all);
    return n + LOG_COUNTERS;
}

/* The same with those of the log and of the workers' account. */
static size_t count_others(const ps_shard_t *shard, size_t n, psp_counter_t *counters_out)
{
    const psp_tally_t applied = shard->account.applied;
    const psp_tally_t told = ps_account_told(&shard->account, &shard->sessions, shard->clock);
    const psp_counter_t all[ACCOUNT_COUNTERS] = {
        {PS_ACCOUNT_PUSHES, told.pushes},
        {PS_ACCOUNT_ROWS, told.rows},
        {PS_ACCOUNT_PUSHES_APPLIED, applied.pushes},
        {PS_ACCOUNT_ROWS_APPLIED, applied.rows},
    };
    n = count_log(&shard->logger, n, counters_out);
    memcpy(counters_out + n, all, sizeof all);
    return n + ACCOUNT_COUNTERS;
}

size_t ps_serve_counters(const ps_shard_t *shard, psp_counter_t counters_out[PSP_COUNTERS_MAX])
{
    const ps_shard_counters_t *counters = &shard->counters;
    ps_store_counters_t store;
    ps_store_counters(shard->options.store, &store);
    const psp_counter_t all[] = {
        KIND("hello", PSP_HELLO),
        KIND("open_table", PSP_OPEN_TABLE),
        KIND("find_table", PSP_FIND_TABLE),
        KIND("pull", PSP_PULL),
        KIND("push", PSP_PUSH),
        KIND("clock", PSP_CLOCK),
        KIND("barrier", PSP_BARRIER),
        KIND("stats", PSP_STATS),
        KIND("attach", PSP_ATTACH),
        KIND("touches", PSP_TOUCHES),
        KIND("goodbye", PSP_GOODBYE),
        KIND("prefetch", PSP_PREFETCH),
        KIND("export", PSP_EXPORT),
        KIND("import", PSP_IMPORT),
        KIND("checkpoint", PSP_CHECKPOINT),
        KIND("watch", PSP_WATCH),
        {"requests.refused", counters->refused},
        {"requests.malformed", counters->malformed},
        {"requests.waited_clock", counters->waits_clock},
        {"requests.waited_room", counters->waits_room},
        {"requests.waited_rows", counters->waits_rows},
        {"rows.pulled", counters->rows_pulled},
        {"rows.pulled_initial", counters->rows_initial},
        {"rows.pulled_scan", counters->rows_scanned},
        {"rows.pulled_current", counters->rows_current},
        {"rows.pulled_not_admitted", counters->growth.pulled_not_admitted},
        {"rows.pulled_expired", counters->growth.pulled_expired},
        {"rows.pulled_late", counters->rows_late},
        {"rows.announced", counters->rows_announced},
        {"rows.announced_dropped", counters->announced_dropped},
        {"rows.touched", counters->rows_touched},
        {"rows.pushed", counters->rows_pushed},
        {"rows.pushed_returned", counters->rows_returned},
        {"rows.pushed_not_admitted", counters->growth.dropped},
        {"rows.pushed_shared", counters->growth.shared},
        {"rows.renewed", counters->growth.renewed},
        {"rows.due", counters->growth.due},
        {"rows.freed", counters->growth.freed},
        {"sweeps", counters->growth.sweeps},
        {"rows.created", counters->rows_created},
        {"rows.exported", counters->rows_exported},
        {"rows.imported", counters->rows_imported},
        {"rows.watched", counters->rows_watched},
        {"rows.pushed_pad", counters->rows_padded},
        {"push.repeated", counters->pushes_repeated},
        {"push.merged", counters->pushes_merged},
        {"push.deferred", counters->pushes_deferred},
        {"clocks.summed", counters->clocks_summed},
        {"guests", counters->guests},
        {"guests.lapsed", counters->guests_lapsed},
        {"guests.requests_early", counters->requests_early},
        {"guests.requests_again", counters->requests_again},
        {"bytes.in", counters->bytes_in},
        {"bytes.out", counters->bytes_out},
        {"store.rows_hot", store.rows_hot},
        {"store.rows_new", store.rows_new},
        {"store.hits", store.hits},
        {"store.misses", store.misses},
        {"store.evicted", store.evicted},
        {"store.erased", store.erased},
        {"store.written_back", store.written_back},
        {"store.cold_reads", store.cold_reads},
        {"store.cold_found", store.cold_found},
        {"store.fetched_ahead", store.fetched_ahead},
        {"store.write_stalls", store.write_stalls},
        {"store.write_stall_us", store.write_stall_us},
        {"store.bytes_hot", store.bytes_hot},
        {"store.bytes_budget", store.bytes_budget},
        {"checkpoints", shard->saver.n_made},
        {"checkpoints.failed", shard->saver.n_failed},
    };
    _Static_assert(sizeof all / sizeof all[0] + OTHER_COUNTERS <= PSP_COUNTERS_MAX, "they fit");
    memcpy(counters_out, all, sizeof all);
    return count_others(shard, sizeof all / sizeof all[0], counters_out);
}

psc_status_t ps_serve_stats(ps_shard_t *shard, ps_session_t *session, ps_request_t *request,
                            psc_error_t *error)
{
    (void)session;
    psp_counter_t all[PSP_COUNTERS_MAX];
    const size_t n = ps_serve_counters(shard, all);
    psp_message_t reply = {
        .kind = PSP_STATS_REPLY,
        .u.stats_reply = {.n = n, .counters = all},
    };
    return ps_shard_reply(shard, request, &reply, error);
}
