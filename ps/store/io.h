/*
 * The store's I/O thread: read and write jobs, and their way back to the owner. Reads come back in
 * the order of their submission, and so do all others; a read sees every write that was submitted
 * before it, but does not wait for one that the cold tier cannot take now. All memory of jobs is
 * taken at the start: when there is no free job, the owner waits.
 *
 *     job = ps_io_write_job(io);                    // NULL: all under way
 *     ps_io_add_write(io, job, row, size, slot);    // false: full
 *     ps_io_submit(io, job);
 *     while ((job = ps_io_next(io)) != NULL) ... ps_io_put(io, job);
 *
 * After the first failure every later job fails with the same error, unperformed: a read that came
 * after a lost write could find an old row.
 */
#ifndef PS_STORE_IO_H
#define PS_STORE_IO_H

#include "common/queue.h"
#include "ps/store/cold.h"
#include "ps/store/store.h"

#define PS_IO_JOB_READS 512
#define PS_IO_GROUP_READS 8192

typedef struct ps_io ps_io_t;

typedef enum ps_io_kind {
    PS_IO_READ,
    PS_IO_WRITE,
    PS_IO_SYNC,
    PS_IO_SCAN,
    PS_IO_SAVE,
} ps_io_kind_t;

typedef struct ps_io_read {
    ps_place_t place;
    uint32_t slot : 31;
    uint32_t found : 1; /* out */
} ps_io_read_t;

typedef struct ps_io_write {
    uint32_t offset, size; /* in bytes */
    uint32_t slot : 31;
    uint32_t remove : 1; /* the row goes: size is that of its header, which says which one */
} ps_io_write_t;

/* One job belongs to the owner until it is submitted and after it came back. */
typedef struct ps_io_job {
    psc_queue_node_t node;
    ps_io_kind_t kind;
    psc_status_t status; /* out */
    bool under_way;      /* the owner's: submitted and not back yet */
    uint64_t number;     /* READ: 1, 2, ... in the order of submission */
    size_t n;            /* reads or writes */
    ps_io_read_t *reads; /* READ: rows of one table, [PS_IO_JOB_READS] */
    size_t record_bytes; /* READ: header and row, as on disk */
    bool more;           /* READ: the next READ job belongs to it; all of them are read as one */
    ps_io_write_t *writes;
    uint8_t *bytes; /* WRITE: the records */
    size_t used;
    ps_cold_scan_t *scan; /* SCAN: heads are row headers */
    const char *folder;   /* SAVE: of the cold tier's files */
    psc_error_t *fault;   /* SAVE: out; a tier that cannot be saved has not failed */
    struct ps_io_job *next_free;
} ps_io_job_t;

typedef struct ps_io_options {
    ps_cold_t *cold; /* borrowed */
    uint8_t *base;   /* of the rows */
    size_t n_read_jobs, n_write_jobs;
    size_t job_bytes; /* of a write job; no record is larger */
    ps_wake_fn wake;
    void *wake_context;
} ps_io_options_t;

/* What a start with these numbers takes. */
size_t ps_io_memory(size_t n_read_jobs, size_t n_write_jobs, size_t job_bytes);

/* Starts the thread. Errors: NO_MEMORY, IO. Gives. */
PSC_MUST_CHECK psc_status_t ps_io_start(const ps_io_options_t *options, ps_io_t **io_out,
                                        psc_error_t *error);

/* Ends the thread after the jobs that were submitted; frees. NULL is a no-op. */
void ps_io_stop(ps_io_t *io);

/* A free job, empty; NULL when all are under way. */
ps_io_job_t *ps_io_read_job(ps_io_t *io);
ps_io_job_t *ps_io_write_job(ps_io_t *io);
/* How many there are. */
size_t ps_io_free_writes(const ps_io_t *io);

/* Gives a job back that is not under way: a READ or WRITE job; others are their maker's. */
void ps_io_put(ps_io_t *io, ps_io_job_t *job);

/* False when the job is full. */
bool ps_io_add_read(ps_io_job_t *job, ps_place_t place, uint32_t slot);
/* A row in memory as it is on disk: its header says present, clean, not pinned. size: of both. */
void ps_io_copy_row(uint8_t *to, const ps_row_header_t *row, size_t size);
/* Copies the row in that way. */
bool ps_io_add_write(const ps_io_t *io, ps_io_job_t *job, const ps_row_header_t *row, size_t size,
                     uint32_t slot);
/* The row of this header goes from the cold tier. */
bool ps_io_add_remove(const ps_io_t *io, ps_io_job_t *job, const ps_row_header_t *row,
                      uint32_t slot);

/*
 * Takes the job until it comes back. Returns a READ job's number. While it is under way the thread
 * writes those parts of its rows that come from disk, and the owner leaves these alone: version,
 * update_count, last_clock, and the bytes behind the header. READ jobs that are linked by `more`
 * are submitted one after another and have PS_IO_GROUP_READS reads at most.
 */
uint64_t ps_io_submit(ps_io_t *io, ps_io_job_t *job);

/* Submits "all that was written so far reaches the disk". Errors: NO_MEMORY never; BUSY while an
 * earlier sync is under way. */
PSC_MUST_CHECK psc_status_t ps_io_submit_sync(ps_io_t *io, psc_error_t *error);

/* The next finished job, or NULL. Not for sync: it is put by itself. */
ps_io_job_t *ps_io_next(ps_io_t *io);

/* Sleeps until ps_io_next has something, when anything is under way. */
void ps_io_wait(ps_io_t *io);

/* Numbers of the last READ job submitted and of the last that came back. */
uint64_t ps_io_submitted(const ps_io_t *io);
uint64_t ps_io_finished(const ps_io_t *io);

/* Whether nothing at all is under way. */
bool ps_io_idle(const ps_io_t *io);

/* How often a write found that the cold tier could not take it, for how long writes waited because
 * of that, and whether one is waiting. Any thread. */
typedef struct ps_io_stalls {
    uint64_t n, us;
    bool now;
} ps_io_stalls_t;
ps_io_stalls_t ps_io_stalls(const ps_io_t *io);

/* The first failure, once a job came back with one. */
const psc_error_t *ps_io_error(const ps_io_t *io);

#endif
