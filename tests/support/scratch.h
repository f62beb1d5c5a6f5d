/* A folder of their own for unit tests that touch files. */
#ifndef TESTS_SUPPORT_SCRATCH_H
#define TESTS_SUPPORT_SCRATCH_H

#include <stddef.h>

/* Makes a fresh folder below $TMPDIR (or /tmp). Gives; ends the program when it cannot. */
char *test_scratch_create(void);

/* Removes the folder and all in it. Takes; NULL is a no-op. */
void test_scratch_destroy(char *folder);

/* "<folder>/<name>" in a buffer of the caller. Returns text. */
char *test_path(char *text, size_t size, const char *folder, const char *name);

/* How many entries the folder has, "." and ".." aside. */
size_t test_count_entries(const char *folder);

#endif
