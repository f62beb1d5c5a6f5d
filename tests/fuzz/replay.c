/*
 * Runs a fuzz target over every file of the folders named, so that normal test runs replay the
 * corpus without libFuzzer.
 */
#include <dirent.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The target gets memory of exactly the file's size, so that a sanitizer sees a read past it. */
static int replay_file(const char *folder, const char *name)
{
    char path[4096];
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "rb");
    long size = file != NULL && fseek(file, 0, SEEK_END) == 0 ? ftell(file) : -1;
    uint8_t *bytes = size >= 0 ? malloc((size_t)size + (size == 0)) : NULL;
    bool whole = false;
    if (bytes != NULL) {
        rewind(file);
        whole = fread(bytes, 1, (size_t)size, file) == (size_t)size;
    }
    if (file != NULL)
        (void)fclose(file);
    if (whole)
        (void)LLVMFuzzerTestOneInput(bytes, (size_t)size);
    else
        (void)fprintf(stderr, "cannot read %s\n", path);
    free(bytes);
    return whole ? 0 : 1;
}

int main(int argc, char **argv)
{
    int n = 0;
    for (int i = 1; i < argc; i++) {
        DIR *folder = opendir(argv[i]);
        if (folder == NULL) {
            perror(argv[i]);
            return 1;
        }
        for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
            if (entry->d_name[0] == '.')
                continue;
            if (replay_file(argv[i], entry->d_name) != 0)
                return 1;
            n++;
        }
        (void)closedir(folder);
    }
    (void)printf("%d inputs replayed\n", n);
    return n > 0 ? 0 : 1;
}
