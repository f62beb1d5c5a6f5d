/*
 * A server: data directory, store, shard, and the loop that drives them over a transport.
 *
 * Threads: the one that calls ps_server_run owns shard, store and transport, and never touches a
 * disk after open; the store's I/O thread reads and writes, and calls `wake` when it has finished
 * something, which ends the owner's wait. The transport is known during run only, so wake looks at
 * it under a lock (held for that call alone; nothing else is ever taken inside).
 *
 * The loop: take messages, a bounded number a turn; finished I/O; messages that were held back.
 * When nothing moved, wait: the transport sleeps longer the longer nothing comes.
 *
 * Bounds. A peer that does not read its replies (more than BACKLOG_BYTES wait to be sent), or that
 * has too many requests waiting, is held: its messages stay unserved, in order, so that they do not
 * become replies. Clients send a bounded window, which Hello's reply tells them: what is held, and
 * what waits for its peer to take it, is WINDOWS_BYTES of all of them together (or a message of
 * each, if that is more). When all messages here
 * take more than MEMORY_BYTES, peers are held earlier, and no message is taken while requests wait
 * for the disk: those go on without any, so this cannot stand still.
 *
 * Guests come over the same transport and are no peers of it: the shard bounds the requests of
 * each, and their end of the transport the bytes of all. In a job they are sent away when its
 * workers have left; without workers the server runs until it is stopped.
 *
 * A server that fails sends its guests away too, with the reason, and makes no last checkpoint:
 * what it holds may be half of something.
 *
 * Checkpoints that servers make by themselves are ps/rounds.c's, stepped at every turn.
 *
 * Order of shutdown: the workers' goodbyes, their replies flushed, end of the loop; the last
 * checkpoint; the thread that writes checkpoints; shard; store (all dirty rows written, I/O thread
 * joined, RocksDB closed); identity "clean"; lock. Killed before "clean", it leaves "open".
 */
#include "ps/server_inside.h"

#include "common/alloc.h"
#include "common/clock.h"
#include "common/log.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define BACKLOG_BYTES ((size_t)8 << 20) /* replies to one peer that have not left */
#define WAITING_PER_PEER ((size_t)64)   /* requests of one peer in the shard */
#define MEMORY_BYTES ((size_t)24 << 20) /* all messages here, above which bounds get tight */
#define TIGHT_BACKLOG_BYTES ((size_t)1 << 20)
#define MESSAGES_PER_TURN 64u
#define IDLE_WAIT_US UINT64_C(100000)
#define FLUSH_US UINT64_C(5000000)
#define FLUSH_FAILED_US UINT64_C(500000)
#define DRAIN_US UINT64_C(2000000) /* for what guests have under way at the end */
#define LOOK_US UINT64_C(100000)   /* between two looks at the workers' processes */

/* On the store's I/O thread. */
void ps_server_wake(void *context)
{
    ps_server_t *server = context;
    (void)pthread_mutex_lock(&server->lock);
    if (server->transport != NULL)
        psp_transport_wake(server->transport);
    (void)pthread_mutex_unlock(&server->lock);
}

static void set_transport(ps_server_t *server, psp_transport_t *transport)
{
    (void)pthread_mutex_lock(&server->lock);
    server->transport = transport;
    (void)pthread_mutex_unlock(&server->lock);
}

/* From within shard calls. A peer that is gone does not end the server. */
void ps_server_send_reply(void *context, uint32_t peer, psp_buffer_t *buffer)
{
    ps_server_t *server = context;
    psc_error_t error = PSC_ERROR_INIT;
    psc_status_t st = psp_transport_send(server->transport, peer, buffer, &error);
    if (st != PSC_OK)
        psc_log(PSC_LOG_DEBUG, "worker %" PRIu32 " reply not sent: %s", peer, error.message);
}

psc_status_t ps_server_open(const ps_server_options_t *options, ps_server_t **server_out,
                            psc_error_t *error)
{
    if (options->memory_bytes < PS_STORE_MIN_MEMORY)
        return psc_error_set(error, PSC_INVALID_ARGUMENT,
                             "memory is %" PRIu64 " bytes, must be at least %" PRIu64 " (8M)",
                             options->memory_bytes, PS_STORE_MIN_MEMORY);
    ps_server_t *server = psc_alloc_zeroed(1, sizeof *server);
    if (server == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "out of memory for a server");
    server->options = *options;
    server->save_fault = (psc_error_t)PSC_ERROR_INIT;
    (void)pthread_mutex_init(&server->lock, NULL);
    psc_status_t st = ps_server_open_parts(server, error);
    if (st == PSC_OK) {
        *server_out = server;
        return PSC_OK;
    }
    /* The first error is the one to tell. */
    psc_error_t ignored = PSC_ERROR_INIT;
    if (ps_server_close(server, true, true, &ignored) != PSC_OK)
        psc_log(PSC_LOG_DEBUG, "after a failed start: %s", ignored.message);
    return st;
}

/* ---- messages that wait for their peer ---- */

static void hold(ps_server_t *server, psp_buffer_t *buffer)
{
    held_t *held = &server->held[buffer->peer];
    buffer->node.next = NULL;
    if (held->tail != NULL)
        held->tail->next = &buffer->node;
    else
        held->head = &buffer->node;
    held->tail = &buffer->node;
    server->n_held++;
}

static psp_buffer_t *unhold(ps_server_t *server, uint32_t peer)
{
    held_t *held = &server->held[peer];
    psp_buffer_t *buffer = (psp_buffer_t *)(void *)held->head; /* node is its first member */
    held->head = buffer->node.next;
    if (held->head == NULL)
        held->tail = NULL;
    server->n_held--;
    return buffer;
}

static bool memory_is_tight(const ps_server_t *server)
{
    return psp_pool_bytes_out(server->options.pool) >
           MEMORY_BYTES + ps_shard_deferred_bytes(server->shard);
}

static bool over_bounds(ps_server_t *server, uint32_t peer)
{
    size_t backlog = psp_transport_backlog(server->transport, peer);
    return ps_shard_waiting(server->shard, peer) >= WAITING_PER_PEER || backlog > BACKLOG_BYTES ||
           (backlog > TIGHT_BACKLOG_BYTES && memory_is_tight(server));
}

static psc_status_t release_held(ps_server_t *server, bool *progress, psc_error_t *error)
{
    for (uint32_t peer = 0; server->n_held != 0 && peer < server->options.n_workers; peer++) {
        while (server->held[peer].head != NULL && !over_bounds(server, peer)) {
            *progress = true;
            psc_status_t st = ps_shard_handle(server->shard, unhold(server, peer), error);
            if (st != PSC_OK)
                return st;
        }
    }
    return PSC_OK;
}

/* ---- the loop ---- */

static psc_status_t take_messages(ps_server_t *server, bool *progress, psc_error_t *error)
{
    for (unsigned i = 0; i < MESSAGES_PER_TURN; i++) {
        psp_buffer_t *buffer = NULL;
        psc_error_t fault = PSC_ERROR_INIT;
        psc_status_t st = psp_transport_poll(server->transport, &buffer, &fault);
        if (st == PSC_PROTOCOL) {
            psc_log(PSC_LOG_WARN, "a message was dropped: %s", fault.message);
            continue;
        }
        if (st != PSC_OK) {
            if (error != NULL)
                *error = fault;
            return st;
        }
        if (buffer == NULL)
            return PSC_OK;
        *progress = true;
        const bool guest = buffer->peer == PSP_PEER_GUEST; /* bounded by shard and transport */
        if (!guest &&
            (server->held[buffer->peer].head != NULL || over_bounds(server, buffer->peer))) {
            hold(server, buffer);
            continue;
        }
        st = ps_shard_handle(server->shard, buffer, error);
        if (st != PSC_OK)
            return st;
    }
    return PSC_OK;
}

static psc_status_t turn(ps_server_t *server, bool *progress, psc_error_t *error)
{
    psc_status_t st = PSC_OK;
    if (memory_is_tight(server) && ps_shard_waiting_store(server->shard) != 0) {
        psc_error_t ignored = PSC_ERROR_INIT;
        /* Moves what is being sent, without taking anything; TIMEOUT: not all has left. */
        st = psp_transport_flush(server->transport, 0, &ignored);
        if (st != PSC_OK && st != PSC_TIMEOUT)
            psc_log(PSC_LOG_DEBUG, "replies are stuck: %s", ignored.message);
    } else if ((st = take_messages(server, progress, error)) != PSC_OK) {
        return st;
    }
    bool moved = false;
    st = ps_shard_poll(server->shard, &moved, error);
    *progress |= moved;
    if (st != PSC_OK)
        return st;
    return release_held(server, progress, error);
}

/* How long the server may wait for a message. */
static uint64_t idle_us(const ps_server_t *server)
{
    uint64_t deadline_us = ps_shard_next_deadline(server->shard), now_us = psc_clock_us();
    const uint64_t round_us =
        server->rounds != NULL ? ps_server_rounds_next(server->rounds) : UINT64_MAX;
    deadline_us = round_us < deadline_us ? round_us : deadline_us;
    if (deadline_us > now_us + IDLE_WAIT_US)
        return IDLE_WAIT_US;
    return deadline_us > now_us ? deadline_us - now_us : 1;
}

/* ---- workers that are lost ---- */

/* Fences a worker and tells the other servers. signal: as in ps_sight_t. */
static void declare_lost(ps_server_t *server, uint32_t worker, ps_why_t why, int signal)
{
    const ps_surroundings_t *around = server->options.surroundings;
    ps_vote_t vote = {.worker = worker, .why = (uint32_t)why, .signal = (int32_t)signal};
    ps_shard_fence(server->shard, worker, ps_why_text(why), &vote.loss);
    ps_watch_vote(server->watch, server->options.rank, &vote);
    around->tell_servers(around->context, &vote);
    if (why == PS_WHY_GONE)
        psp_transport_forget(server->transport, worker);
    char process[128], by[64] = "";
    around->describe(around->context, worker, process, sizeof process);
    if (signal != 0) {
        const char *name = sigdescr_np(signal);
        (void)snprintf(by, sizeof by, ", ended by signal %d (%s)", signal,
                       name != NULL ? name : "unknown");
    }
    psc_log(server->options.rank == 0 ? PSC_LOG_WARN : PSC_LOG_INFO,
            "worker %" PRIu32 " (%s) is lost: %s%s", worker, process, ps_why_text(why), by);
}

/* All servers know that a worker is lost. */
static psc_status_t bury(ps_server_t *server, uint32_t worker, const ps_loss_t *loss,
                         psc_error_t *error)
{
    ps_loss_rule_t rule = server->options.on_loss;
    char clocks[64] = "its last clock had ended";
    if (loss->clock != PSP_CLOCK_END)
        (void)snprintf(clocks, sizeof clocks, "%" PRIu64 " clocks of it count", loss->clock);
    psc_log(server->options.rank == 0 ? PSC_LOG_WARN : PSC_LOG_INFO,
            "worker %" PRIu32 ": %s; of an unfinished one counts %s", worker, clocks,
            rule == PS_LOSS_CONTINUE ? "what has come"
            : rule == PS_LOSS_AUTO   ? "what was applied at once, and nothing at staleness 0"
                                     : "nothing");
    server->n_lost++;
    return ps_shard_bury(server->shard, worker, loss, rule, error);
}

/* Looks at the workers' processes, and hears what other servers know of them. */
static psc_status_t look_around(ps_server_t *server, bool *progress, psc_error_t *error)
{
    const ps_surroundings_t *around = server->options.surroundings;
    uint64_t now_us = server->watch != NULL ? psc_clock_us() : 0;
    if (server->watch == NULL || now_us - server->looked_us < LOOK_US)
        return PSC_OK;
    server->looked_us = now_us;
    const uint32_t own = server->options.rank;
    ps_vote_t vote;
    uint32_t from;
    for (uint32_t w = 0; w < server->options.n_workers; w++) {
        ps_why_t why;
        if (!ps_shard_expects(server->shard, w))
            continue;
        const ps_sight_t seen = around->look(around->context, w);
        if (ps_watch_see(server->watch, w, &seen, now_us, &why))
            declare_lost(server, w, why, seen.signal);
    }
    while (around->hear_server(around->context, &vote, &from)) {
        if (vote.worker < server->options.n_workers &&
            !ps_watch_voted(server->watch, vote.worker, own))
            declare_lost(server, vote.worker, (ps_why_t)vote.why, vote.signal);
        ps_watch_vote(server->watch, from, &vote);
    }
    psc_status_t st = PSC_OK;
    for (uint32_t w = 0; st == PSC_OK && w < server->options.n_workers; w++) {
        ps_loss_t loss;
        if (!ps_watch_decided(server->watch, w, &loss))
            continue;
        *progress = true;
        st = bury(server, w, &loss, error);
    }
    return st;
}

void ps_server_stop(ps_server_t *server)
{
    atomic_store_explicit(&server->stopped, true, memory_order_release);
    ps_server_wake(server);
}

void ps_server_ask(ps_server_t *server, bool passed_on)
{
    if (server->rounds == NULL) {
        psc_log(PSC_LOG_WARN, "a signal asks for a checkpoint: start the server with "
                              "--checkpoints DIR, and without --read-only");
        return;
    }
    ps_server_rounds_ask(server->rounds, passed_on);
    ps_server_wake(server);
}

static bool is_over(const ps_server_t *server)
{
    return ps_shard_finished(server->shard) ||
           atomic_load_explicit(&server->stopped, memory_order_acquire);
}

/* ---- the end ---- */

/* Guests are sent away: what is under way is finished, as far as the time goes. */
static psc_status_t send_guests_away(ps_server_t *server, psc_error_t *error)
{
    const uint64_t start_us = psc_clock_us();
    psc_status_t st = PSC_OK;
    bool progress = true;
    psp_transport_stop(server->transport);
    ps_shard_stop_hearing(server->shard);
    while (st == PSC_OK && psc_clock_us() - start_us < DRAIN_US &&
           (progress || ps_shard_waiting(server->shard, UINT32_MAX) != 0)) {
        progress = false;
        ps_shard_set_time(server->shard, psc_clock_us());
        st = turn(server, &progress, error);
        if (st == PSC_OK && !progress && ps_shard_waiting(server->shard, UINT32_MAX) != 0)
            psp_transport_wait(server->transport, idle_us(server));
    }
    return st;
}

/* What waits still is refused, or is asked of the next server. */
static void end_shard(ps_server_t *server)
{
    psc_error_t why = PSC_ERROR_INIT;
    (void)psc_error_set(&why, PSC_INTERRUPTED, "the server ends");
    ps_shard_end_in_order(server->shard, &why);
}

/* The server fails: whoever waits is told why, and so is what has come since; nothing more is taken
 * from guests. Those who come later meet a closed door. */
static void tell_failure(ps_server_t *server, const psc_error_t *why)
{
    const uint64_t start_us = psc_clock_us();
    psp_buffer_t *buffer = NULL;
    psc_error_t known = PSC_ERROR_INIT; /* why, of each: the shard has failed */
    size_t n_told = 0;
    psp_transport_stop(server->transport);
    ps_shard_end(server->shard, why);
    while (psc_clock_us() - start_us < FLUSH_FAILED_US &&
           psp_transport_poll(server->transport, &buffer, &known) == PSC_OK && buffer != NULL) {
        n_told += ps_shard_handle(server->shard, buffer, &known) != PSC_OK;
    }
    psc_log(PSC_LOG_DEBUG, "%zu more requests were refused", n_told);
    if (server->writer != NULL && !server->options.read_only)
        psc_log(PSC_LOG_WARN, "no last checkpoint is made, since the server fails: the next run "
                              "goes on from the newest one that is whole");
}

psc_status_t ps_server_run(ps_server_t *server, psp_transport_t *transport, psc_error_t *error)
{
    psc_error_t why = PSC_ERROR_INIT;
    psc_status_t st = PSC_OK;
    set_transport(server, transport);
    ps_data_dir_begin(server->dir);
    ps_server_log_begin(server->log);
    while (st == PSC_OK && !is_over(server)) {
        bool progress = false;
        ps_shard_set_time(server->shard, psc_clock_us());
        st = turn(server, &progress, &why);
        if (st == PSC_OK)
            st = look_around(server, &progress, &why);
        if (st == PSC_OK && server->rounds != NULL)
            ps_server_rounds_step(server->rounds, psc_clock_us(), &progress);
        if (st == PSC_OK && !progress && !is_over(server))
            psp_transport_wait(transport, idle_us(server));
    }
    if (st == PSC_OK && server->options.n_guests != 0)
        st = send_guests_away(server, &why);
    if (st == PSC_OK && server->rounds != NULL)
        st = ps_server_rounds_end(server->rounds, transport, server->saved, &server->save_fault,
                                  &why);
    if (st == PSC_OK && server->options.n_guests != 0)
        end_shard(server);
    if (st != PSC_OK && server->options.n_guests != 0)
        tell_failure(server, &why);
    if (st != PSC_OK && error != NULL)
        *error = why;
    server->worst_status = ps_shard_worst_status(server->shard);
    if (server->worst_status == 0 && server->n_lost != 0)
        server->worst_status = PSC_PEER_GONE;
    /* A peer that died does not take its last reply: that is no fault of the run. */
    psc_error_t ignored = PSC_ERROR_INIT;
    /* What was sent to one that is lost stays for ever. */
    const bool all_there = st == PSC_OK && server->n_lost == 0;
    if (psp_transport_flush(transport, all_there ? FLUSH_US : FLUSH_FAILED_US, &ignored) != PSC_OK)
        psc_log(PSC_LOG_INFO, "replies were left unsent: %s", ignored.message);
    set_transport(server, NULL);
    return st;
}

uint64_t ps_server_cluster(const ps_server_t *server)
{
    return server->options.cluster;
}

const char *ps_server_resumed(const ps_server_t *server)
{
    return server->restore != NULL && !ps_restore_is_weights(server->restore)
               ? ps_restore_name(server->restore)
               : NULL;
}

uint32_t ps_server_lost(const ps_server_t *server)
{
    return server->n_lost;
}

uint32_t ps_server_worst_status(const ps_server_t *server)
{
    return server->worst_status;
}

psc_status_t ps_server_close(ps_server_t *server, bool failed, bool discard, psc_error_t *error)
{
    if (server == NULL)
        return PSC_OK;
    for (uint32_t peer = 0; server->held != NULL && peer < server->options.n_workers; peer++) {
        while (server->held[peer].head != NULL)
            psp_buffer_put(unhold(server, peer));
    }
    ps_server_rounds_destroy(server->rounds);
    ps_writer_stop(server->writer); /* its jobs are the shard's, as are the log's */
    ps_server_log_stop(server->log);
    ps_shard_destroy(server->shard);
    ps_watch_destroy(server->watch);
    /* What a server for reading has is in the checkpoint. */
    discard = discard || server->options.read_only;
    bool clean = !failed && !discard;
    /* Workers that were stopped go on from a checkpoint, as after a crash. */
    const bool goes_back = server->keeper != NULL && server->options.n_workers != 0 &&
                           server->worst_status != 0 && server->worst_status != PSC_PEER_GONE;
    /* The last checkpoint failed, and the log has what it would have had. */
    const bool is_logged = server->saved[0] == '\0' && server->options.n_workers == 0 &&
                           server->options.durability >= PS_DURABILITY_PUSH;
    psc_status_t st = ps_store_close(server->store, clean, error);
    if (st == PSC_OK && clean && !goes_back && !is_logged)
        st = ps_data_dir_mark_clean(server->dir, server->saved, error);
    if (st == PSC_OK && clean && server->save_fault.code != PSC_OK) {
        if (error != NULL)
            *error = server->save_fault;
        st = server->save_fault.code;
    }
    if (discard && server->dir != NULL)
        st = ps_data_dir_discard(server->dir, error);
    else
        ps_data_dir_release(server->dir);
    ps_server_log_close(server->log, discard);
    ps_restore_destroy(server->restore);
    ps_keeper_close(server->keeper);
    (void)pthread_mutex_destroy(&server->lock);
    psc_free(server->held);
    psc_free(server);
    return st;
}
