/*
 * Looking at a folder of checkpoints. Nothing here writes.
 *
 * What makes a folder a checkpoint is its name and a manifest in it; the rest is what verify is
 * for. Names are compared as text: those that servers give end in a number with leading zeros, so
 * that the last one is the newest. Threads: none. Cost: deep verification reads all bytes once.
 */
#include "proto/saved_folder.h"

#include "common/alloc.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

char *psp_saved_path(const char *folder, const char *name, const char *file)
{
    const size_t size =
        strlen(folder) + strlen(name) + (file != NULL ? strlen(file) : 0) + sizeof "//";
    char *path = psc_alloc(size);
    if (path != NULL)
        (void)snprintf(path, size, "%s/%s%s%s", folder, name, file != NULL ? "/" : "",
                       file != NULL ? file : "");
    return path;
}

char *psp_saved_server_path(const char *folder, const char *name, uint32_t server, const char *file)
{
    char below[PSP_SAVED_NAME_MAX * 2 + 32];
    (void)snprintf(below, sizeof below, "server-%" PRIu32 "%s%s", server, file != NULL ? "/" : "",
                   file != NULL ? file : "");
    return psp_saved_path(folder, name, below);
}

static psc_status_t no_memory(const char *folder, psc_error_t *error)
{
    return psc_error_set(error, PSC_NO_MEMORY, "out of memory for checkpoints in %s", folder);
}

/* ---- which there are ---- */

static bool ends_in(const char *text, const char *end)
{
    const size_t n = strlen(text), n_end = strlen(end);
    return n >= n_end && strcmp(text + n - n_end, end) == 0;
}

/* A name that servers give, and give a folder only when it is whole. */
static bool is_given_name(const char *name)
{
    static const char begins[] = "checkpoint-";
    const char *digits = name + sizeof begins - 1;
    return strncmp(name, begins, sizeof begins - 1) == 0 && *digits != '\0' &&
           digits[strspn(digits, "0123456789")] == '\0';
}

/* Without its manifest such a one is damaged, and not to be passed over. */
static bool is_checkpoint(const char *folder, const char *name)
{
    if (!psp_saved_is_name(name) || ends_in(name, PSP_SAVED_PARTIAL) ||
        ends_in(name, PSP_SAVED_REMOVED))
        return false;
    char *path = psp_saved_path(folder, name, is_given_name(name) ? "." : "manifest");
    const bool there = path != NULL && access(path, F_OK) == 0;
    psc_free(path);
    return there;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(a, b);
}

psc_status_t psp_saved_list(const char *folder, psp_saved_names_t *names_out, psc_error_t *error)
{
    psp_saved_names_t names = {0};
    psc_status_t st = PSC_OK;
    DIR *entries = opendir(folder);
    *names_out = names;
    if (entries == NULL)
        return errno == ENOENT ? PSC_OK
                               : psc_error_set_errno(error, errno, "cannot read %s", folder);
    const struct dirent *entry;
    while (st == PSC_OK && (entry = readdir(entries)) != NULL) {
        if (!is_checkpoint(folder, entry->d_name))
            continue;
        void *grown = psc_realloc_array(names.all, names.n + 1, sizeof *names.all);
        if (grown == NULL) {
            st = no_memory(folder, error);
            continue;
        }
        names.all = grown;
        memcpy(names.all[names.n++], entry->d_name, strlen(entry->d_name) + 1);
    }
    (void)closedir(entries);
    if (st != PSC_OK) {
        psp_saved_names_clear(&names);
        return st;
    }
    if (names.n != 0)
        qsort(names.all, names.n, sizeof *names.all, compare_names);
    *names_out = names;
    return PSC_OK;
}

void psp_saved_names_clear(psp_saved_names_t *names)
{
    psc_free(names->all);
    *names = (psp_saved_names_t){0};
}

/* ---- one of them ---- */

psc_status_t psp_saved_open(const char *folder, const char *name, psp_saved_t **saved_out,
                            psc_error_t *error)
{
    if (!psp_saved_is_name(name))
        return psc_error_set(error, PSC_INVALID_ARGUMENT, "\"%.127s\" is no name of a checkpoint",
                             name);
    char *path = psp_saved_path(folder, name, "manifest");
    if (path == NULL)
        return no_memory(folder, error);
    psc_status_t st = psp_saved_read(path, PSP_SAVED_MANIFEST, saved_out, error);
    if (st == PSC_OK && strcmp(psp_saved_manifest(*saved_out)->name, name) != 0) {
        st = psc_error_set(error, PSC_CORRUPT, "%s is that of checkpoint %s", path,
                           psp_saved_manifest(*saved_out)->name);
        psp_saved_destroy(*saved_out);
        *saved_out = NULL;
    }
    psc_free(path);
    return st;
}

/* Is the file what it should be? With no sum, its size alone counts. */
static psc_status_t check_file(const char *path, uint64_t size, const uint64_t *checksum,
                               const char *host, psc_error_t *error)
{
    struct stat status;
    uint64_t found_size = 0, found_sum = 0;
    if (stat(path, &status) != 0)
        return errno == ENOENT
                   ? psc_error_set(error, PSC_NOT_FOUND, "%s is missing (host %s)", path, host)
                   : psc_error_set_errno(error, errno, "cannot read %s (host %s)", path, host);
    if ((uint64_t)status.st_size != size)
        return psc_error_set(error, PSC_CORRUPT,
                             "%s is damaged: %" PRIu64 " bytes instead of %" PRIu64 " (host %s)",
                             path, (uint64_t)status.st_size, size, host);
    if (checksum == NULL)
        return PSC_OK;
    psc_status_t st = psp_saved_sum(path, &found_size, &found_sum, error);
    if (st == PSC_OK && (found_size != size || found_sum != *checksum))
        st = psc_error_set(error, PSC_CORRUPT, "%s is damaged: its checksum is another (host %s)",
                           path, host);
    return st;
}

psc_status_t psp_saved_open_part(const char *folder, const psp_saved_manifest_t *manifest,
                                 uint32_t server, psp_saved_t **saved_out, psc_error_t *error)
{
    const psp_saved_part_file_t *wanted = manifest->parts[server];
    psp_saved_t *saved = NULL;
    char *path = psp_saved_server_path(folder, manifest->name, server, "part");
    if (path == NULL)
        return no_memory(folder, error);
    psc_status_t st = check_file(path, wanted->size, &wanted->checksum, wanted->host, error);
    if (st == PSC_OK)
        st = psp_saved_read(path, PSP_SAVED_PART, &saved, error);
    if (st == PSC_OK) {
        const psp_saved_part_t *part = psp_saved_part(saved);
        if (strcmp(part->name, manifest->name) != 0 || part->server != server ||
            part->n_servers != manifest->n_servers || part->cluster != manifest->cluster)
            st = psc_error_set(error, PSC_CORRUPT,
                               "%s is server %" PRIu32 " of %" PRIu32 " of checkpoint %s", path,
                               part->server, part->n_servers, part->name);
    }
    psc_free(path);
    if (st != PSC_OK) {
        psp_saved_destroy(saved);
        return st;
    }
    *saved_out = saved;
    return PSC_OK;
}

/* ---- whether it is whole ---- */

typedef struct faults {
    psp_saved_fault_fn fn;
    void *context;
    psc_error_t first; /* code OK: there is none */
} faults_t;

static void add_fault(faults_t *faults, const psc_error_t *fault)
{
    if (faults->first.code == PSC_OK)
        faults->first = *fault;
    if (faults->fn != NULL)
        faults->fn(faults->context, fault);
}

static psc_status_t tell(const faults_t *faults, psc_error_t *error)
{
    if (error != NULL && faults->first.code != PSC_OK)
        *error = faults->first;
    return faults->first.code;
}

static void check_files(const char *folder, const psp_saved_manifest_t *manifest,
                        const psp_saved_part_t *part, bool deep, faults_t *faults)
{
    for (size_t i = 0; i < part->n_files; i++) {
        const psp_saved_file_t *file = part->files[i];
        psc_error_t fault = PSC_ERROR_INIT;
        char *path = psp_saved_server_path(folder, manifest->name, part->server, file->name);
        psc_status_t st = path == NULL ? no_memory(folder, &fault)
                                       : check_file(path, file->size, deep ? &file->checksum : NULL,
                                                    part->host, &fault);
        if (st != PSC_OK)
            add_fault(faults, &fault);
        psc_free(path);
    }
}

psc_status_t psp_saved_check_files(const char *folder, const psp_saved_manifest_t *manifest,
                                   const psp_saved_part_t *part, bool deep, psp_saved_fault_fn fn,
                                   void *context, psc_error_t *error)
{
    faults_t faults = {.fn = fn, .context = context, .first = PSC_ERROR_INIT};
    check_files(folder, manifest, part, deep, &faults);
    return tell(&faults, error);
}

/* A file of the client that asked for the checkpoint; NULL: there is none. */
static void check_client_file(const char *folder, const psp_saved_manifest_t *manifest,
                              const psp_saved_file_t *file, bool deep, faults_t *faults)
{
    psc_error_t fault = PSC_ERROR_INIT;
    if (file == NULL)
        return;
    char *path = psp_saved_path(folder, manifest->name, file->name);
    psc_status_t st = path == NULL ? no_memory(folder, &fault)
                                   : check_file(path, file->size, deep ? &file->checksum : NULL,
                                                manifest->parts[0]->host, &fault);
    if (st != PSC_OK)
        add_fault(faults, &fault);
    psc_free(path);
}

static void check_client(const char *folder, const psp_saved_manifest_t *manifest, bool deep,
                         faults_t *faults)
{
    check_client_file(folder, manifest, manifest->state, deep, faults);
    check_client_file(folder, manifest, manifest->vocabulary, deep, faults);
}

psc_status_t psp_saved_check_client(const char *folder, const psp_saved_manifest_t *manifest,
                                    bool deep, psp_saved_fault_fn fn, void *context,
                                    psc_error_t *error)
{
    faults_t faults = {.fn = fn, .context = context, .first = PSC_ERROR_INIT};
    check_client(folder, manifest, deep, &faults);
    return tell(&faults, error);
}

psc_status_t psp_saved_verify(const char *folder, const char *name, bool deep,
                              psp_saved_fault_fn fn, void *context, psc_error_t *error)
{
    faults_t faults = {.fn = fn, .context = context, .first = PSC_ERROR_INIT};
    psc_error_t fault = PSC_ERROR_INIT;
    psp_saved_t *saved = NULL;
    if (psp_saved_open(folder, name, &saved, &fault) != PSC_OK) {
        add_fault(&faults, &fault);
        return tell(&faults, error);
    }
    const psp_saved_manifest_t *manifest = psp_saved_manifest(saved);
    for (uint32_t server = 0; server < manifest->n_servers; server++) {
        psp_saved_t *part = NULL;
        psc_error_t of_part = PSC_ERROR_INIT;
        if (psp_saved_open_part(folder, manifest, server, &part, &of_part) != PSC_OK)
            add_fault(&faults, &of_part);
        else
            check_files(folder, manifest, psp_saved_part(part), deep, &faults);
        psp_saved_destroy(part);
    }
    check_client(folder, manifest, deep, &faults);
    psp_saved_destroy(saved);
    return tell(&faults, error);
}
