/* Where the shared test data lie, which are no part of the repository. */
#ifndef TESTS_SUPPORT_SHARED_DATA_H
#define TESTS_SUPPORT_SHARED_DATA_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/*
 * Path of a file below the data folder: $EMBPS_SHARED_DATA, or ../shared/data beside the source
 * tree (this header's own place tells where that is). False, said on standard output, when it is
 * not there.
 */
static inline bool shared_data_path(const char *name, char *path, size_t path_size)
{
    const char *folder = getenv("EMBPS_SHARED_DATA");
    if (folder != NULL) {
        (void)snprintf(path, path_size, "%s/%s", folder, name);
    } else {
        int source = (int)(sizeof __FILE__ - sizeof "tests/support/shared_data.h");
        (void)snprintf(path, path_size, "%.*s../shared/data/%s", source, __FILE__, name);
    }
    if (access(path, R_OK) == 0)
        return true;
    printf("skipped: no %s (set EMBPS_SHARED_DATA)\n", path);
    return false;
}

#endif
