/*
 * Two queues: jobs to the thread, the same jobs back. Job numbers grow by one in the order of
 * submission, which is also the order of return, so "finished up to n" says everything.
 *
 * A read goes through the thread's own buffer, because the cold tier's value has a header too, and
 * of a row that is being loaded the owner uses id, table, pins, state, policy and flags. The thread
 * checks id and table of what it found and copies the rest. The parts that either side touches are
 * disjoint bytes, handed over by the queues.
 *
 * Memory: fixed at the start (ps_io_memory). The rows of a read job are read in chunks of CHUNK,
 * sorted by key, so that a batched read pins few blocks of the cold tier's cache at a time.
 *
 * Threads: the owner calls everything here; the thread runs run_jobs. Signals are blocked in the
 * thread, so that the program's handlers run where they are expected.
 */
#include "ps/store/io.h"

#include "common/alloc.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK 64
#define MIN_WRITE_BYTES 128 /* entries of a write job are counted for records of this size */

struct ps_io {
    ps_cold_t *cold;
    uint8_t *base;
    size_t job_bytes, max_writes;
    ps_wake_fn wake;
    void *wake_context;
    psc_queue_t *jobs, *done;
    pthread_t thread;
    bool started;

    /* the owner's */
    ps_io_job_t *free_reads, *free_writes;
    size_t n_free_writes;
    uint64_t submitted, finished;
    bool sync_under_way;
    ps_io_job_t sync, stop;
    ps_io_job_t *all_jobs;
    size_t n_jobs;

    /* the thread's; error is read by the owner only after a failed job came back */
    psc_error_t error;
    uint8_t *scratch;        /* [job_bytes] records read */
    ps_cold_read_t *chunk;   /* [CHUNK] */
    ps_cold_write_t *writes; /* [max_writes] */
};

static size_t max_writes_of(size_t job_bytes)
{
    return job_bytes / MIN_WRITE_BYTES;
}

size_t ps_io_memory(size_t n_read_jobs, size_t n_write_jobs, size_t job_bytes)
{
    size_t max_writes = max_writes_of(job_bytes);
    size_t reads = n_read_jobs * (sizeof(ps_io_job_t) + PS_IO_JOB_READS * sizeof(ps_io_read_t));
    size_t writes =
        n_write_jobs * (sizeof(ps_io_job_t) + job_bytes + max_writes * sizeof(ps_io_write_t));
    size_t thread =
        job_bytes + CHUNK * sizeof(ps_cold_read_t) + max_writes * sizeof(ps_cold_write_t);
    return sizeof(ps_io_t) + reads + writes + thread;
}

static ps_row_header_t *row_at(const ps_io_t *io, ps_place_t place)
{
    return ps_store_row(io->base, place);
}

/* ---- the thread ---- */

static int compare_reads(const void *a, const void *b, void *context)
{
    const ps_io_read_t *x = a, *y = b;
    const ps_io_t *io = context;
    if (x->slot != y->slot)
        return x->slot < y->slot ? -1 : 1;
    uint64_t id_x = row_at(io, x->place)->id, id_y = row_at(io, y->place)->id;
    return id_x < id_y ? -1 : id_x > id_y;
}

/* Puts a record found into its row. */
static psc_status_t accept_record(ps_io_t *io, ps_place_t place, const uint8_t *record, size_t size)
{
    ps_row_header_t *row = row_at(io, place);
    ps_row_header_t found;
    memcpy(&found, record, sizeof found);
    if (found.id != row->id || found.table != row->table || found.state != PS_ROW_PRESENT) {
        psc_status_t st = psc_error_set(
            &io->error, PSC_CORRUPT,
            "row %llu of table %u: the %s tier holds row %llu of table %u in its place",
            (unsigned long long)row->id, (unsigned)row->table, io->cold->ops->name,
            (unsigned long long)found.id, (unsigned)found.table);
        io->error.id = row->id;
        return st;
    }
    row->version = found.version;
    row->push_seq = found.push_seq;
    row->update_count = found.update_count;
    row->last_clock = found.last_clock;
    memcpy(row + 1, record + sizeof found, size - sizeof found);
    return PSC_OK;
}

static psc_status_t run_read(ps_io_t *io, ps_io_job_t *job)
{
    qsort_r(job->reads, job->n, sizeof *job->reads, compare_reads, io);
    size_t chunk = io->job_bytes / job->record_bytes;
    if (chunk > CHUNK)
        chunk = CHUNK;
    for (size_t start = 0; start < job->n; start += chunk) {
        size_t n = job->n - start < chunk ? job->n - start : chunk;
        for (size_t i = 0; i < n; i++) {
            const ps_io_read_t *read = &job->reads[start + i];
            const ps_row_header_t *row = row_at(io, read->place);
            ps_cold_key(io->chunk[i].key, row->table, read->slot, row->id);
            io->chunk[i].record = io->scratch + i * job->record_bytes;
            io->chunk[i].size = job->record_bytes;
            io->chunk[i].found = false;
        }
        psc_status_t st = io->cold->ops->read(io->cold, io->chunk, n, &io->error);
        for (size_t i = 0; st == PSC_OK && i < n; i++) {
            ps_io_read_t *read = &job->reads[start + i];
            read->found = io->chunk[i].found;
            if (read->found)
                st = accept_record(io, read->place, io->chunk[i].record, job->record_bytes);
        }
        if (st != PSC_OK)
            return st;
    }
    return PSC_OK;
}

static psc_status_t run_write(ps_io_t *io, ps_io_job_t *job)
{
    for (size_t i = 0; i < job->n; i++) {
        const ps_io_write_t *write = &job->writes[i];
        ps_row_header_t header;
        memcpy(&header, job->bytes + write->offset, sizeof header);
        ps_cold_key(io->writes[i].key, header.table, write->slot, header.id);
        io->writes[i].record = write->remove ? NULL : job->bytes + write->offset;
        io->writes[i].size = write->size;
    }
    return io->cold->ops->write(io->cold, io->writes, job->n, &io->error);
}

static void *run_jobs(void *argument)
{
    ps_io_t *io = argument;
    for (;;) {
        ps_io_job_t *job = (ps_io_job_t *)(void *)psc_queue_pop(io->jobs);
        if (job == NULL) {
            psc_queue_wait(io->jobs, UINT64_MAX);
            continue;
        }
        if (job == &io->stop)
            return NULL;
        if (io->error.code != PSC_OK)
            job->status = io->error.code;
        else if (job->kind == PS_IO_READ)
            job->status = run_read(io, job);
        else if (job->kind == PS_IO_WRITE)
            job->status = run_write(io, job);
        else if (job->kind == PS_IO_SCAN)
            job->status = io->cold->ops->scan(io->cold, job->scan, &io->error);
        else
            job->status = io->cold->ops->sync(io->cold, &io->error);
        if (job->status != PSC_OK && io->error.code == PSC_OK)
            (void)psc_error_set(&io->error, job->status, "the %s tier failed without saying why",
                                io->cold->ops->name);
        psc_queue_push(io->done, &job->node);
        if (io->wake != NULL)
            io->wake(io->wake_context);
    }
}

/* ---- the owner ---- */

static void push_free(ps_io_t *io, ps_io_job_t *job)
{
    ps_io_job_t **list = job->kind == PS_IO_READ ? &io->free_reads : &io->free_writes;
    job->next_free = *list;
    *list = job;
    if (job->kind == PS_IO_WRITE)
        io->n_free_writes++;
}

static bool create_jobs(ps_io_t *io, const ps_io_options_t *options)
{
    io->n_jobs = options->n_read_jobs + options->n_write_jobs;
    io->all_jobs = psc_alloc_zeroed(io->n_jobs, sizeof *io->all_jobs);
    if (io->all_jobs == NULL)
        return false;
    for (size_t i = 0; i < io->n_jobs; i++) {
        ps_io_job_t *job = &io->all_jobs[i];
        job->kind = i < options->n_read_jobs ? PS_IO_READ : PS_IO_WRITE;
        if (job->kind == PS_IO_READ) {
            job->reads = psc_alloc_array(PS_IO_JOB_READS, sizeof *job->reads);
            if (job->reads == NULL)
                return false;
        } else {
            job->bytes = psc_alloc(io->job_bytes);
            job->writes = psc_alloc_array(io->max_writes, sizeof *job->writes);
            if (job->bytes == NULL || job->writes == NULL)
                return false;
        }
        push_free(io, job);
    }
    io->scratch = psc_alloc(io->job_bytes);
    io->chunk = psc_alloc_array(CHUNK, sizeof *io->chunk);
    io->writes = psc_alloc_array(io->max_writes, sizeof *io->writes);
    return io->scratch != NULL && io->chunk != NULL && io->writes != NULL;
}

static psc_status_t start_thread(ps_io_t *io, psc_error_t *error)
{
    sigset_t all, before;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(&io->thread, NULL, run_jobs, io);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc != 0)
        return psc_error_set_errno(error, rc, "starting the I/O thread");
    io->started = true;
    return PSC_OK;
}

psc_status_t ps_io_start(const ps_io_options_t *options, ps_io_t **io_out, psc_error_t *error)
{
    ps_io_t *io = psc_alloc_zeroed(1, sizeof *io);
    if (io == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "out of memory for the I/O thread");
    io->cold = options->cold;
    io->base = options->base;
    io->job_bytes = options->job_bytes;
    io->max_writes = max_writes_of(options->job_bytes);
    io->wake = options->wake;
    io->wake_context = options->wake_context;
    io->error = (psc_error_t)PSC_ERROR_INIT;
    io->sync.kind = PS_IO_SYNC;
    psc_status_t st = psc_queue_create(&io->jobs, error);
    if (st == PSC_OK)
        st = psc_queue_create(&io->done, error);
    if (st == PSC_OK && !create_jobs(io, options))
        st = psc_error_set(error, PSC_NO_MEMORY, "out of memory for I/O jobs of %zu bytes",
                           io->job_bytes);
    if (st == PSC_OK)
        st = start_thread(io, error);
    if (st != PSC_OK) {
        ps_io_stop(io);
        return st;
    }
    *io_out = io;
    return PSC_OK;
}

void ps_io_stop(ps_io_t *io)
{
    if (io == NULL)
        return;
    if (io->started) {
        psc_queue_push(io->jobs, &io->stop.node);
        (void)pthread_join(io->thread, NULL);
    }
    psc_queue_destroy(io->jobs);
    psc_queue_destroy(io->done);
    for (size_t i = 0; io->all_jobs != NULL && i < io->n_jobs; i++) {
        psc_free(io->all_jobs[i].reads);
        psc_free(io->all_jobs[i].writes);
        psc_free(io->all_jobs[i].bytes);
    }
    psc_free(io->all_jobs);
    psc_free(io->scratch);
    psc_free(io->chunk);
    psc_free(io->writes);
    psc_free(io);
}

ps_io_job_t *ps_io_read_job(ps_io_t *io)
{
    ps_io_job_t *job = io->free_reads;
    if (job == NULL)
        return NULL;
    io->free_reads = job->next_free;
    job->n = 0;
    return job;
}

ps_io_job_t *ps_io_write_job(ps_io_t *io)
{
    ps_io_job_t *job = io->free_writes;
    if (job == NULL)
        return NULL;
    io->free_writes = job->next_free;
    io->n_free_writes--;
    job->n = 0;
    job->used = 0;
    return job;
}

size_t ps_io_free_writes(const ps_io_t *io)
{
    return io->n_free_writes;
}

void ps_io_put(ps_io_t *io, ps_io_job_t *job)
{
    push_free(io, job);
}

bool ps_io_add_read(ps_io_job_t *job, ps_place_t place, uint32_t slot)
{
    if (job->n == PS_IO_JOB_READS)
        return false;
    job->reads[job->n++] = (ps_io_read_t){.place = place, .slot = slot & 0x7fffffff};
    return true;
}

bool ps_io_add_write(const ps_io_t *io, ps_io_job_t *job, const ps_row_header_t *row, size_t size,
                     uint32_t slot)
{
    if (job->n == io->max_writes || size > io->job_bytes - job->used)
        return false;
    job->writes[job->n++] = (ps_io_write_t){
        .offset = (uint32_t)job->used, .size = (uint32_t)size, .slot = slot & 0x7fffffff};
    ps_row_header_t header = *row;
    header.pins = 0;
    header.state = PS_ROW_PRESENT;
    header.policy = 0;
    header.flags = 0;
    memcpy(job->bytes + job->used, &header, sizeof header);
    memcpy(job->bytes + job->used + sizeof header, row + 1, size - sizeof header);
    job->used += size;
    return true;
}

bool ps_io_add_remove(const ps_io_t *io, ps_io_job_t *job, const ps_row_header_t *row,
                      uint32_t slot)
{
    if (!ps_io_add_write(io, job, row, sizeof *row, slot))
        return false;
    job->writes[job->n - 1].remove = 1;
    return true;
}

uint64_t ps_io_submit(ps_io_t *io, ps_io_job_t *job)
{
    job->number = ++io->submitted;
    job->status = PSC_OK;
    psc_queue_push(io->jobs, &job->node);
    return job->number;
}

psc_status_t ps_io_submit_sync(ps_io_t *io, psc_error_t *error)
{
    if (io->sync_under_way)
        return psc_error_set(error, PSC_BUSY, "a sync is under way");
    io->sync_under_way = true;
    (void)ps_io_submit(io, &io->sync);
    return PSC_OK;
}

ps_io_job_t *ps_io_next(ps_io_t *io)
{
    for (;;) {
        ps_io_job_t *job = (ps_io_job_t *)(void *)psc_queue_pop(io->done);
        if (job == NULL)
            return NULL;
        io->finished = job->number;
        if (job != &io->sync)
            return job;
        io->sync_under_way = false;
    }
}

void ps_io_wait(ps_io_t *io)
{
    if (io->finished != io->submitted)
        psc_queue_wait(io->done, UINT64_MAX);
}

uint64_t ps_io_submitted(const ps_io_t *io)
{
    return io->submitted;
}

uint64_t ps_io_finished(const ps_io_t *io)
{
    return io->finished;
}

const psc_error_t *ps_io_error(const ps_io_t *io)
{
    return &io->error;
}
