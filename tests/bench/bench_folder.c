/*
 * Folders for benchmarks: made by mkdtemp, so that several runs never meet, and removed by nftw,
 * which does not follow links. A run that is killed leaves its folder behind; its name says whose
 * it was.
 */
#include "tests/bench/bench_folder.h"

#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

psc_status_t bench_folder_make(const char *parent, bench_folder_t *folder_out, psc_error_t *error)
{
    /* Room for the names of what is inside. */
    if (strlen(parent) > BENCH_PATH_MAX - 64)
        return psc_error_set(error, PSC_INVALID_ARGUMENT, "a name too long: %.80s...", parent);
    bench_folder_t folder;
    (void)snprintf(folder.path, sizeof folder.path, "%s/embps-bench-XXXXXX", parent);
    if (mkdtemp(folder.path) == NULL)
        return psc_error_set(error, PSC_IO, "cannot make a folder in %.400s: %s", parent,
                             strerror(errno));
    *folder_out = folder;
    return PSC_OK;
}

static int remove_entry(const char *path, const struct stat *about, int kind, struct FTW *walk)
{
    (void)about;
    (void)kind;
    (void)walk;
    (void)remove(path);
    return 0;
}

void bench_folder_remove(bench_folder_t *folder)
{
    if (folder->path[0] != '\0')
        (void)nftw(folder->path, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    folder->path[0] = '\0';
}

void bench_folder_join(const bench_folder_t *folder, const char *name, char *path_out)
{
    (void)snprintf(path_out, BENCH_PATH_MAX, "%.*s/%s", (int)strnlen(folder->path, 900),
                   folder->path, name);
}
