/*
 * Messages over MPI: one tagged byte message each, its kind the tag, on a communicator of its own.
 *
 * Receiving: a matched probe tells source and size before memory is taken; then a non-blocking
 * receive into a pooled buffer. Up to MAX_RECEIVES run at once, kept in the order of matching. A
 * message is given out when its receive has ended and no older one of the same peer is still
 * running, which keeps each peer's order without letting one peer hold up another. What is larger
 * than the limit is received as well, so that the sender's side ends and MPI stays whole, but
 * dropped and reported. (To receive it into less room is no way out: Open MPI 4.1.4 reads the whole
 * of it through CMA even so.)
 *
 * Sending: non-blocking, the unfinished ones in an array without order. Each poll tests a run of
 * them by one call of MPI (which moves all of MPI once, and a call for each send would do so for
 * each), going round, so that work per poll is bounded and a send to a dead peer, which never ends,
 * only costs its place.
 *
 * Between ranks of one machine larger messages do not go by MPI, but are lent (mpi_lending.h): a
 * slip goes in their place, in their order. What is lent counts as not having left until it is
 * back.
 *
 * Waiting: every call is one step and returns. For a little while after the last activity it
 * returns at once, if the machine has a core for each rank; then it yields the core, longer in that
 * case, since a nap may end much later than whatever it waits for; then it naps
 * on a condition variable, for a thirty-second of the idle time so far, 20 us to 4 ms. So naps add
 * 3 % at most to whatever is waited for, and an idle rank wakes 250 times a second (a sleep costs
 * 10 to 35 us of processor time on a virtual machine). A wake ends a nap at once.
 *
 * Threads: one thread; wake alone comes from any.
 */
#include "common/alloc.h"
#include "common/clock.h"
#include "proto/checked_transport.h"
#include "proto/delay_transport.h"
#include "proto/message.h"
#include "proto/mpi/mpi_job_internal.h"
#include "proto/mpi/mpi_lending.h"
#include "proto/seal.h"

#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/prctl.h>

#define MAX_RECEIVES 32
#define MAX_RECEIVE_BYTES                                                                          \
    ((size_t)4                                                                                     \
     << 20) /* under way at once; one message more may exceed it                         \
                       */
#define SENDS_PER_TEST ((size_t)16)
#define SMALL_BYTES ((size_t)4096) /* such messages have often left when MPI_Isend returns */
#define SPIN_US 50u
#define YIELD_US 200u
#define LONG_YIELD_US 1000u /* with a core for each rank */
#define LONGEST_NAP_US 4000u
#define SEND_TABLE_START 64u

typedef struct receive {
    psp_buffer_t *buffer;
    bool done;
    bool drop; /* put back when done, instead of given out */
} receive_t;

typedef struct mpi_transport {
    psp_transport_t base; /* first */
    MPI_Comm comm;
    const int *rank_of_peer; /* [n_peers] in comm; the job's */
    uint32_t *peer_of_rank;  /* [size of comm]; UINT32_MAX: not a peer */
    size_t max_message_bytes;
    bool may_spin;

    /* Matched, but not yet being received. */
    bool has_matched;
    MPI_Message matched;
    MPI_Status matched_status;

    /* Receives in order of matching. */
    size_t n_receives;
    size_t receive_bytes;
    receive_t receives[MAX_RECEIVES];
    MPI_Request receive_requests[MAX_RECEIVES];
    uint64_t scan;          /* number of the scan over receives that runs */
    uint64_t *held_in_scan; /* [n_peers] last scan in which an older receive was unfinished */

    /* Sends without order; arrays of send_room, which doubles. */
    size_t n_sends;
    size_t send_room;
    size_t send_cursor; /* where the next poll tests */
    psp_buffer_t **send_buffers;
    MPI_Request *send_requests;
    size_t *backlog; /* [n_peers] bytes */

    psp_lending_t *lending; /* NULL: all goes by MPI */

    /* Waiting. */
    bool active;            /* something happened since the last wait */
    uint64_t idle_since_us; /* time of the first wait after that */
    atomic_bool woken;
    pthread_mutex_t lock;
    pthread_cond_t wake_up; /* with lock: woken changed */
} mpi_transport_t;

static mpi_transport_t *mpi_of(psp_transport_t *transport)
{
    return (mpi_transport_t *)transport; /* base is the first member */
}

/* Takes send i out of the arrays; its request is finished or given up. */
static psp_buffer_t *remove_send(mpi_transport_t *t, size_t i)
{
    psp_buffer_t *buffer = t->send_buffers[i];
    t->backlog[buffer->peer] -= buffer->size;
    t->n_sends--;
    t->send_buffers[i] = t->send_buffers[t->n_sends];
    t->send_requests[i] = t->send_requests[t->n_sends];
    return buffer;
}

/* Room for one more send. */
static psc_status_t grow_sends(mpi_transport_t *t, psc_error_t *error)
{
    if (t->n_sends < t->send_room)
        return PSC_OK;
    size_t room = t->send_room * 2;
    psp_buffer_t **buffers = psc_realloc_array(t->send_buffers, room, sizeof(psp_buffer_t *));
    if (buffers != NULL)
        t->send_buffers = buffers;
    MPI_Request *requests = psc_realloc_array(t->send_requests, room, sizeof *requests);
    if (requests != NULL)
        t->send_requests = requests;
    if (buffers == NULL || requests == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "out of memory for %zu sends", room);
    t->send_room = room;
    return PSC_OK;
}

/* Takes buffer. */
static psc_status_t send_by_mpi(mpi_transport_t *t, uint32_t peer, psp_buffer_t *buffer,
                                psc_error_t *error)
{
    buffer->peer = peer;
    psc_status_t st = grow_sends(t, error);
    if (st == PSC_OK && buffer->size > INT_MAX)
        st = psc_error_set(error, PSC_IO, "a message of %zu bytes is too large for MPI",
                           buffer->size);
    MPI_Request request = MPI_REQUEST_NULL;
    int done = 0;
    if (st == PSC_OK) {
        int rc = MPI_Isend(buffer->data, (int)buffer->size, MPI_BYTE, t->rank_of_peer[peer],
                           (int)buffer->kind, t->comm, &request);
        if (rc == MPI_SUCCESS && buffer->size <= SMALL_BYTES)
            rc = MPI_Test(&request, &done, MPI_STATUS_IGNORE);
        st = psp_mpi_error(rc, "send a message", error);
    }
    t->active = true;
    if (st != PSC_OK || done) {
        psp_buffer_put(buffer);
        return st;
    }
    t->send_buffers[t->n_sends] = buffer;
    t->send_requests[t->n_sends] = request;
    t->n_sends++;
    t->backlog[peer] += buffer->size;
    return PSC_OK;
}

static psc_status_t mpi_send(psp_transport_t *transport, uint32_t peer, psp_buffer_t *buffer,
                             psc_error_t *error)
{
    mpi_transport_t *t = mpi_of(transport);
    PSC_BUG_ON(peer >= transport->n_peers);
    if (!psp_lending_can(t->lending, peer, buffer))
        return send_by_mpi(t, peer, buffer, error);
    const size_t size = buffer->size;
    psp_buffer_t *slip;
    buffer->peer = peer;
    psc_status_t st = grow_sends(t, error); /* so that the slip has room */
    if (st != PSC_OK) {
        psp_buffer_put(buffer);
        return st;
    }
    if ((st = psp_lending_lend(t->lending, buffer, &slip, error)) != PSC_OK)
        return st;
    t->backlog[peer] += size;
    return send_by_mpi(t, peer, slip, error);
}

/* Tests a run of n sends from the cursor on, and takes the ended ones out. */
static psc_status_t progress_run(mpi_transport_t *t, size_t n, psc_error_t *error)
{
    int ended[SENDS_PER_TEST];
    int n_ended = 0;
    int rc = MPI_Testsome((int)n, &t->send_requests[t->send_cursor], &n_ended, ended,
                          MPI_STATUSES_IGNORE);
    if (rc != MPI_SUCCESS)
        return psp_mpi_error(rc, "end a send", error);
    if (n_ended == MPI_UNDEFINED)
        n_ended = 0;
    for (int k = n_ended; k-- > 0;) /* the last one first: others take their places */
        psp_buffer_put(remove_send(t, t->send_cursor + (size_t)ended[k]));
    t->active = t->active || n_ended != 0;
    t->send_cursor += n - (size_t)n_ended;
    return PSC_OK;
}

/* Tests up to count sends, going round. */
static psc_status_t progress_sends(mpi_transport_t *t, size_t count, psc_error_t *error)
{
    psc_status_t st = PSC_OK;
    if (count > t->n_sends)
        count = t->n_sends;
    while (st == PSC_OK && count != 0) {
        if (t->send_cursor >= t->n_sends)
            t->send_cursor = 0;
        size_t n = t->n_sends - t->send_cursor;
        if (n > count)
            n = count;
        if (n > SENDS_PER_TEST)
            n = SENDS_PER_TEST;
        count -= n;
        st = progress_run(t, n, error);
    }
    return st;
}

/* PROTOCOL for a message that is received only to be dropped. */
static psc_status_t report_drop(const mpi_transport_t *t, const psp_buffer_t *buffer, int source,
                                psc_error_t *error)
{
    return psc_error_set(error, PSC_PROTOCOL,
                         "dropped a %s message of %zu bytes from rank %d of the job: more than the "
                         "limit of %zu bytes, or not from a peer",
                         psp_kind_name(buffer->kind), buffer->size, source, t->max_message_bytes);
}

/* Starts to receive the matched message. On NO_MEMORY it stays matched, for the next poll. */
static psc_status_t start_receive(mpi_transport_t *t, psc_error_t *error)
{
    const MPI_Status *status = &t->matched_status;
    int size = 0;
    int rc = MPI_Get_count(status, MPI_BYTE, &size);
    if (rc != MPI_SUCCESS || size < 0) /* MPI_UNDEFINED: more than an int can count */
        return psc_error_set(error, PSC_IO, "MPI does not tell the size of a message");
    psp_buffer_t *buffer;
    psc_status_t st = psp_buffer_get(t->base.pool, (size_t)size, &buffer, error);
    if (st != PSC_OK)
        return st;
    uint32_t peer = t->peer_of_rank[status->MPI_SOURCE];
    bool drop = peer == UINT32_MAX || (size_t)size > t->max_message_bytes;
    buffer->peer = peer != UINT32_MAX ? peer : 0;
    buffer->kind = (uint32_t)status->MPI_TAG;
    buffer->size = (size_t)size;
    MPI_Request request = MPI_REQUEST_NULL;
    int done = 0;
    t->has_matched = false;
    rc = MPI_Imrecv(buffer->data, size, MPI_BYTE, &t->matched, &request);
    if (rc == MPI_SUCCESS)
        rc = MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    if (rc != MPI_SUCCESS) {
        psp_buffer_put(buffer);
        return psp_mpi_error(rc, "receive a message", error);
    }
    t->receives[t->n_receives] = (receive_t){.buffer = buffer, .done = done != 0, .drop = drop};
    t->receive_requests[t->n_receives] = request; /* MPI_REQUEST_NULL when done */
    t->n_receives++;
    t->receive_bytes += buffer->size;
    return drop ? report_drop(t, buffer, status->MPI_SOURCE, error) : PSC_OK;
}

/* Matches what has arrived, while there is room. */
static psc_status_t match_messages(mpi_transport_t *t, psc_error_t *error)
{
    while (t->n_receives < MAX_RECEIVES && t->receive_bytes < MAX_RECEIVE_BYTES) {
        int found = t->has_matched;
        int rc = MPI_SUCCESS;
        if (!found)
            rc = MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, t->comm, &found, &t->matched,
                             &t->matched_status);
        if (rc != MPI_SUCCESS)
            return psp_mpi_error(rc, "look for messages", error);
        if (!found)
            return PSC_OK;
        t->has_matched = true;
        t->active = true;
        psc_status_t st = start_receive(t, error);
        if (st != PSC_OK)
            return st;
        if (t->receives[t->n_receives - 1].done)
            return PSC_OK; /* something to give out */
    }
    return PSC_OK;
}

/* Notes which receives have ended. */
static psc_status_t progress_receives(mpi_transport_t *t, psc_error_t *error)
{
    int ended[MAX_RECEIVES];
    int n_ended = 0;
    MPI_Status statuses[MAX_RECEIVES];
    int rc = MPI_Testsome((int)t->n_receives, t->receive_requests, &n_ended, ended, statuses);
    for (int i = 0; n_ended != MPI_UNDEFINED && i < n_ended; i++)
        t->receives[ended[i]].done = true;
    return psp_mpi_error(rc, "receive a message", error);
}

static psp_buffer_t *remove_receive(mpi_transport_t *t, size_t i)
{
    psp_buffer_t *buffer = t->receives[i].buffer;
    t->receive_bytes -= buffer->size;
    t->n_receives--;
    for (size_t j = i; j < t->n_receives; j++) {
        t->receives[j] = t->receives[j + 1];
        t->receive_requests[j] = t->receive_requests[j + 1];
    }
    return buffer;
}

/* The oldest ended receive with no older unfinished one of its peer, or NULL. */
static psp_buffer_t *next_message(mpi_transport_t *t)
{
    t->scan++;
    size_t i = 0;
    while (i < t->n_receives) {
        const receive_t *receive = &t->receives[i];
        uint32_t peer = receive->buffer->peer;
        if (receive->done && receive->drop) {
            psp_buffer_put(remove_receive(t, i));
            continue; /* another stands at i now */
        }
        if (!receive->done && !receive->drop)
            t->held_in_scan[peer] = t->scan;
        else if (receive->done && t->held_in_scan[peer] != t->scan)
            return remove_receive(t, i);
        i++;
    }
    return NULL;
}

/* Takes a slip, or what is told about lending; *buffer: then the message, or NULL. */
static psc_status_t take_note(mpi_transport_t *t, psp_buffer_t **buffer, psc_error_t *error)
{
    const uint32_t peer = (*buffer)->peer;
    psp_buffer_t *answer;
    t->active = true;
    psc_status_t st = psp_lending_receive(t->lending, buffer, &answer, error);
    if (st == PSC_OK && answer != NULL)
        st = send_by_mpi(t, peer, answer, error);
    if (st == PSC_OK && *buffer != NULL && (*buffer)->size > t->max_message_bytes) {
        st = report_drop(t, *buffer, t->rank_of_peer[peer], error);
        psp_buffer_put(*buffer);
        *buffer = NULL;
    }
    return st;
}

static psc_status_t mpi_poll(psp_transport_t *transport, psp_buffer_t **buffer_out,
                             psc_error_t *error)
{
    mpi_transport_t *t = mpi_of(transport);
    *buffer_out = NULL;
    psc_status_t st = progress_sends(t, SENDS_PER_TEST, error);
    if (t->lending != NULL)
        psp_lending_collect(t->lending, SENDS_PER_TEST, t->backlog);
    if (st == PSC_OK)
        st = match_messages(t, error);
    if (st != PSC_OK)
        return st;
    psp_buffer_t *buffer = next_message(t);
    if (buffer == NULL && t->n_receives != 0) {
        st = progress_receives(t, error);
        if (st != PSC_OK)
            return st;
        buffer = next_message(t);
    }
    if (buffer != NULL && buffer->kind >= PSP_TAG_LENT)
        st = take_note(t, &buffer, error);
    if (buffer != NULL) {
        transport->bytes_received += buffer->size;
        t->active = true;
    }
    *buffer_out = buffer;
    return st;
}

/*
 * Sleeps up to us microseconds; a wake ends it. The kernel may end a sleep late by the thread's
 * timer slack, 50 us by default, which is more than the shortest naps: it is set to the least
 * meanwhile.
 */
static void nap(mpi_transport_t *t, uint64_t us)
{
    int slack_ns = prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0);
    (void)prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
    const struct timespec until = psc_clock_after(us);
    (void)pthread_mutex_lock(&t->lock);
    if (!atomic_load_explicit(&t->woken, memory_order_acquire))
        (void)pthread_cond_timedwait(&t->wake_up, &t->lock, &until);
    (void)pthread_mutex_unlock(&t->lock);
    if (slack_ns > 0)
        (void)prctl(PR_SET_TIMERSLACK, (unsigned long)slack_ns, 0, 0, 0);
}

static void mpi_wait(psp_transport_t *transport, uint64_t timeout_us)
{
    mpi_transport_t *t = mpi_of(transport);
    if (atomic_exchange_explicit(&t->woken, false, memory_order_acquire)) {
        t->active = true;
        return;
    }
    uint64_t now_us = psc_clock_us();
    if (t->active) {
        t->active = false;
        t->idle_since_us = now_us;
    }
    uint64_t idle_us = now_us - t->idle_since_us;
    if (timeout_us == 0 || (t->may_spin && idle_us < SPIN_US))
        return;
    if (idle_us < (t->may_spin ? LONG_YIELD_US : YIELD_US)) {
        (void)sched_yield();
        return;
    }
    uint64_t nap_us = psp_mpi_nap_us(idle_us, LONGEST_NAP_US);
    nap(t, nap_us < timeout_us ? nap_us : timeout_us);
    if (atomic_exchange_explicit(&t->woken, false, memory_order_acquire))
        t->active = true;
}

static void mpi_wake(psp_transport_t *transport)
{
    mpi_transport_t *t = mpi_of(transport);
    if (atomic_exchange_explicit(&t->woken, true, memory_order_release))
        return; /* whoever set it signals */
    (void)pthread_mutex_lock(&t->lock);
    (void)pthread_cond_signal(&t->wake_up);
    (void)pthread_mutex_unlock(&t->lock);
}

static size_t mpi_backlog(psp_transport_t *transport, uint32_t peer)
{
    PSC_BUG_ON(peer >= transport->n_peers);
    return mpi_of(transport)->backlog[peer];
}

static psc_status_t mpi_flush(psp_transport_t *transport, uint64_t timeout_us, psc_error_t *error)
{
    mpi_transport_t *t = mpi_of(transport);
    uint64_t start_us = psc_clock_us();
    for (;;) {
        psc_status_t st = progress_sends(t, t->n_sends, error);
        if (t->lending != NULL)
            psp_lending_collect(t->lending, psp_lending_n_lent(t->lending), t->backlog);
        const size_t n_left = t->n_sends + psp_lending_n_lent(t->lending);
        if (st == PSC_OK && n_left != 0)
            st = match_messages(t, error); /* a peer that flushes as well waits for us */
        if (st != PSC_OK || n_left == 0)
            return st;
        uint64_t waited_us = psc_clock_us() - start_us;
        if (waited_us >= timeout_us)
            return psc_error_set(error, PSC_TIMEOUT, "%zu messages have not left after %llu ms",
                                 n_left, (unsigned long long)(waited_us / 1000));
        if (waited_us < YIELD_US)
            (void)sched_yield();
        else
            nap(t, psp_mpi_nap_us(waited_us, LONGEST_NAP_US));
    }
}

/* MPI may still read from or write to the buffers, so they are given up, not put back. */
static void mpi_forget(psp_transport_t *transport, uint32_t peer)
{
    mpi_transport_t *t = mpi_of(transport);
    psp_lending_forget(t->lending, peer, t->backlog);
    for (size_t i = t->n_sends; i-- != 0;) { /* another takes the place of one that is removed */
        if (t->send_buffers[i]->peer != peer)
            continue;
        (void)MPI_Request_free(&t->send_requests[i]);
        psp_buffer_abandon(remove_send(t, i));
    }
    for (size_t i = t->n_receives; i-- != 0;) {
        if (t->receives[i].buffer->peer != peer || t->receives[i].done)
            continue;
        (void)MPI_Request_free(&t->receive_requests[i]);
        psp_buffer_abandon(remove_receive(t, i));
    }
}

static void transport_free(mpi_transport_t *t)
{
    psc_free(t->peer_of_rank);
    psc_free(t->held_in_scan);
    psc_free(t->send_buffers);
    psc_free(t->send_requests);
    psc_free(t->backlog);
    (void)pthread_cond_destroy(&t->wake_up);
    (void)pthread_mutex_destroy(&t->lock);
    psc_free(t);
}

/* MPI may still read from or write to unfinished buffers: they are given up, not put back. */
static void mpi_destroy(psp_transport_t *transport)
{
    mpi_transport_t *t = mpi_of(transport);
    int finalized = 0;
    (void)MPI_Finalized(&finalized);
    psc_error_t ignored;
    if (!finalized) {
        size_t before;
        do {
            before = t->n_sends;
        } while (progress_sends(t, before, &ignored) == PSC_OK && t->n_sends != before);
        if (t->n_receives != 0)
            (void)!progress_receives(t, &ignored);
    }
    const bool in_use = t->n_sends != 0;
    while (t->n_sends != 0) {
        if (!finalized)
            (void)MPI_Request_free(&t->send_requests[0]);
        psp_buffer_abandon(remove_send(t, 0));
    }
    while (t->n_receives != 0) {
        bool done = t->receives[0].done;
        if (!done && !finalized)
            (void)MPI_Request_free(&t->receive_requests[0]);
        psp_buffer_t *buffer = remove_receive(t, 0);
        if (done)
            psp_buffer_put(buffer);
        else
            psp_buffer_abandon(buffer);
    }
    psp_lending_destroy(t->lending, in_use);
    t->lending = NULL;
    transport_free(t);
}

static const psp_transport_ops_t mpi_ops = {
    .name = "mpi",
    .send = mpi_send,
    .poll = mpi_poll,
    .wait = mpi_wait,
    .wake = mpi_wake,
    .backlog = mpi_backlog,
    .flush = mpi_flush,
    .forget = mpi_forget,
    .destroy = mpi_destroy,
};

/* A core for each rank of this machine? */
static bool cores_suffice(int n_ranks)
{
    cpu_set_t cores;
    CPU_ZERO(&cores);
    return sched_getaffinity(0, sizeof cores, &cores) == 0 && CPU_COUNT(&cores) >= n_ranks;
}

/* Arrays by peer and rank. False: out of memory. */
static bool make_tables(mpi_transport_t *t, const psp_mpi_job_t *job)
{
    uint32_t n_ranks = job->n_of[PSP_MPI_SERVER] + job->n_of[PSP_MPI_WORKER];
    t->peer_of_rank = psc_alloc_array(n_ranks, sizeof *t->peer_of_rank);
    t->held_in_scan = psc_alloc_zeroed(t->base.n_peers, sizeof *t->held_in_scan);
    t->backlog = psc_alloc_zeroed(t->base.n_peers, sizeof *t->backlog);
    t->send_room = SEND_TABLE_START;
    t->send_buffers = psc_alloc_array(t->send_room, sizeof(psp_buffer_t *));
    t->send_requests = psc_alloc_array(t->send_room, sizeof *t->send_requests);
    if (t->peer_of_rank == NULL || t->held_in_scan == NULL || t->backlog == NULL ||
        t->send_buffers == NULL || t->send_requests == NULL)
        return false;
    for (uint32_t rank = 0; rank < n_ranks; rank++)
        t->peer_of_rank[rank] = UINT32_MAX;
    for (uint32_t peer = 0; peer < t->base.n_peers; peer++)
        t->peer_of_rank[t->rank_of_peer[peer]] = peer;
    return true;
}

/* Offers memory to the peers on this machine. */
static psc_status_t offer_memory(mpi_transport_t *t, const psp_mpi_job_t *job, psc_error_t *error)
{
    const psc_process_id_t self = psc_process_self();
    psc_status_t st = PSC_OK;
    for (uint32_t peer = 0; st == PSC_OK && peer < t->base.n_peers; peer++) {
        const psc_process_id_t *other = &job->processes[t->rank_of_peer[peer]];
        psp_buffer_t *offer;
        if (strcmp(other->host, self.host) != 0)
            continue;
        if (t->lending == NULL &&
            (t->lending = psp_lending_create(t->base.pool, t->base.n_peers)) == NULL)
            return PSC_OK;
        st = psp_lending_offer(t->lending, &offer, error);
        if (st == PSC_OK)
            st = send_by_mpi(t, peer, offer, error);
    }
    return st;
}

psc_status_t psp_mpi_transport_create(psp_mpi_job_t *job, psp_pool_t *pool,
                                      size_t max_message_bytes, psp_transport_t **transport_out,
                                      psc_error_t *error)
{
    mpi_transport_t *t = psc_alloc_zeroed(1, sizeof *t);
    if (t == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "out of memory for a transport");
    psp_mpi_role_t peers = job->role == PSP_MPI_SERVER ? PSP_MPI_WORKER : PSP_MPI_SERVER;
    t->base = (psp_transport_t){
        .ops = &mpi_ops,
        .n_peers = job->n_of[peers],
        .rank = job->rank,
        .n_ranks = job->n_of[job->role],
        .pool = pool,
    };
    t->comm = job->messages;
    t->rank_of_peer = job->ranks_of[peers];
    const size_t more = PSP_DELAY_ROOM + (job->checks ? PSP_SEAL_BYTES : 0);
    t->max_message_bytes = max_message_bytes < INT_MAX - more ? max_message_bytes + more : INT_MAX;
    t->may_spin = cores_suffice(job->n_on_host);
    t->active = true;
    pthread_condattr_t attributes;
    (void)pthread_condattr_init(&attributes);
    (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    (void)pthread_mutex_init(&t->lock, NULL);
    (void)pthread_cond_init(&t->wake_up, &attributes);
    (void)pthread_condattr_destroy(&attributes);
    if (!make_tables(t, job)) {
        transport_free(t);
        return psc_error_set(error, PSC_NO_MEMORY, "out of memory for a transport");
    }
    psp_transport_t *transport = &t->base;
    psc_status_t st = offer_memory(t, job, error);
    if (st == PSC_OK)
        st = psp_delay_wrap(&transport, error);
    if (st == PSC_OK && job->checks) {
        psp_pool_seal(pool);
        st = psp_checked_create(transport, NULL, NULL, &transport, error);
    }
    if (st != PSC_OK) {
        psp_transport_destroy(transport);
        return st;
    }
    *transport_out = transport;
    return PSC_OK;
}
