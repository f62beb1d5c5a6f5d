/*
 * Group commit: while one group is being written, the next one gathers in the queue.
 *
 * `written` moves when a whole group is with the system, or on the disk, and never past something
 * that failed. After a failure nothing more is written: the part of a group that was is taken off
 * again where that can be done, and otherwise is records that nobody was told of.
 *
 * Each record says how much before it may not be on the disk: with `sync` what is before it in its
 * group, else all since the last sync of the segment, which comes when that would get too long for
 * a head. By that a start tells what a power cut took from damage.
 *
 * A new segment is made when all of the one before it is on the disk, so its head knows how long
 * that is, whatever becomes of the machine. Segments that a checkpoint has are removed, the oldest
 * first, so that a kill at any moment leaves no hole; what cannot be removed is logged, and goes
 * with the next checkpoint.
 *
 * Threads: the owner submits; the thread does the rest. They share the queue, entries until
 * `written` has passed them, and numbers that are atomic; `fault` is written before `failed` is
 * set.
 */
#include "ps/log/log_writer.h"

#include "common/alloc.h"
#include "common/log.h"
#include "proto/saved_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#define GROUP_RECORDS 256u /* with head, body and zeros each below IOV_MAX */
#define GROUP_BYTES ((uint64_t)16 << 20)
#define SYNC_BYTES ((uint64_t)1 << 30)
_Static_assert(SYNC_BYTES + GROUP_BYTES + PS_LOG_RECORD_MAX < UINT32_MAX, "it fits into a head");

struct ps_log_writer {
    ps_log_sink_t sink;
    ps_log_writer_options_t options;
    char *checkpoints, *folder;
    psc_queue_t *queue;
    pthread_t thread;
    bool started;
    ps_log_entry_t stop;
    atomic_uint_fast64_t written, bytes, groups;
    atomic_bool failed;
    psc_error_t fault;

    /* the thread's */
    int fd;
    char *path; /* of the segment */
    ps_log_head_t head;
    uint64_t size, synced; /* of the segment; of it, on the disk */
    uint64_t oldest;       /* segment that may be there still */
    ps_log_entry_t *group[GROUP_RECORDS];
    uint8_t heads[GROUP_RECORDS][PS_LOG_RECORD_HEAD_BYTES];
    struct iovec pieces[3 * GROUP_RECORDS];
};

/* ---- segments ---- */

static psc_status_t open_segment(ps_log_writer_t *writer, psc_error_t *error)
{
    psc_free(writer->path);
    writer->path = ps_log_path(writer->folder, writer->head.number);
    if (writer->path == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "out of memory for a log");
    writer->fd = open(writer->path, O_WRONLY | O_APPEND | O_CLOEXEC);
    writer->size = writer->synced = PS_LOG_HEAD_BYTES;
    return writer->fd >= 0
               ? PSC_OK
               : psc_error_set_errno(error, errno, "cannot write the log %s", writer->path);
}

static psc_status_t sync_segment(ps_log_writer_t *writer, psc_error_t *error)
{
    if (fdatasync(writer->fd) != 0)
        return psc_error_set_errno(error, errno, "cannot sync the log %s", writer->path);
    writer->synced = writer->size;
    return PSC_OK;
}

static psc_status_t cut(ps_log_writer_t *writer, uint64_t number, psc_error_t *error)
{
    psc_status_t st = sync_segment(writer, error);
    if (st != PSC_OK)
        return st;
    writer->head.previous_bytes = writer->size;
    writer->head.number = number;
    st = ps_log_make(writer->folder, &writer->head, error);
    if (st != PSC_OK)
        return st;
    (void)close(writer->fd);
    writer->fd = -1;
    return open_segment(writer, error);
}

/* Removes segments below a number that a checkpoint has, if there is such a checkpoint. */
static void forget(ps_log_writer_t *writer, uint64_t below, const char *name)
{
    char *manifest = psp_saved_path(writer->checkpoints, name, "manifest");
    const bool is_there = manifest != NULL && access(manifest, F_OK) == 0;
    psc_free(manifest);
    ps_log_numbers_t numbers;
    psc_error_t fault = PSC_ERROR_INIT;
    if (!is_there || below <= writer->oldest)
        return;
    psc_status_t st = ps_log_list(writer->folder, &numbers, &fault);
    for (size_t i = 0; st == PSC_OK && i < numbers.n && numbers.all[i] < below; i++) {
        char *path = ps_log_path(writer->folder, numbers.all[i]);
        if (path == NULL)
            st = psc_error_set(&fault, PSC_NO_MEMORY, "out of memory for a log");
        else if (unlink(path) != 0)
            st = psc_error_set_errno(&fault, errno, "cannot remove the log %s", path);
        psc_free(path);
    }
    if (st == PSC_OK)
        writer->oldest = below;
    else
        psc_log(PSC_LOG_WARN, "a log that is in checkpoint %s stays: %s", name, fault.message);
    psc_free(numbers.all);
}

/* ---- groups ---- */

/* Writes pieces [n], which are changed. 0, or errno. */
static int write_pieces(int fd, struct iovec *pieces, size_t n)
{
    while (n != 0) {
        ssize_t put = writev(fd, pieces, (int)n);
        if (put < 0 && errno != EINTR)
            return errno;
        if (put < 0)
            put = 0;
        while (n != 0 && (size_t)put >= pieces->iov_len) {
            put -= (ssize_t)pieces->iov_len;
            pieces++;
            n--;
        }
        if (n != 0) {
            pieces->iov_base = (uint8_t *)pieces->iov_base + put;
            pieces->iov_len -= (size_t)put;
        }
    }
    return 0;
}

static psc_status_t write_group(ps_log_writer_t *writer, size_t n, psc_error_t *error)
{
    static const uint8_t zeros[8] = {0};
    uint64_t at = writer->size;
    size_t n_pieces = 0;
    if (writer->size - writer->synced >= writer->options.sync_bytes) {
        psc_status_t st = sync_segment(writer, error);
        if (st != PSC_OK)
            return st;
    }
    for (size_t i = 0; i < n; i++) {
        const ps_log_entry_t *entry = writer->group[i];
        struct iovec *pieces = &writer->pieces[n_pieces];
        ps_log_fill_head(writer->heads[i], writer->head.number, at, (uint32_t)(at - writer->synced),
                         entry->kind, entry->bytes, entry->n);
        pieces[0] = (struct iovec){writer->heads[i], PS_LOG_RECORD_HEAD_BYTES};
        pieces[1] = (struct iovec){(void *)entry->bytes, entry->n};
        n_pieces += 2;
        const uint64_t bytes = ps_log_record_bytes(entry->n);
        const size_t rest = (size_t)(bytes - PS_LOG_RECORD_HEAD_BYTES - entry->n);
        if (rest != 0)
            writer->pieces[n_pieces++] = (struct iovec){(void *)zeros, rest};
        at += bytes;
    }
    int failed = write_pieces(writer->fd, writer->pieces, n_pieces);
    if (failed == 0 && writer->options.sync && fdatasync(writer->fd) != 0)
        failed = errno;
    if (failed != 0) {
        if (ftruncate(writer->fd, (off_t)writer->size) != 0)
            psc_log(PSC_LOG_DEBUG, "part of a record stays in %s", writer->path);
        return psc_error_set_errno(error, failed,
                                   "cannot write the log %s, so that no change can be "
                                   "acknowledged any more; what was is safe, and the next start "
                                   "has it",
                                   writer->path);
    }
    atomic_fetch_add_explicit(&writer->bytes, at - writer->size, memory_order_relaxed);
    atomic_fetch_add_explicit(&writer->groups, 1, memory_order_relaxed);
    writer->size = at;
    if (writer->options.sync)
        writer->synced = at;
    return PSC_OK;
}

/* What is no record. */
static psc_status_t act(ps_log_writer_t *writer, const ps_log_entry_t *entry, psc_error_t *error)
{
    if (entry->action == PS_LOG_CUT)
        return cut(writer, entry->segment, error);
    forget(writer, entry->segment, entry->name);
    return PSC_OK;
}

static ps_log_entry_t *pop(ps_log_writer_t *writer)
{
    return (ps_log_entry_t *)(void *)psc_queue_pop(writer->queue); /* node is its first member */
}

static void finish(ps_log_writer_t *writer, psc_status_t st, uint64_t position,
                   const psc_error_t *error)
{
    if (st != PSC_OK && !atomic_load(&writer->failed)) {
        writer->fault = *error;
        atomic_store_explicit(&writer->failed, true, memory_order_release);
    }
    if (st == PSC_OK)
        atomic_store_explicit(&writer->written, position, memory_order_release);
    if (writer->options.wake != NULL)
        writer->options.wake(writer->options.wake_context);
}

static void *run(void *argument)
{
    ps_log_writer_t *writer = argument;
    psc_error_t error = PSC_ERROR_INIT;
    psc_status_t st = PSC_OK;
    for (;;) {
        ps_log_entry_t *entry = pop(writer);
        size_t n = 0;
        uint64_t bytes = 0, position = 0;
        if (entry == NULL) {
            psc_queue_wait(writer->queue, UINT64_MAX);
            continue;
        }
        while (entry != NULL && entry != &writer->stop && entry->action == PS_LOG_WRITE) {
            writer->group[n++] = entry;
            bytes += entry->n;
            position = entry->position;
            entry = n < GROUP_RECORDS && bytes < GROUP_BYTES ? pop(writer) : NULL;
        }
        if (n != 0 && st == PSC_OK)
            st = write_group(writer, n, &error);
        if (n != 0)
            finish(writer, st, position, &error);
        if (entry == &writer->stop)
            return NULL;
        if (entry == NULL)
            continue;
        position = entry->position;
        if (st == PSC_OK)
            st = act(writer, entry, &error);
        finish(writer, st, position, &error);
    }
}

/* ---- the owner ---- */

static void submit(void *context, ps_log_entry_t *entry)
{
    ps_log_writer_t *writer = context;
    psc_queue_push(writer->queue, &entry->node);
}

static uint64_t written(void *context)
{
    const ps_log_writer_t *writer = context;
    return atomic_load_explicit(&writer->written, memory_order_acquire);
}

static psc_status_t fault(void *context, psc_error_t *error)
{
    const ps_log_writer_t *writer = context;
    if (!atomic_load_explicit(&writer->failed, memory_order_acquire))
        return PSC_OK;
    *error = writer->fault;
    return writer->fault.code;
}

static void count(void *context, uint64_t *bytes_out, uint64_t *groups_out)
{
    const ps_log_writer_t *writer = context;
    *bytes_out = atomic_load_explicit(&writer->bytes, memory_order_relaxed);
    *groups_out = atomic_load_explicit(&writer->groups, memory_order_relaxed);
}

const ps_log_sink_t *ps_log_writer_sink(const ps_log_writer_t *writer)
{
    return &writer->sink;
}

static psc_status_t start_thread(ps_log_writer_t *writer, psc_error_t *error)
{
    sigset_t all, before;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    const int failed = pthread_create(&writer->thread, NULL, run, writer);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed != 0)
        return psc_error_set_errno(error, failed, "starting the thread that writes the log");
    writer->started = true;
    return PSC_OK;
}

psc_status_t ps_log_writer_start(const ps_log_writer_options_t *options,
                                 ps_log_writer_t **writer_out, psc_error_t *error)
{
    ps_log_writer_t *writer = psc_alloc_zeroed(1, sizeof *writer);
    if (writer == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "out of memory for a log");
    writer->options = *options;
    writer->head = options->head;
    if (options->sync_bytes == 0 || options->sync_bytes > SYNC_BYTES)
        writer->options.sync_bytes = SYNC_BYTES;
    writer->fd = -1;
    writer->fault = (psc_error_t)PSC_ERROR_INIT;
    writer->checkpoints = psc_strdup(options->checkpoints);
    writer->folder = psc_strdup(options->folder);
    writer->sink = (ps_log_sink_t){.context = writer,
                                   .segment = options->head.number,
                                   .records = options->records,
                                   .submit = submit,
                                   .written = written,
                                   .fault = fault,
                                   .count = count};
    psc_status_t st = PSC_OK;
    if (writer->checkpoints == NULL || writer->folder == NULL)
        st = psc_error_set(error, PSC_NO_MEMORY, "out of memory for a log");
    if (st == PSC_OK)
        st = psc_queue_create(&writer->queue, error);
    if (st == PSC_OK)
        st = open_segment(writer, error);
    if (st == PSC_OK)
        st = start_thread(writer, error);
    if (st != PSC_OK) {
        ps_log_writer_destroy(writer);
        return st;
    }
    *writer_out = writer;
    return PSC_OK;
}

void ps_log_writer_stop(ps_log_writer_t *writer)
{
    if (writer == NULL || !writer->started)
        return;
    psc_queue_push(writer->queue, &writer->stop.node);
    (void)pthread_join(writer->thread, NULL);
    writer->started = false;
}

void ps_log_writer_destroy(ps_log_writer_t *writer)
{
    if (writer == NULL)
        return;
    ps_log_writer_stop(writer);
    if (writer->fd >= 0)
        (void)close(writer->fd);
    psc_queue_destroy(writer->queue);
    psc_free(writer->checkpoints);
    psc_free(writer->folder);
    psc_free(writer->path);
    psc_free(writer);
}
