/*
 * Files that a checkpoint or a cold tier gets: linked where they never change, else copied.
 */
#ifndef PS_CHECKPOINT_PLACE_FILE_H
#define PS_CHECKPOINT_PLACE_FILE_H

#include "common/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Whether a file of a cold tier never changes once it is there. */
bool ps_place_is_constant(const char *name);

/* Writes all of that to an open file. 0, or errno. */
int ps_place_bytes(int fd, const uint8_t *bytes, size_t n);

/*
 * Makes `to` a file like `from`: a constant one is linked where the file system can, all others are
 * copied and synced. Errors: IO, NOT_FOUND, DISK_FULL, NO_MEMORY, naming the file; `to` may be
 * there in part.
 */
PSC_MUST_CHECK psc_status_t ps_place_file(const char *from, const char *to, bool constant,
                                          psc_error_t *error);

#endif
