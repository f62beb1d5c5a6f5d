/*
 * Two queues: jobs to the thread, the same jobs back.
 *
 * Reads. All rows that one batch misses are read as one group, sorted by key whatever job they came
 * in: neighbours share blocks of the cold tier, of its index and of its filters, which matters most
 * when these caches are small. CHUNK rows go to the cold tier at a time, so that it pins few blocks
 * at once. A record's bytes are copied once, from where the tier has them to the row; its header
 * goes through the thread's memory, because of a row that is being loaded the owner uses id, table,
 * pins, state, policy and flags. The parts that either side touches are disjoint bytes, handed over
 * by the queues.
 *
 * Writes. A tier that cannot take a write now (a stall of RocksDB) refuses it; then it waits in the
 * list `deferred`, and everything but reads behind it, and is tried again every RETRY_US. Reads go
 * on meanwhile: a row that a deferred job holds is read from there, the newest first, so a read
 * still sees every write before it. Reads never wait for writes, nor the other way round beyond one
 * group, so each kind comes back in its own order and a number says how far reads are.
 *
 * Memory: fixed at the start (ps_io_memory).
 *
 * Threads: the owner calls everything here; the thread runs run_jobs. Signals are blocked in the
 * thread, so that the program's handlers run where they are expected.
 */
#include "ps/store/io.h"

#include "common/alloc.h"
#include "common/clock.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK 64
#define MIN_WRITE_BYTES 128 /* entries of a write job are counted for records of this size */
#define RETRY_US 500

/* A row of a group that is being read. */
typedef struct wanted {
    uint64_t id;
    uint32_t slot;
    uint16_t job, at; /* in its group, and in it */
} wanted_t;

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
    uint64_t submitted, finished; /* READ jobs */
    size_t n_under_way;           /* jobs of all kinds */
    bool sync_under_way;
    ps_io_job_t sync, stop;
    ps_io_job_t *all_jobs;
    size_t n_jobs;
    size_t max_group; /* rows */

    /* the thread's; error is read by the owner only after a failed job came back */
    psc_error_t error;
    ps_io_job_t *group[PS_IO_GROUP_READS / PS_IO_JOB_READS]; /* that is being collected or read */
    size_t n_group;
    wanted_t *wanted;      /* [max_group] */
    ps_cold_read_t *chunk; /* [CHUNK] */
    wanted_t *chunk_wanted[CHUNK];
    ps_row_header_t *headers; /* [CHUNK] */
    ps_cold_write_t *writes;  /* [max_writes] */
    ps_io_job_t *deferred;    /* oldest first, by next_free */
    uint64_t tried_us;        /* when the first of them was tried last */

    atomic_uint_least64_t n_stalls, stall_us;
    atomic_bool stalled;
};

/* Of a header in a job's bytes. */
#define ALIGN _Alignof(ps_row_header_t)

static size_t max_writes_of(size_t job_bytes)
{
    return job_bytes / MIN_WRITE_BYTES;
}

/* A batch takes half of the read jobs at most. */
static size_t max_group_of(size_t n_read_jobs)
{
    size_t n = (n_read_jobs + 1) / 2 * PS_IO_JOB_READS;
    return n < PS_IO_GROUP_READS ? n : PS_IO_GROUP_READS;
}

size_t ps_io_memory(size_t n_read_jobs, size_t n_write_jobs, size_t job_bytes)
{
    size_t max_writes = max_writes_of(job_bytes);
    size_t reads = n_read_jobs * (sizeof(ps_io_job_t) + PS_IO_JOB_READS * sizeof(ps_io_read_t));
    size_t writes =
        n_write_jobs * (sizeof(ps_io_job_t) + job_bytes + max_writes * sizeof(ps_io_write_t));
    size_t thread = max_group_of(n_read_jobs) * sizeof(wanted_t) +
                    CHUNK * (sizeof(ps_cold_read_t) + sizeof(ps_row_header_t)) +
                    max_writes * sizeof(ps_cold_write_t);
    return sizeof(ps_io_t) + reads + writes + thread;
}

static ps_row_header_t *row_at(const ps_io_t *io, ps_place_t place)
{
    return ps_store_row(io->base, place);
}

/* ---- the thread: jobs that wait because the cold tier cannot take a write now ---- */

static const ps_row_header_t *header_in(const ps_io_job_t *job, const ps_io_write_t *write)
{
    return (const ps_row_header_t *)(const void *)(job->bytes + write->offset);
}

static int compare_keys(uint32_t slot_a, uint64_t id_a, uint32_t slot_b, uint64_t id_b)
{
    if (slot_a != slot_b)
        return slot_a < slot_b ? -1 : 1;
    return id_a < id_b ? -1 : id_a > id_b;
}

/* Of the same row, the later one last. */
static int compare_writes(const void *a, const void *b, void *context)
{
    const ps_io_write_t *x = a, *y = b;
    const ps_row_header_t *row_x = header_in(context, x), *row_y = header_in(context, y);
    if (row_x->table != row_y->table)
        return row_x->table < row_y->table ? -1 : 1;
    int order = compare_keys(x->slot, row_x->id, y->slot, row_y->id);
    return order != 0 ? order : (x->offset > y->offset) - (x->offset < y->offset);
}

/* The last write of this row in the job, or NULL. */
static const ps_io_write_t *find_write(const ps_io_job_t *job, uint16_t table, uint32_t slot,
                                       uint64_t id)
{
    size_t low = 0, high = job->n; /* the first write that comes after the row */
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const ps_row_header_t *row = header_in(job, &job->writes[middle]);
        int order = row->table != table ? (row->table < table ? -1 : 1)
                                        : compare_keys(job->writes[middle].slot, row->id, slot, id);
        if (order <= 0)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == 0)
        return NULL;
    const ps_row_header_t *row = header_in(job, &job->writes[low - 1]);
    return row->table == table && row->id == id ? &job->writes[low - 1] : NULL;
}

/* Whether a deferred job decides what this read finds: the newest that has the row. */
static bool read_deferred(const ps_io_t *io, uint16_t table, const wanted_t *wanted,
                          ps_cold_read_t *read)
{
    const ps_io_write_t *found = NULL;
    const ps_io_job_t *holder = NULL;
    for (const ps_io_job_t *job = io->deferred; job != NULL; job = job->next_free) {
        const ps_io_write_t *write =
            job->kind == PS_IO_WRITE ? find_write(job, table, wanted->slot, wanted->id) : NULL;
        if (write != NULL) {
            found = write;
            holder = job;
        }
    }
    if (found == NULL)
        return false;
    if (!found->remove)
        ps_cold_read_fill(read, holder->bytes + found->offset);
    return true;
}

/* ---- the thread: reads ---- */

static int compare_wanted(const void *a, const void *b)
{
    const wanted_t *x = a, *y = b;
    return compare_keys(x->slot, x->id, y->slot, y->id);
}

/* Takes over what a record found says of its row; the floats are there already. */
static psc_status_t accept_header(ps_io_t *io, ps_row_header_t *row, const ps_row_header_t *found)
{
    if (found->id != row->id || found->table != row->table || found->state != PS_ROW_PRESENT) {
        psc_status_t st = psc_error_set(
            &io->error, PSC_CORRUPT,
            "row %llu of table %u: the %s tier holds row %llu of table %u in its place",
            (unsigned long long)row->id, (unsigned)row->table, io->cold->ops->name,
            (unsigned long long)found->id, (unsigned)found->table);
        io->error.id = row->id;
        return st;
    }
    row->version = found->version;
    row->update_count = found->update_count;
    row->last_clock = found->last_clock;
    return PSC_OK;
}

/* What came back for the first n of the chunk. */
static psc_status_t finish_chunk(ps_io_t *io, size_t n)
{
    psc_status_t st = PSC_OK;
    for (size_t i = 0; st == PSC_OK && i < n; i++) {
        ps_io_read_t *read = &io->group[io->chunk_wanted[i]->job]->reads[io->chunk_wanted[i]->at];
        read->found = io->chunk[i].found;
        const ps_row_header_t *header = (const ps_row_header_t *)(const void *)io->chunk[i].head;
        if (read->found)
            st = accept_header(io, row_at(io, read->place), header);
    }
    return st;
}

/* Reads `wanted` rows of one size; those that a deferred job holds come from there. */
static psc_status_t read_chunk(ps_io_t *io, wanted_t *wanted, size_t n, size_t record_bytes)
{
    size_t n_cold = 0, n_done = n; /* the chunk is filled from both ends */
    for (size_t i = 0; i < n; i++) {
        const ps_io_job_t *job = io->group[wanted[i].job];
        ps_row_header_t *row = row_at(io, job->reads[wanted[i].at].place);
        ps_cold_read_t read = {.head = (uint8_t *)&io->headers[n_done - 1],
                               .body = (uint8_t *)(row + 1),
                               .head_size = sizeof *row,
                               .size = record_bytes};
        ps_cold_key(read.key, row->table, wanted[i].slot, wanted[i].id);
        size_t at;
        if (io->deferred != NULL && read_deferred(io, row->table, &wanted[i], &read)) {
            at = --n_done;
        } else {
            at = n_cold++;
            read.head = (uint8_t *)&io->headers[at];
        }
        io->chunk[at] = read;
        io->chunk_wanted[at] = &wanted[i];
    }
    psc_status_t st =
        n_cold != 0 ? io->cold->ops->read(io->cold, io->chunk, n_cold, &io->error) : PSC_OK;
    return st == PSC_OK ? finish_chunk(io, n) : st;
}

static psc_status_t read_group(ps_io_t *io)
{
    size_t n = 0;
    for (size_t j = 0; j < io->n_group; j++) {
        const ps_io_job_t *job = io->group[j];
        for (size_t i = 0; i < job->n; i++)
            io->wanted[n++] = (wanted_t){.id = row_at(io, job->reads[i].place)->id,
                                         .slot = job->reads[i].slot,
                                         .job = (uint16_t)j,
                                         .at = (uint16_t)i};
    }
    qsort(io->wanted, n, sizeof *io->wanted, compare_wanted);
    psc_status_t st = PSC_OK;
    for (size_t i = 0; st == PSC_OK && i < n; i += CHUNK)
        st = read_chunk(io, io->wanted + i, n - i < CHUNK ? n - i : CHUNK,
                        io->group[0]->record_bytes);
    return st;
}

/* ---- the thread: writes and all else ---- */

static psc_status_t run_write(ps_io_t *io, ps_io_job_t *job)
{
    for (size_t i = 0; i < job->n; i++) {
        const ps_io_write_t *write = &job->writes[i];
        const ps_row_header_t *row = header_in(job, write);
        ps_cold_key(io->writes[i].key, row->table, write->slot, row->id);
        io->writes[i].record = write->remove ? NULL : job->bytes + write->offset;
        io->writes[i].size = write->size;
    }
    return io->cold->ops->write(io->cold, io->writes, job->n, &io->error);
}

static void complete(ps_io_t *io, ps_io_job_t *job, psc_status_t st)
{
    job->status = st;
    if (st != PSC_OK && io->error.code == PSC_OK)
        (void)psc_error_set(&io->error, st, "the %s tier failed without saying why",
                            io->cold->ops->name);
    psc_queue_push(io->done, &job->node);
    if (io->wake != NULL)
        io->wake(io->wake_context);
}

/* BUSY: a write that cannot be done now; nothing happened. */
static psc_status_t run_other(ps_io_t *io, ps_io_job_t *job)
{
    if (io->error.code != PSC_OK)
        return io->error.code;
    if (job->kind == PS_IO_SAVE) {
        const psc_status_t saved = io->cold->ops->save(io->cold, job->folder, job->fault);
        PSC_BUG_ON(saved != job->fault->code);
        return PSC_OK;
    }
    psc_status_t st = job->kind == PS_IO_WRITE ? run_write(io, job)
                      : job->kind == PS_IO_SCAN
                          ? io->cold->ops->scan(io->cold, job->scan, &io->error)
                          : io->cold->ops->sync(io->cold, &io->error);
    if (st == PSC_BUSY && job->kind == PS_IO_WRITE)
        io->error = (psc_error_t)PSC_ERROR_INIT;
    return st;
}

/* Tries what is deferred, until one has to wait still. */
static void try_deferred(ps_io_t *io)
{
    uint64_t now_us = psc_clock_us();
    if (atomic_load_explicit(&io->stalled, memory_order_relaxed))
        atomic_fetch_add_explicit(&io->stall_us, now_us - io->tried_us, memory_order_relaxed);
    io->tried_us = now_us;
    while (io->deferred != NULL) {
        ps_io_job_t *job = io->deferred;
        psc_status_t st = run_other(io, job);
        if (st == PSC_BUSY && job->kind == PS_IO_WRITE) {
            if (!atomic_exchange_explicit(&io->stalled, true, memory_order_relaxed))
                atomic_fetch_add_explicit(&io->n_stalls, 1, memory_order_relaxed);
            return;
        }
        atomic_store_explicit(&io->stalled, false, memory_order_relaxed);
        io->deferred = job->next_free;
        complete(io, job, st);
    }
}

static void defer(ps_io_t *io, ps_io_job_t *job)
{
    if (job->kind == PS_IO_WRITE) /* its rows can be found, and neighbours are inserted faster */
        qsort_r(job->writes, job->n, sizeof *job->writes, compare_writes, job);
    ps_io_job_t **end = &io->deferred;
    while (*end != NULL)
        end = &(*end)->next_free;
    *end = job;
    job->next_free = NULL;
}

static void run_read(ps_io_t *io, ps_io_job_t *job)
{
    PSC_BUG_ON(io->n_group == sizeof io->group / sizeof io->group[0]);
    io->group[io->n_group++] = job;
    if (job->more)
        return;
    psc_status_t st = io->error.code;
    if (st == PSC_OK)
        st = read_group(io);
    for (size_t j = 0; j < io->n_group; j++)
        complete(io, io->group[j], st);
    io->n_group = 0;
}

/* The next job; NULL: it is time to try what is deferred. */
static ps_io_job_t *wait_job(ps_io_t *io)
{
    for (;;) {
        ps_io_job_t *job = (ps_io_job_t *)(void *)psc_queue_pop(io->jobs);
        if (job != NULL)
            return job;
        uint64_t waited_us = io->deferred != NULL ? psc_clock_us() - io->tried_us : 0;
        if (waited_us >= RETRY_US)
            return NULL;
        psc_queue_wait(io->jobs, io->deferred != NULL ? RETRY_US - waited_us : UINT64_MAX);
    }
}

static void *run_jobs(void *argument)
{
    ps_io_t *io = argument;
    bool stopping = false;
    while (!stopping || io->deferred != NULL) {
        ps_io_job_t *job = wait_job(io);
        bool first = io->deferred == NULL;
        if (job == &io->stop)
            stopping = true;
        else if (job != NULL && job->kind == PS_IO_READ)
            run_read(io, job);
        else if (job != NULL)
            defer(io, job);
        /* Not in the middle of a group: what is deferred is found by it all or not at all. */
        if (io->deferred != NULL && io->n_group == 0 &&
            (first || psc_clock_us() - io->tried_us >= RETRY_US))
            try_deferred(io);
    }
    return NULL;
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
    io->max_group = max_group_of(options->n_read_jobs);
    io->wanted = psc_alloc_array(io->max_group, sizeof *io->wanted);
    io->chunk = psc_alloc_array(CHUNK, sizeof *io->chunk);
    io->headers = psc_alloc_array(CHUNK, sizeof *io->headers);
    io->writes = psc_alloc_array(io->max_writes, sizeof *io->writes);
    return io->wanted != NULL && io->chunk != NULL && io->headers != NULL && io->writes != NULL;
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
    psc_free(io->wanted);
    psc_free(io->headers);
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
    job->more = false;
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

void ps_io_copy_row(uint8_t *to, const ps_row_header_t *row, size_t size)
{
    ps_row_header_t header = *row;
    header.pins = 0;
    header.state = PS_ROW_PRESENT;
    header.policy = 0;
    header.flags = 0;
    memcpy(to, &header, sizeof header);
    memcpy(to + sizeof header, row + 1, size - sizeof header);
}

bool ps_io_add_write(const ps_io_t *io, ps_io_job_t *job, const ps_row_header_t *row, size_t size,
                     uint32_t slot)
{
    job->used = (job->used + 7) / 8 * 8; /* headers are looked at where they lie */
    if (job->n == io->max_writes || job->used > io->job_bytes || size > io->job_bytes - job->used)
        return false;
    job->writes[job->n++] = (ps_io_write_t){
        .offset = (uint32_t)job->used, .size = (uint32_t)size, .slot = slot & 0x7fffffff};
    ps_io_copy_row(job->bytes + job->used, row, size);
    size_t used = (job->used + size + ALIGN - 1) / ALIGN * ALIGN; /* headers are read in place */
    job->used = used < io->job_bytes ? used : io->job_bytes;
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
    job->status = PSC_OK;
    job->under_way = true;
    io->n_under_way++;
    job->number = job->kind == PS_IO_READ ? ++io->submitted : 0;
    uint64_t number = job->number;
    psc_queue_push(io->jobs, &job->node);
    return number;
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
        job->under_way = false;
        io->n_under_way--;
        if (job->kind == PS_IO_READ)
            io->finished = job->number;
        if (job != &io->sync)
            return job;
        io->sync_under_way = false;
    }
}

void ps_io_wait(ps_io_t *io)
{
    if (!ps_io_idle(io))
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

bool ps_io_idle(const ps_io_t *io)
{
    return io->n_under_way == 0;
}

ps_io_stalls_t ps_io_stalls(const ps_io_t *io)
{
    return (ps_io_stalls_t){.n = atomic_load_explicit(&io->n_stalls, memory_order_relaxed),
                            .us = atomic_load_explicit(&io->stall_us, memory_order_relaxed),
                            .now = atomic_load_explicit(&io->stalled, memory_order_relaxed)};
}

const psc_error_t *ps_io_error(const ps_io_t *io)
{
    return &io->error;
}
