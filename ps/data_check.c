/*
 * Looks at what a server left, as a stranger: nothing is believed that is not checked, and the
 * lock is held meanwhile, so that no server begins in the middle.
 *
 * What is checked of a directory that was closed: its files against contents (ps/data_identity.h),
 * then every block of RocksDB's against its checksum, and every record: it is a row, of the table,
 * the id and the slot that its key says, and as long as the others of its table. Rows have no
 * checksum of their own: from the moment at which RocksDB has a record it is in a log or a block
 * with one. Of a directory that is open nothing is read: its rows are of any moment, and what
 * counts is in a checkpoint.
 *
 * Threads: none. Cost: reads all bytes once.
 */
#include "ps/data_check.h"

#include "common/alloc.h"
#include "common/file.h"
#include "common/hash.h"
#include "common/slots.h"
#include "ps/store/cold.h"
#include "ps/store/store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define N_TABLES ((size_t)UINT16_MAX + 1)

static psc_status_t no_memory(const char *data, psc_error_t *error)
{
    return psc_error_set(error, PSC_NO_MEMORY, "out of memory for %s", data);
}

/* ---- which there are ---- */

static int compare_ranks(const void *left, const void *right)
{
    const uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
    return (a > b) - (a < b);
}

static bool is_server(const char *name, uint32_t *rank_out)
{
    static const char prefix[] = "server-";
    char *end = NULL;
    if (strncmp(name, prefix, sizeof prefix - 1) != 0)
        return false;
    const char *digits = name + sizeof prefix - 1;
    const unsigned long rank = strtoul(digits, &end, 10);
    *rank_out = (uint32_t)rank;
    return end != digits && *end == '\0' && rank <= UINT16_MAX;
}

psc_status_t ps_data_list(const char *data, uint32_t **ranks_out, size_t *n_out, psc_error_t *error)
{
    DIR *folder = opendir(data);
    const struct dirent *entry;
    uint32_t *ranks = NULL, rank;
    size_t n = 0;
    psc_status_t st = PSC_OK;
    if (folder == NULL)
        return psc_error_set_errno(error, errno, "cannot read %s", data);
    while (st == PSC_OK && (entry = readdir(folder)) != NULL) {
        if (!is_server(entry->d_name, &rank))
            continue;
        uint32_t *grown = psc_realloc_array(ranks, n + 1, sizeof *ranks);
        if (grown == NULL) {
            st = no_memory(data, error);
            continue;
        }
        ranks = grown;
        ranks[n++] = rank;
    }
    (void)closedir(folder);
    if (st == PSC_OK && n == 0)
        st = psc_error_set(error, PSC_NOT_FOUND, "%s has no server's data (server-N)", data);
    if (st != PSC_OK) {
        psc_free(ranks);
        return st;
    }
    qsort(ranks, n, sizeof *ranks, compare_ranks);
    *ranks_out = ranks;
    *n_out = n;
    return PSC_OK;
}

/* ---- rows ---- */

typedef struct rows {
    char path[4096]; /* of RocksDB */
    uint64_t n;
    size_t *bytes; /* [N_TABLES] of a record; 0: none was seen */
} rows_t;

static psc_status_t bad_row(const rows_t *rows, const uint8_t *key, const char *what,
                            psc_error_t *error)
{
    const unsigned table = (unsigned)key[0] << 8 | key[1];
    uint64_t id = 0;
    for (size_t i = 0; i < 8; i++)
        id = id << 8 | key[6 + i];
    return psc_error_set(error, PSC_CORRUPT, "%s: row %" PRIu64 " of table %u is damaged: %s",
                         rows->path, id, table, what);
}

static psc_status_t check_row(void *context, const uint8_t *key, size_t n_key,
                              const uint8_t *record, size_t size, psc_error_t *error)
{
    rows_t *rows = context;
    ps_row_header_t row;
    uint8_t wanted[PS_COLD_KEY_BYTES];
    if (n_key != PS_COLD_KEY_BYTES)
        return psc_error_set(error, PSC_CORRUPT, "%s: a key has %zu bytes", rows->path, n_key);
    if (size < sizeof row)
        return bad_row(rows, key, "it is shorter than any row", error);
    memcpy(&row, record, sizeof row);
    ps_cold_key(wanted, row.table, psc_slot_of_hash(psc_row_hash(row.table, row.id)), row.id);
    if (memcmp(wanted, key, sizeof wanted) != 0)
        return bad_row(rows, key, "it says to be another one", error);
    if (row.state != PS_ROW_PRESENT)
        return bad_row(rows, key, "it is in no state that rows are kept in", error);
    size_t *bytes = &rows->bytes[row.table];
    if (*bytes == 0)
        *bytes = size;
    if (*bytes != size)
        return bad_row(rows, key, "it is not as long as others of its table", error);
    rows->n++;
    return PSC_OK;
}

static psc_status_t check_rows(const char *path, uint64_t memory_bytes, uint64_t *n_rows_out,
                               psc_error_t *error)
{
    rows_t rows = {.bytes = psc_alloc_zeroed(N_TABLES, sizeof *rows.bytes)};
    const char *below = getenv("TMPDIR");
    char log_dir[4096];
    psc_status_t st;
    (void)snprintf(rows.path, sizeof rows.path, "%s/rocksdb", path);
    (void)snprintf(log_dir, sizeof log_dir, "%s/embps-verify-XXXXXX",
                   below != NULL && below[0] != '\0' ? below : "/tmp");
    if (rows.bytes == NULL) {
        st = no_memory(path, error);
    } else if (mkdtemp(log_dir) == NULL) {
        st = psc_error_set_errno(error, errno, "cannot make %s", log_dir);
    } else {
        psc_error_t ignored = PSC_ERROR_INIT;
        st = ps_cold_rocks_check(rows.path, log_dir, memory_bytes, check_row, &rows, error);
        (void)!psc_file_remove_all(log_dir, &ignored);
    }
    psc_free(rows.bytes);
    *n_rows_out = rows.n;
    return st;
}

/* ---- one server ---- */

/* Takes the lock; -1: there is none. Errors: IN_USE, IO. */
static psc_status_t hold(const char *path, int *fd_out, psc_error_t *error)
{
    char lock[4096];
    (void)snprintf(lock, sizeof lock, "%s/lock", path);
    const int fd = open(lock, O_RDONLY | O_CLOEXEC);
    *fd_out = fd;
    if (fd < 0)
        return errno == ENOENT ? PSC_OK : psc_error_set_errno(error, errno, "cannot read %s", lock);
    const int locked = ps_data_try_lock(fd, lock);
    if (locked == 1)
        return PSC_OK;
    return locked == 0
               ? psc_error_set(error, PSC_IN_USE,
                               "%s is in use: a server runs, and what is on disk is of any moment",
                               path)
               : psc_error_set_errno(error, errno, "cannot lock %s", lock);
}

static psc_status_t read_identity(const char *path, uint32_t rank, ps_data_found_t *found,
                                  psc_error_t *error)
{
    char file[4096];
    struct stat status;
    (void)snprintf(file, sizeof file, "%s/identity.json", path);
    psc_status_t st = ps_data_identity_read(file, &found->identity, error);
    if (st == PSC_NOT_FOUND)
        return psc_error_set(error, PSC_UNCLEAN,
                             "%s has no identity.json: it is of a server that never began, or of "
                             "none",
                             path);
    if (st != PSC_OK)
        return st;
    if (stat(path, &status) != 0)
        return psc_error_set_errno(error, errno, "cannot read %s", path);
    found->known = true;
    found->is_copy = found->identity.inode != 0 && found->identity.inode != status.st_ino;
    if (found->identity.rank != rank)
        return psc_error_set(error, PSC_MISMATCH,
                             "%s is of server %" PRIu32 " of %" PRIu32 ", not of server %" PRIu32,
                             path, found->identity.rank, found->identity.n_servers, rank);
    return PSC_OK;
}

static psc_status_t call_open(const char *path, const ps_data_found_t *found, psc_error_t *error)
{
    return psc_error_set(
        error, PSC_UNCLEAN, "%s %s: its rows are of any moment and do not count; %s", path,
        found->is_copy ? "is a copy that was made while a server ran"
                       : "was not closed in order, its server was killed",
        found->identity.lineage != 0 ? "what counts is the newest whole checkpoint of its run, "
                                       "and the log of pushes behind it if there is one"
                                     : "its run made no checkpoints, so nothing of it counts");
}

typedef struct faults {
    ps_data_fault_fn fn;
    void *context;
    psc_error_t first;
} faults_t;

static void take_fault(void *context, const psc_error_t *fault)
{
    faults_t *faults = context;
    if (faults->first.code == PSC_OK)
        faults->first = *fault;
    if (faults->fn != NULL)
        faults->fn(faults->context, fault);
}

/* Of a directory that was closed. */
static void check_files(const char *path, uint64_t memory_bytes, ps_data_found_t *found,
                        faults_t *faults)
{
    psc_error_t fault = PSC_ERROR_INIT;
    char rocksdb[4096];
    if (found->identity.inode != 0) { /* else an older release closed it, which wrote no contents */
        const psc_status_t st = ps_data_contents_check(path, take_fault, faults, &found->n_files,
                                                       &found->bytes, &fault);
        if (st == PSC_NOT_FOUND || st == PSC_CORRUPT)
            return; /* RocksDB would say less clearly what these say */
    }
    (void)snprintf(rocksdb, sizeof rocksdb, "%s/rocksdb", path);
    if (faults->first.code == PSC_OK && (access(rocksdb, F_OK) == 0 || found->n_files != 0) &&
        check_rows(path, memory_bytes, &found->n_rows, &fault) != PSC_OK)
        take_fault(faults, &fault);
}

psc_status_t ps_data_check(const char *data, uint32_t rank, uint64_t memory_bytes,
                           ps_data_fault_fn fn, void *context, ps_data_found_t *found_out,
                           psc_error_t *error)
{
    faults_t faults = {.fn = fn, .context = context, .first = PSC_ERROR_INIT};
    psc_error_t fault = PSC_ERROR_INIT;
    char path[3072];
    int lock_fd = -1;
    *found_out = (ps_data_found_t){.known = false};
    if (snprintf(path, sizeof path, "%s/server-%" PRIu32, data, rank) >= (int)sizeof path)
        return psc_error_set(error, PSC_INVALID_ARGUMENT, "the name %.80s... is too long", data);
    psc_status_t st = hold(path, &lock_fd, &fault);
    if (st == PSC_OK)
        st = read_identity(path, rank, found_out, &fault);
    if (st == PSC_OK && !found_out->identity.clean)
        st = call_open(path, found_out, &fault);
    if (st == PSC_OK)
        check_files(path, memory_bytes, found_out, &faults);
    else
        take_fault(&faults, &fault);
    if (lock_fd >= 0)
        (void)close(lock_fd);
    if (faults.first.code != PSC_OK && error != NULL)
        *error = faults.first;
    return faults.first.code;
}

psc_status_t ps_data_same_run(const char *data, const ps_data_found_t *one,
                              const ps_data_found_t *other, psc_error_t *error)
{
    const ps_data_identity_t *a = &one->identity, *b = &other->identity;
    if (a->cluster == b->cluster && a->lineage == b->lineage && a->n_servers == b->n_servers)
        return PSC_OK;
    return psc_error_set(error, PSC_MISMATCH,
                         "%s/server-%" PRIu32 " is of another run than server-%" PRIu32
                         ": %016" PRIx64 " with %" PRIu32 " servers, checkpoints %016" PRIx64
                         ", not %016" PRIx64 " with %" PRIu32 ", checkpoints %016" PRIx64,
                         data, b->rank, a->rank, b->cluster, b->n_servers, b->lineage, a->cluster,
                         a->n_servers, a->lineage);
}
