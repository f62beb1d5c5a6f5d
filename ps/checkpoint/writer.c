/*
 * One job after another, from a queue to a queue.
 *
 * A part is written in this order: images of rows, appended as they come; then the cold tier's
 * files, taken over from the staging folder; sightings; `part`, which has sizes and checksums of
 * all that. Everything is synced before `part` is, and folders after it. The first failure of a
 * checkpoint is kept, and all its later jobs come back with it, undone.
 *
 * What did not change. A table of RocksDB has a number that is never given again, so one that was
 * in the last part that this writer wrote is the same: its checksum is known, and on another file
 * system than the cold tier's it is linked from there instead of copied.
 *
 * Images. A part of a partial cut has those of its own cut in "rows", and links to those that it
 * rests on: "rows-0", the oldest, and so on. When these have become half as much again as the
 * first, or too many, the next cut is to be a whole one.
 *
 * Threads: the owner submits and takes; the thread does the rest. They share nothing else; a job
 * belongs to one of them.
 */
#include "ps/checkpoint/writer.h"

#include "common/alloc.h"
#include "common/file.h"
#include "common/log.h"
#include "ps/checkpoint/place_file.h"
#include "ps/serve/serve.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#define CHAIN_FILES_MAX 16u

_Static_assert(PSP_SAVED_NAME_MAX == PSP_CHECKPOINT_NAME_MAX, "a job's name is the checkpoint's");

/* Files of a part. */
typedef struct files {
    psp_saved_file_t *all;
    size_t n, room;
} files_t;

struct ps_writer {
    ps_save_writer_t interface;
    ps_writer_options_t options;
    char *staging;
    psc_queue_t *jobs, *done;
    pthread_t thread;
    bool started;
    ps_save_job_t stop;

    /* the thread's */
    char name[PSP_SAVED_NAME_MAX + 1]; /* of the checkpoint under way; "": none */
    psc_error_t fault;                 /* of it */
    int rows_fd, state_fd, words_fd;   /* -1: not open */
    XXH3_state_t *rows_sum, *state_sum, *words_sum;
    uint64_t rows_bytes, state_bytes;
    psp_saved_file_t words; /* the vocabulary, as it is so far; or that of the last checkpoint */
    char last_name[PSP_SAVED_NAME_MAX + 1]; /* of the part that `last` is about */
    files_t last, files;
};

static psc_status_t no_memory(psc_error_t *error)
{
    return psc_error_set(error, PSC_NO_MEMORY, "out of memory for a checkpoint");
}

/* ---- lists of files ---- */

static void clear_files(files_t *files)
{
    for (size_t i = 0; i < files->n; i++)
        psc_free(files->all[i].name);
    psc_free(files->all);
    *files = (files_t){0};
}

static psc_status_t add_file(files_t *files, const char *name, uint64_t size, uint64_t checksum,
                             psc_error_t *error)
{
    if (files->n == files->room) {
        const size_t room = files->room != 0 ? 2 * files->room : 64;
        psp_saved_file_t *all = psc_realloc_array(files->all, room, sizeof *all);
        if (all == NULL)
            return no_memory(error);
        files->all = all;
        files->room = room;
    }
    psp_saved_file_t *file = &files->all[files->n];
    embps__checkpoint__v1__file__init(file);
    file->name = psc_strdup(name);
    file->size = size;
    file->checksum = checksum;
    if (file->name == NULL)
        return no_memory(error);
    files->n++;
    return PSC_OK;
}

static const psp_saved_file_t *find_file(const files_t *files, const char *name)
{
    for (size_t i = 0; i < files->n; i++) {
        if (strcmp(files->all[i].name, name) == 0)
            return &files->all[i];
    }
    return NULL;
}

/* ---- files that are appended to ---- */

static psc_status_t open_new(const ps_writer_t *writer, const char *file, bool shared, int *fd_out,
                             psc_error_t *error)
{
    char *path = ps_keeper_path(writer->options.keeper, writer->name, file, shared);
    if (path == NULL)
        return no_memory(error);
    *fd_out = open(path, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0666);
    psc_status_t st =
        *fd_out >= 0 ? PSC_OK : psc_error_set_errno(error, errno, "cannot write %s", path);
    psc_free(path);
    return st;
}

static psc_status_t cannot_write(const ps_writer_t *writer, const char *what, int failed,
                                 psc_error_t *error)
{
    return psc_error_set_errno(error, failed, "cannot write %s of %s/%s", what,
                               ps_keeper_folder(writer->options.keeper), writer->name);
}

static psc_status_t append(const ps_writer_t *writer, const char *what, int fd, XXH3_state_t *sum,
                           const uint8_t *bytes, size_t n, psc_error_t *error)
{
    (void)XXH3_64bits_update(sum, bytes, n);
    const int failed = ps_place_bytes(fd, bytes, n);
    return failed == 0 ? PSC_OK : cannot_write(writer, what, failed, error);
}

static psc_status_t finish_file(const ps_writer_t *writer, const char *what, int *fd,
                                psc_error_t *error)
{
    int failed = fsync(*fd) != 0 ? errno : 0;
    if (close(*fd) != 0 && failed == 0)
        failed = errno;
    *fd = -1;
    return failed == 0 ? PSC_OK : cannot_write(writer, what, failed, error);
}

/* ---- the steps ---- */

static void forget(ps_writer_t *writer)
{
    if (writer->rows_fd >= 0)
        (void)close(writer->rows_fd);
    if (writer->state_fd >= 0)
        (void)close(writer->state_fd);
    if (writer->words_fd >= 0)
        (void)close(writer->words_fd);
    writer->rows_fd = writer->state_fd = writer->words_fd = -1;
    writer->rows_bytes = writer->state_bytes = writer->words.size = 0;
    writer->name[0] = '\0';
    writer->fault = (psc_error_t)PSC_ERROR_INIT;
    clear_files(&writer->files);
}

static psc_status_t begin(ps_writer_t *writer, ps_save_job_t *job, psc_error_t *error)
{
    forget(writer);
    (void)XXH3_64bits_reset(writer->rows_sum);
    (void)XXH3_64bits_reset(writer->state_sum);
    (void)XXH3_64bits_reset(writer->words_sum);
    psc_status_t st = ps_keeper_begin(writer->options.keeper, job->name, error);
    memcpy(writer->name, job->name, sizeof writer->name);
    if (st == PSC_OK)
        st = open_new(writer, "rows", false, &writer->rows_fd, error);
    return st;
}

/* Images go to the disk as they come, a hint that may fail: to sync them is then soon done, and
 * does not stand in the way of all others who write at that moment. */
static psc_status_t add_rows(ps_writer_t *writer, const ps_cut_piece_t *piece, psc_error_t *error)
{
    psc_status_t st =
        append(writer, "rows", writer->rows_fd, writer->rows_sum, piece->bytes, piece->used, error);
    (void)sync_file_range(writer->rows_fd, (off_t)writer->rows_bytes, (off_t)piece->used,
                          SYNC_FILE_RANGE_WRITE);
    writer->rows_bytes += piece->used;
    return st;
}

/* One file of the cold tier, from the staging folder into the part. */
static psc_status_t take_file(ps_writer_t *writer, const char *name, psc_error_t *error)
{
    char below[PSP_SAVED_NAME_MAX + 32];
    (void)snprintf(below, sizeof below, "rocksdb/%.127s", name);
    const bool constant = ps_place_is_constant(name);
    const psp_saved_file_t *known = constant ? find_file(&writer->last, below) : NULL;
    uint64_t size = known != NULL ? known->size : 0;
    uint64_t checksum = known != NULL ? known->checksum : 0;
    char *from = psp_saved_path(writer->staging, name, NULL);
    char *to = ps_keeper_path(writer->options.keeper, writer->name, below, false);
    char *before = known != NULL
                       ? psp_saved_server_path(ps_keeper_folder(writer->options.keeper),
                                               writer->last_name, writer->options.rank, below)
                       : NULL;
    psc_status_t st = from == NULL || to == NULL ? no_memory(error) : PSC_OK;
    /* The last checkpoint may be gone, or on a file system without links. */
    const bool linked = st == PSC_OK && before != NULL && link(before, to) == 0;
    if (st == PSC_OK && !linked)
        st = ps_place_file(from, to, constant, error);
    if (st == PSC_OK && known == NULL)
        st = psp_saved_sum(to, &size, &checksum, error);
    if (st == PSC_OK)
        st = add_file(&writer->files, below, size, checksum, error);
    psc_free(from);
    psc_free(to);
    psc_free(before);
    return st;
}

/* Links one file of images of the last part into this one, as the next that it rests on. */
static psc_status_t take_images(ps_writer_t *writer, const psp_saved_file_t *file, size_t *n,
                                psc_error_t *error)
{
    char name[32];
    if (file->size == 0)
        return PSC_OK;
    (void)snprintf(name, sizeof name, PSP_SAVED_CHAIN, *n);
    char *from = psp_saved_server_path(ps_keeper_folder(writer->options.keeper), writer->last_name,
                                       writer->options.rank, file->name);
    char *to = ps_keeper_path(writer->options.keeper, writer->name, name, false);
    psc_status_t st =
        from == NULL || to == NULL ? no_memory(error) : ps_place_file(from, to, true, error);
    if (st == PSC_OK)
        st = add_file(&writer->files, name, file->size, file->checksum, error);
    *n += st == PSC_OK;
    psc_free(from);
    psc_free(to);
    return st;
}

/* The images that a partial cut rests on: all of the last part. */
static psc_status_t take_chain(ps_writer_t *writer, psc_error_t *error)
{
    const psp_saved_file_t *file;
    char name[32];
    size_t n = 0;
    psc_status_t st = PSC_OK;
    for (size_t i = 0; st == PSC_OK; i++) {
        (void)snprintf(name, sizeof name, PSP_SAVED_CHAIN, i);
        if ((file = find_file(&writer->last, name)) == NULL)
            break;
        st = take_images(writer, file, &n, error);
    }
    file = find_file(&writer->last, "rows");
    if (st == PSC_OK && file != NULL)
        st = take_images(writer, file, &n, error);
    return st;
}

/* Whether another cut may rest on these images. */
static bool may_go_on(const files_t *files)
{
    const psp_saved_file_t *rows = find_file(files, "rows"), *file;
    uint64_t first = 0, all = rows != NULL ? rows->size : 0;
    char name[32];
    size_t n = 0;
    for (;; n++) {
        (void)snprintf(name, sizeof name, PSP_SAVED_CHAIN, n);
        if ((file = find_file(files, name)) == NULL)
            break;
        first = n == 0 ? file->size : first;
        all += file->size;
    }
    return n == 0 || (n < CHAIN_FILES_MAX && all - first <= first / 2);
}

static psc_status_t take_staging(ps_writer_t *writer, psc_error_t *error)
{
    DIR *entries = opendir(writer->staging);
    psc_status_t st = PSC_OK;
    const struct dirent *entry;
    if (entries == NULL)
        return psc_error_set_errno(error, errno, "cannot read %s", writer->staging);
    while (st == PSC_OK && (entry = readdir(entries)) != NULL) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            st = take_file(writer, entry->d_name, error);
    }
    (void)closedir(entries);
    return st;
}

static psc_status_t write_growth(ps_writer_t *writer, const ps_save_image_t *image,
                                 psc_error_t *error)
{
    if (image->n_growth == 0)
        return PSC_OK;
    char *path = ps_keeper_path(writer->options.keeper, writer->name, "growth", false);
    psc_status_t st = path == NULL ? no_memory(error)
                                   : psc_file_write(path, image->growth, image->n_growth, error);
    psc_free(path);
    if (st == PSC_OK)
        st = add_file(&writer->files, "growth", image->n_growth,
                      XXH3_64bits(image->growth, image->n_growth), error);
    return st;
}

static psc_status_t sync_folder(const ps_writer_t *writer, const char *file, psc_error_t *error)
{
    char *path = ps_keeper_path(writer->options.keeper, writer->name, file, false);
    psc_status_t st = path == NULL ? no_memory(error) : psc_file_sync_dir(path, error);
    psc_free(path);
    return st;
}

/* The file that says what the others are. */
static psc_status_t write_part(ps_writer_t *writer, const ps_save_image_t *image,
                               psc_error_t *error)
{
    psp_saved_part_t part = EMBPS__CHECKPOINT__V1__PART__INIT; /* what it leaves out, image has */
    uint64_t size, checksum;
    psp_saved_file_t **list = psc_alloc_array(writer->files.n, sizeof(psp_saved_file_t *));
    char *path = ps_keeper_path(writer->options.keeper, writer->name, "part", false);
    psc_status_t st = list == NULL || path == NULL ? no_memory(error) : PSC_OK;
    for (size_t i = 0; st == PSC_OK && i < writer->files.n; i++)
        list[i] = &writer->files.all[i];
    part.name = writer->name;
    part.files = list;
    part.n_files = writer->files.n;
    if (st == PSC_OK)
        st = psp_saved_write(path, PSP_SAVED_PART, image->part, image->n_part, &part.base, &size,
                             &checksum, error);
    psc_free(list);
    psc_free(path);
    return st;
}

/* What was known of the last part is replaced by what is known of this one. */
static void remember(ps_writer_t *writer)
{
    clear_files(&writer->last);
    writer->last = writer->files;
    writer->files = (files_t){0};
    memcpy(writer->last_name, writer->name, sizeof writer->last_name);
}

static uint64_t bytes_of(const files_t *files)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < files->n; i++)
        bytes += files->all[i].size;
    return bytes;
}

static psc_status_t finish(ps_writer_t *writer, ps_save_job_t *job, psc_error_t *error)
{
    psc_status_t st = finish_file(writer, "rows", &writer->rows_fd, error);
    if (st == PSC_OK)
        st = add_file(&writer->files, "rows", writer->rows_bytes,
                      XXH3_64bits_digest(writer->rows_sum), error);
    if (st == PSC_OK && job->partial)
        st = take_chain(writer, error);
    if (st == PSC_OK)
        st = take_staging(writer, error);
    if (st == PSC_OK)
        st = sync_folder(writer, "rocksdb", error);
    if (st == PSC_OK)
        st = write_growth(writer, job->image, error);
    if (st == PSC_OK)
        st = write_part(writer, job->image, error);
    if (st == PSC_OK)
        st = psc_file_remove_all(writer->staging, error);
    job->size = bytes_of(&writer->files);
    job->partial = may_go_on(&writer->files);
    if (st == PSC_OK)
        remember(writer);
    return st;
}

static psc_status_t add_state(ps_writer_t *writer, const ps_save_job_t *job, psc_error_t *error)
{
    psc_status_t st = PSC_OK;
    if (writer->state_fd < 0)
        st = open_new(writer, "state", true, &writer->state_fd, error);
    if (st == PSC_OK)
        st =
            append(writer, "state", writer->state_fd, writer->state_sum, job->bytes, job->n, error);
    writer->state_bytes += job->n;
    return st;
}

/* Takes the vocabulary of the checkpoint where the run stands, if it is that. *size: its, or 0. */
static psc_status_t link_words(ps_writer_t *writer, uint64_t *size, uint64_t checksum,
                               psc_error_t *error)
{
    bool linked;
    psc_status_t st = ps_keeper_link_vocabulary(writer->options.keeper, writer->name, *size,
                                                checksum, &linked, error);
    *size = linked ? *size : 0;
    writer->words.size = *size;
    writer->words.checksum = checksum;
    return st;
}

static psc_status_t add_words(ps_writer_t *writer, ps_save_job_t *job, psc_error_t *error)
{
    psc_status_t st = PSC_OK;
    if (writer->words_fd < 0 && writer->words.size != 0) /* it is another checkpoint's file too */
        return psc_error_set(error, PSC_INVALID_ARGUMENT,
                             "the vocabulary of %s is there: no more of it is taken", writer->name);
    if (job->size != 0)
        return link_words(writer, &job->size, job->checksum, error);
    if (writer->words_fd < 0)
        st = open_new(writer, "vocabulary", true, &writer->words_fd, error);
    if (st == PSC_OK)
        st = append(writer, "vocabulary", writer->words_fd, writer->words_sum, job->bytes, job->n,
                    error);
    writer->words.size += job->n;
    return st;
}

static psc_status_t finish_words(ps_writer_t *writer, psc_error_t *error)
{
    if (writer->words_fd < 0)
        return PSC_OK;
    writer->words.checksum = XXH3_64bits_digest(writer->words_sum);
    return finish_file(writer, "vocabulary", &writer->words_fd, error);
}

static psc_status_t commit(ps_writer_t *writer, psc_error_t *error)
{
    char words[] = "vocabulary";
    psp_saved_file_t state = EMBPS__CHECKPOINT__V1__FILE__INIT;
    char name[] = "state";
    psc_status_t st = PSC_OK;
    const bool any = writer->state_fd >= 0;
    if (writer->options.rank != 0) { /* the first server has done it, and has the state */
        ps_keeper_stand_at(writer->options.keeper, writer->name, false);
        forget(writer);
        return PSC_OK;
    }
    state.name = name;
    state.size = writer->state_bytes;
    state.checksum = XXH3_64bits_digest(writer->state_sum);
    if (any)
        st = finish_file(writer, "state", &writer->state_fd, error);
    if (st == PSC_OK)
        st = finish_words(writer, error);
    writer->words.name = words;
    const ps_keeper_client_t client = {.state = any ? &state : NULL,
                                       .vocabulary =
                                           writer->words.size != 0 ? &writer->words : NULL};
    if (st == PSC_OK)
        st = ps_keeper_commit(writer->options.keeper, writer->name, &client, error);
    writer->words.name = NULL;
    if (st == PSC_OK)
        forget(writer);
    return st;
}

static psc_status_t abandon(ps_writer_t *writer, psc_error_t *error)
{
    char name[PSP_SAVED_NAME_MAX + 1];
    psc_error_t ignored = PSC_ERROR_INIT;
    memcpy(name, writer->name, sizeof name);
    forget(writer);
    psc_status_t st = psc_file_remove_all(writer->staging, error);
    const psc_status_t removed =
        ps_keeper_abandon(writer->options.keeper, name, st == PSC_OK ? error : &ignored);
    return st == PSC_OK ? removed : st;
}

/* ---- reading ---- */

/* "" in the job: the checkpoint that the run stands at. */
static psc_status_t choose(const ps_keeper_t *keeper, ps_save_job_t *job, psc_error_t *error)
{
    const char *standing = ps_keeper_standing(keeper);
    if (job->name[0] != '\0')
        return PSC_OK;
    (void)snprintf(job->name, sizeof job->name, "%s", standing);
    return standing[0] != '\0'
               ? PSC_OK
               : psc_error_set(error, PSC_NOT_FOUND,
                               "these servers went on from no checkpoint in %s, and have made none",
                               ps_keeper_folder(keeper));
}

static psc_status_t read_piece(const char *path, ps_save_job_t *job, psc_error_t *error)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return psc_error_set_errno(error, errno, "cannot read %s", path);
    psc_status_t st = PSC_OK;
    const ssize_t got = pread(fd, job->room, PS_SAVE_STATE_BYTES, (off_t)job->offset);
    if (got < 0)
        st = psc_error_set_errno(error, errno, "cannot read %s", path);
    (void)close(fd);
    job->bytes = job->room;
    job->n = got > 0 ? (size_t)got : 0;
    return st;
}

/* The first piece is given only when the whole state is as it was written. */
static psc_status_t read_state(const ps_writer_t *writer, ps_save_job_t *job, psc_error_t *error)
{
    const char *folder = ps_keeper_folder(writer->options.keeper);
    psp_saved_t *saved = NULL;
    uint64_t size = 0, checksum = 0;
    psc_status_t st = choose(writer->options.keeper, job, error);
    if (st == PSC_OK)
        st = psp_saved_open(folder, job->name, &saved, error);
    if (st != PSC_OK)
        return st;
    const psp_saved_file_t *state = psp_saved_manifest(saved)->state;
    job->size = state != NULL ? state->size : 0;
    job->n = 0;
    char *path = psp_saved_path(folder, job->name, "state");
    if (path == NULL)
        st = no_memory(error);
    if (st == PSC_OK && state != NULL && job->offset == 0) {
        st = psp_saved_sum(path, &size, &checksum, error);
        if (st == PSC_OK && (size != state->size || checksum != state->checksum))
            st = psc_error_set(error, PSC_CORRUPT, "%s is damaged: its checksum is another", path);
    }
    if (st == PSC_OK && state != NULL && job->offset < state->size)
        st = read_piece(path, job, error);
    psc_free(path);
    psp_saved_destroy(saved);
    return st;
}

/* ---- the thread ---- */

static psc_status_t run(ps_writer_t *writer, ps_save_job_t *job, psc_error_t *error)
{
    if (job->kind == PS_SAVE_BEGIN)
        return begin(writer, job, error);
    if (job->kind == PS_SAVE_ABANDON)
        return abandon(writer, error);
    if (job->kind == PS_SAVE_READ)
        return read_state(writer, job, error);
    if (writer->fault.code != PSC_OK) {
        *error = writer->fault;
        return writer->fault.code;
    }
    switch (job->kind) {
    case PS_SAVE_ROWS:
        return add_rows(writer, job->piece, error);
    case PS_SAVE_FINISH:
        return finish(writer, job, error);
    case PS_SAVE_STATE:
        return job->vocabulary ? add_words(writer, job, error) : add_state(writer, job, error);
    case PS_SAVE_COMMIT:
        return commit(writer, error);
    case PS_SAVE_BEGIN:
    case PS_SAVE_ABANDON:
    case PS_SAVE_READ:
        break;
    }
    return PSC_OK;
}

static void *run_jobs(void *argument)
{
    ps_writer_t *writer = argument;
    for (;;) {
        ps_save_job_t *job = (ps_save_job_t *)(void *)psc_queue_pop(writer->jobs);
        if (job == NULL) {
            psc_queue_wait(writer->jobs, UINT64_MAX);
            continue;
        }
        if (job == &writer->stop)
            return NULL;
        psc_error_t error = PSC_ERROR_INIT;
        if (run(writer, job, &error) != PSC_OK) {
            job->error = error;
            if (job->kind != PS_SAVE_READ && job->kind != PS_SAVE_ABANDON &&
                writer->fault.code == PSC_OK)
                writer->fault = error;
            if (job->kind == PS_SAVE_ABANDON)
                psc_log(PSC_LOG_WARN, "a checkpoint that was given up stays: %s", error.message);
        }
        psc_queue_push(writer->done, &job->node);
        if (writer->options.wake != NULL)
            writer->options.wake(writer->options.wake_context);
    }
}

/* ---- the owner ---- */

static void submit(void *context, ps_save_job_t *job)
{
    ps_writer_t *writer = context;
    psc_queue_push(writer->jobs, &job->node);
}

static ps_save_job_t *next(void *context)
{
    ps_writer_t *writer = context;
    return (ps_save_job_t *)(void *)psc_queue_pop(writer->done);
}

const ps_save_writer_t *ps_writer_interface(const ps_writer_t *writer)
{
    return &writer->interface;
}

static psc_status_t start_thread(ps_writer_t *writer, psc_error_t *error)
{
    sigset_t all, before;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    const int failed = pthread_create(&writer->thread, NULL, run_jobs, writer);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed != 0)
        return psc_error_set_errno(error, failed, "starting the thread that writes checkpoints");
    writer->started = true;
    return PSC_OK;
}

psc_status_t ps_writer_start(const ps_writer_options_t *options, ps_writer_t **writer_out,
                             psc_error_t *error)
{
    ps_writer_t *writer = psc_alloc_zeroed(1, sizeof *writer);
    if (writer == NULL)
        return no_memory(error);
    writer->options = *options;
    writer->rows_fd = writer->state_fd = writer->words_fd = -1;
    embps__checkpoint__v1__file__init(&writer->words);
    writer->fault = (psc_error_t)PSC_ERROR_INIT;
    writer->staging = psc_strdup(options->staging);
    writer->rows_sum = XXH3_createState();
    writer->state_sum = XXH3_createState();
    writer->words_sum = XXH3_createState();
    psc_status_t st = writer->staging == NULL || writer->rows_sum == NULL ||
                              writer->state_sum == NULL || writer->words_sum == NULL
                          ? no_memory(error)
                          : PSC_OK;
    writer->interface = (ps_save_writer_t){.context = writer,
                                           .staging = writer->staging,
                                           .submit = submit,
                                           .next = next,
                                           .count = ps_serve_counters};
    if (st == PSC_OK)
        st = psc_queue_create(&writer->jobs, error);
    if (st == PSC_OK)
        st = psc_queue_create(&writer->done, error);
    if (st == PSC_OK)
        st = start_thread(writer, error);
    if (st != PSC_OK) {
        ps_writer_stop(writer);
        return st;
    }
    *writer_out = writer;
    return PSC_OK;
}

void ps_writer_stop(ps_writer_t *writer)
{
    if (writer == NULL)
        return;
    if (writer->started) {
        psc_queue_push(writer->jobs, &writer->stop.node);
        (void)pthread_join(writer->thread, NULL);
    }
    forget(writer);
    clear_files(&writer->last);
    psc_queue_destroy(writer->jobs);
    psc_queue_destroy(writer->done);
    (void)XXH3_freeState(writer->rows_sum);
    (void)XXH3_freeState(writer->state_sum);
    (void)XXH3_freeState(writer->words_sum);
    psc_free(writer->staging);
    psc_free(writer);
}
