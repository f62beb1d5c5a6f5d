/* Structs of options that begin with their size, so that programs of earlier headers go on working.
 * Internal to worker/. */
#ifndef WORKER_SIZED_OPTIONS_H
#define WORKER_SIZED_OPTIONS_H

#include "common/status.h"

#include <stddef.h>

typedef struct psw_sized {
    const char *what;       /* whose options: "a table" */
    const char *begin_with; /* the macro that sets the size */
    size_t size;            /* as the caller set it */
    size_t least;           /* of the first header that had them */
} psw_sized_t;

/*
 * The caller's options into a struct of ours, which holds the defaults before: a shorter struct
 * keeps them for what it does not have, a longer one must have zeros there. Errors:
 * INVALID_ARGUMENT (a size that cannot be one), UNSUPPORTED (options that this library does not
 * know); *out is then undefined.
 */
PSC_MUST_CHECK psc_status_t psw_sized_copy(const psw_sized_t *sized, const void *options, void *out,
                                           size_t out_bytes, psc_error_t *error);

#endif
