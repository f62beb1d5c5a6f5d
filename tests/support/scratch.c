/*
 * Scratch folders of unit tests.
 *
 * A fault here is a fault of the machine and not of what is tested; it ends the program with words.
 * The folder is removed by nftw, which does not follow links, so that a test may link to anything.
 */
#include "tests/support/scratch.h"

#include <dirent.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

char *test_scratch_create(void)
{
    const char *base = getenv("TMPDIR");
    char *folder = NULL;
    if (asprintf(&folder, "%s/embps-unit.XXXXXX", base != NULL ? base : "/tmp") < 0 ||
        mkdtemp(folder) == NULL) {
        perror("no scratch folder");
        exit(1);
    }
    return folder;
}

static int remove_entry(const char *path, const struct stat *info, int kind, struct FTW *where)
{
    (void)info;
    (void)kind;
    (void)where;
    return remove(path);
}

void test_scratch_destroy(char *folder)
{
    if (folder == NULL)
        return;
    (void)nftw(folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    free(folder);
}

char *test_path(char *text, size_t size, const char *folder, const char *name)
{
    (void)snprintf(text, size, "%s/%s", folder, name);
    return text;
}

size_t test_count_entries(const char *folder)
{
    DIR *dir = opendir(folder);
    if (dir == NULL) {
        perror(folder);
        exit(1);
    }
    size_t n = 0;
    for (struct dirent *entry = readdir(dir); entry != NULL; entry = readdir(dir))
        n += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    (void)closedir(dir);
    return n;
}
