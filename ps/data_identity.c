/*
 * Two small files beside RocksDB's. A bit that changed in either is noticed: identity.json has a
 * sum of itself, and so has contents.
 *
 * RocksDB checks the blocks that it reads, but takes a log or a manifest that ends early for one
 * that was being written when its process died, and goes on with less. In a directory that was
 * closed in order that would be damage, so the sizes of all files stand in contents, and the
 * checksums of all but the tables. LOG and LOCK are not data.
 *
 * Threads: none. Cost: at a clean end the logs and manifest are read once, some write buffers in
 * all.
 */
#include "ps/data_identity.h"

#include "common/alloc.h"
#include "common/file.h"
#include "proto/saved.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#define IDENTITY_LIMIT ((size_t)64 << 10)
#define CONTENTS_LIMIT ((size_t)64 << 20)
#define SUM_KEY ", \"sum\": \""
#define SUM_DIGITS 16u
#define LINE_MAX_BYTES ((size_t)NAME_MAX + 64)

/* ---- identity ---- */

psc_status_t ps_data_identity_write(const char *path, const ps_data_identity_t *identity,
                                    psc_error_t *error)
{
    char rest[640], text[768], more[256] = "";
    if (identity->lineage != 0)
        (void)snprintf(more, sizeof more,
                       ", \"lineage\": \"%016" PRIx64 "\", \"checkpoint\": \"%.127s\"",
                       identity->lineage, identity->checkpoint);
    (void)snprintf(rest, sizeof rest,
                   ", \"cluster\": \"%016" PRIx64 "\", \"rank\": %" PRIu32
                   ", \"n_servers\": %" PRIu32 ", \"inode\": %" PRIu64 ", \"state\": \"%s\"%s}\n",
                   identity->cluster, identity->rank, identity->n_servers, identity->inode,
                   identity->clean ? "clean" : "open", more);
    const int size = snprintf(text, sizeof text, "{\"format\": %d" SUM_KEY "%016" PRIx64 "\"%s",
                              PS_DATA_IDENTITY_FORMAT, XXH3_64bits(rest, strlen(rest)), rest);
    return psc_file_write(path, text, (size_t)size, error);
}

/* Whether the text is as it was written, as far as that is known. */
static bool sum_is_right(const char *text)
{
    const char *key = strstr(text, SUM_KEY);
    if (key == NULL)
        return true;
    char *end;
    const char *digits = key + strlen(SUM_KEY);
    const uint64_t sum = strtoull(digits, &end, 16);
    return end == digits + SUM_DIGITS && *end == '"' &&
           sum == XXH3_64bits(end + 1, strlen(end + 1));
}

static psc_status_t parse_identity(const char *path, const char *text, size_t size,
                                   ps_data_identity_t *identity_out, psc_error_t *error)
{
    json_error_t fault;
    json_t *root = json_loadb(text, size, 0, &fault);
    json_int_t format = 0, rank = 0, n_servers = 0, inode = 0;
    const char *cluster = NULL, *state = NULL, *lineage = "0", *checkpoint = "";
    psc_status_t st = PSC_OK;
    if (root == NULL ||
        json_unpack(root, "{s:I, s:s, s:I, s:I, s:s, s?I, s?s, s?s}", "format", &format, "cluster",
                    &cluster, "rank", &rank, "n_servers", &n_servers, "state", &state, "inode",
                    &inode, "lineage", &lineage, "checkpoint", &checkpoint) != 0) {
        st = psc_error_set(error, PSC_UNCLEAN, "%s is damaged; use another --data directory", path);
    } else if (format != PS_DATA_IDENTITY_FORMAT) {
        st = psc_error_set(error, PSC_UNCLEAN,
                           "%s has format %lld, of an %s release; this one knows %d; use another "
                           "--data directory",
                           path, (long long)format,
                           format < PS_DATA_IDENTITY_FORMAT ? "older" : "unknown, later",
                           PS_DATA_IDENTITY_FORMAT);
    } else if (!sum_is_right(text)) {
        st = psc_error_set(error, PSC_UNCLEAN,
                           "%s is damaged: its checksum is another; use another --data directory",
                           path);
    } else {
        *identity_out = (ps_data_identity_t){.cluster = strtoull(cluster, NULL, 16),
                                             .lineage = strtoull(lineage, NULL, 16),
                                             .rank = (uint32_t)rank,
                                             .n_servers = (uint32_t)n_servers,
                                             .inode = (uint64_t)inode,
                                             .clean = strcmp(state, "clean") == 0};
        (void)snprintf(identity_out->checkpoint, sizeof identity_out->checkpoint, "%s", checkpoint);
    }
    json_decref(root);
    return st;
}

psc_status_t ps_data_identity_read(const char *path, ps_data_identity_t *identity_out,
                                   psc_error_t *error)
{
    char *text;
    size_t size;
    psc_status_t st = psc_file_read(path, IDENTITY_LIMIT, &text, &size, error);
    if (st != PSC_OK)
        return st == PSC_CORRUPT ? psc_error_set(error, PSC_UNCLEAN, "%s is no identity", path)
                                 : st;
    st = parse_identity(path, text, size, identity_out, error);
    psc_free(text);
    return st;
}

/* ---- locks ---- */

int ps_data_try_lock(int fd, const char *path)
{
    if (flock(fd, LOCK_EX | LOCK_NB) != 0)
        return errno == EWOULDBLOCK ? 0 : -1;
    /* Whoever held it may have removed the file since it was opened. */
    struct stat opened, present;
    if (fstat(fd, &opened) != 0)
        return -1;
    if (stat(path, &present) != 0 || present.st_ino != opened.st_ino ||
        present.st_dev != opened.st_dev)
        return 0;
    return 1;
}

bool ps_data_is_locked(const char *lock_path)
{
    int fd = open(lock_path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    bool locked = ps_data_try_lock(fd, lock_path) == 0;
    (void)close(fd);
    return locked;
}

/* ---- contents ---- */

/* "<path>/rocksdb/<name>"; name "": the folder. Gives; NULL: out of memory. */
static char *rocksdb_path(const char *path, const char *name)
{
    const size_t size = strlen(path) + strlen(name) + sizeof "/rocksdb/";
    char *joined = psc_alloc(size);
    if (joined != NULL)
        (void)snprintf(joined, size, "%s/rocksdb%s%s", path, name[0] != '\0' ? "/" : "", name);
    return joined;
}

static char *contents_path(const char *path)
{
    const size_t size = strlen(path) + sizeof "/contents";
    char *joined = psc_alloc(size);
    if (joined != NULL)
        (void)snprintf(joined, size, "%s/contents", path);
    return joined;
}

static bool ends_in(const char *name, const char *end)
{
    const size_t n = strlen(name), n_end = strlen(end);
    return n >= n_end && strcmp(name + n - n_end, end) == 0;
}

static bool is_data(const char *name)
{
    return name[0] != '.' && strcmp(name, "LOCK") != 0 && strcmp(name, "LOG") != 0 &&
           strncmp(name, "LOG.old", strlen("LOG.old")) != 0;
}

/* Size and checksum of a file; of a table its size alone, and sum "-". */
static psc_status_t measure(const char *path, const char *name, uint64_t *size_out,
                            char sum[SUM_DIGITS + 1], psc_error_t *error)
{
    struct stat status;
    uint64_t checksum = 0;
    char *file = rocksdb_path(path, name);
    psc_status_t st = PSC_OK;
    (void)snprintf(sum, SUM_DIGITS + 1, "-");
    if (file == NULL) {
        st = psc_error_set(error, PSC_NO_MEMORY, "out of memory for a path");
    } else if (!ends_in(name, ".sst")) {
        st = psp_saved_sum(file, size_out, &checksum, error);
        (void)snprintf(sum, SUM_DIGITS + 1, "%016" PRIx64, checksum);
    } else if (stat(file, &status) != 0) {
        st = psc_error_set_errno(error, errno, "cannot read %s", file);
    } else {
        *size_out = (uint64_t)status.st_size;
    }
    psc_free(file);
    return st;
}

/* Calls fn for each file that is there. */
typedef psc_status_t (*file_fn)(void *context, const char *name, psc_error_t *error);

static psc_status_t each_file(const char *path, file_fn fn, void *context, psc_error_t *error)
{
    char *folder = rocksdb_path(path, "");
    DIR *entries = folder != NULL ? opendir(folder) : NULL;
    const struct dirent *entry;
    psc_status_t st = PSC_OK;
    if (folder == NULL)
        st = psc_error_set(error, PSC_NO_MEMORY, "out of memory for a path");
    else if (entries == NULL && errno != ENOENT) /* a run that kept no row */
        st = psc_error_set_errno(error, errno, "cannot read %s", folder);
    while (entries != NULL && st == PSC_OK && (entry = readdir(entries)) != NULL) {
        if (is_data(entry->d_name))
            st = fn(context, entry->d_name, error);
    }
    if (entries != NULL)
        (void)closedir(entries);
    psc_free(folder);
    return st;
}

typedef struct writing {
    const char *path;
    FILE *stream;
    XXH3_state_t *hash;
} writing_t;

static psc_status_t write_line(void *context, const char *name, psc_error_t *error)
{
    const writing_t *writing = context;
    char line[LINE_MAX_BYTES], sum[SUM_DIGITS + 1];
    uint64_t size = 0;
    psc_status_t st = measure(writing->path, name, &size, sum, error);
    if (st != PSC_OK)
        return st;
    const int n = snprintf(line, sizeof line, "%" PRIu64 " %s %s\n", size, sum, name);
    (void)XXH3_64bits_update(writing->hash, line, (size_t)n);
    (void)fwrite(line, 1, (size_t)n, writing->stream);
    return PSC_OK;
}

psc_status_t ps_data_contents_write(const char *path, psc_error_t *error)
{
    psc_outfile_t *out = NULL;
    writing_t writing = {.path = path, .hash = XXH3_createState()};
    char *file = contents_path(path);
    psc_status_t st = file == NULL || writing.hash == NULL
                          ? psc_error_set(error, PSC_NO_MEMORY, "out of memory for a path")
                          : psc_outfile_open(file, &out, error);
    if (st == PSC_OK) {
        writing.stream = psc_outfile_stream(out);
        (void)XXH3_64bits_reset(writing.hash);
        st = each_file(path, write_line, &writing, error);
    }
    if (st == PSC_OK) {
        (void)fprintf(writing.stream, "%016" PRIx64 "\n", XXH3_64bits_digest(writing.hash));
        st = psc_outfile_commit(out, error);
        out = NULL;
    }
    psc_outfile_abort(out);
    (void)XXH3_freeState(writing.hash);
    psc_free(file);
    return st;
}

typedef struct checking {
    const char *path;
    char *text; /* lines, each ended by NUL */
    size_t size;
    ps_data_fault_fn fn;
    void *context;
    psc_error_t first; /* code OK: there is none */
    size_t n;
    uint64_t bytes;
} checking_t;

static void add_fault(checking_t *checking, const psc_error_t *fault)
{
    if (checking->first.code == PSC_OK)
        checking->first = *fault;
    if (checking->fn != NULL)
        checking->fn(checking->context, fault);
}

/* One line, "SIZE XXH3 NAME"; its name, NULL: it is none. */
static const char *parse_line(const char *line, uint64_t *size_out, const char **sum_out)
{
    char *end;
    *size_out = strtoull(line, &end, 10);
    if (end == line || *end != ' ')
        return NULL;
    *sum_out = end + 1;
    const char *name = strchr(end + 1, ' ');
    return name != NULL ? name + 1 : NULL;
}

static void check_line(checking_t *checking, const char *line)
{
    uint64_t wanted = 0, size = 0;
    const char *wanted_sum = "", *name = parse_line(line, &wanted, &wanted_sum);
    char sum[SUM_DIGITS + 1];
    psc_error_t fault = PSC_ERROR_INIT;
    if (name == NULL)
        return;
    checking->n++;
    checking->bytes += wanted;
    const psc_status_t st = measure(checking->path, name, &size, sum, &fault);
    if (st == PSC_NOT_FOUND)
        (void)psc_error_set(&fault, st, "%s/rocksdb/%s is missing", checking->path, name);
    else if (st == PSC_OK && size != wanted)
        (void)psc_error_set(&fault, PSC_CORRUPT,
                            "%s/rocksdb/%s is damaged: %" PRIu64 " bytes instead of %" PRIu64,
                            checking->path, name, size, wanted);
    else if (st == PSC_OK && strncmp(wanted_sum, sum, strlen(sum)) != 0)
        (void)psc_error_set(&fault, PSC_CORRUPT,
                            "%s/rocksdb/%s is damaged: its checksum is another", checking->path,
                            name);
    if (fault.code != PSC_OK)
        add_fault(checking, &fault);
}

/* A file that is there was written down? */
static psc_status_t check_known(void *context, const char *name, psc_error_t *error)
{
    checking_t *checking = context;
    uint64_t size;
    const char *sum, *found = NULL;
    psc_error_t fault = PSC_ERROR_INIT;
    (void)error;
    for (const char *line = checking->text; found == NULL && line < checking->text + checking->size;
         line += strlen(line) + 1) {
        const char *known = parse_line(line, &size, &sum);
        if (known != NULL && strcmp(known, name) == 0)
            found = known;
    }
    if (found == NULL) {
        (void)psc_error_set(&fault, PSC_CORRUPT,
                            "%s/rocksdb/%s was not there when the directory was closed",
                            checking->path, name);
        add_fault(checking, &fault);
    }
    return PSC_OK;
}

/* Reads the lines, and cuts them. */
static psc_status_t read_contents(checking_t *checking, psc_error_t *error)
{
    char *file = contents_path(checking->path), *end;
    psc_status_t st =
        file == NULL ? psc_error_set(error, PSC_NO_MEMORY, "out of memory for a path")
                     : psc_file_read(file, CONTENTS_LIMIT, &checking->text, &checking->size, error);
    if (st == PSC_OK) {
        const size_t last = SUM_DIGITS + 1;
        const size_t lines = checking->size >= last ? checking->size - last : 0;
        const uint64_t sum = strtoull(checking->text + lines, &end, 16);
        if (checking->size < last || *end != '\n' || sum != XXH3_64bits(checking->text, lines))
            st = psc_error_set(error, PSC_CORRUPT, "%s is damaged: its checksum is another", file);
        checking->size = lines;
        checking->text[lines] = '\0';
        for (char *at = checking->text; (at = strchr(at, '\n')) != NULL;)
            *at++ = '\0';
    }
    psc_free(file);
    return st;
}

psc_status_t ps_data_contents_check(const char *path, ps_data_fault_fn fn, void *context,
                                    size_t *n_out, uint64_t *bytes_out, psc_error_t *error)
{
    checking_t checking = {.path = path, .fn = fn, .context = context, .first = PSC_ERROR_INIT};
    psc_error_t fault = PSC_ERROR_INIT;
    psc_status_t st = read_contents(&checking, &fault);
    for (const char *line = checking.text; st == PSC_OK && line < checking.text + checking.size;
         line += strlen(line) + 1)
        check_line(&checking, line);
    if (st == PSC_OK)
        st = each_file(path, check_known, &checking, &fault);
    if (st != PSC_OK)
        add_fault(&checking, &fault);
    psc_free(checking.text);
    *n_out = checking.n;
    *bytes_out = checking.bytes;
    if (checking.first.code != PSC_OK && error != NULL)
        *error = checking.first;
    return checking.first.code;
}
