/* A folder for the data of one benchmark, removed with all that is in it. */
#ifndef TESTS_BENCH_BENCH_FOLDER_H
#define TESTS_BENCH_BENCH_FOLDER_H

#include "common/status.h"

#define BENCH_PATH_MAX 1024

typedef struct bench_folder {
    char path[BENCH_PATH_MAX]; /* "": there is none */
} bench_folder_t;

/* A new folder with a name of its own in parent. Errors: IO, INVALID_ARGUMENT (name too long). */
PSC_MUST_CHECK psc_status_t bench_folder_make(const char *parent, bench_folder_t *folder_out,
                                              psc_error_t *error);
void bench_folder_remove(bench_folder_t *folder);

/* path_out [BENCH_PATH_MAX]: of `name` in the folder. */
void bench_folder_join(const bench_folder_t *folder, const char *name, char *path_out);

#endif
