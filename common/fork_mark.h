/*
 * Whether this is still the process that made something, or a child of a fork, at the cost of
 * reading a word: for what must not take a lock first, since a thread that is not there in the
 * child may have held it.
 *
 *     psc_fork_mark_create(&mark, error);
 *     if (!psc_fork_mark_is_own(mark)) ...        a child: the locks of mark's owner are not for it
 */
#ifndef COMMON_FORK_MARK_H
#define COMMON_FORK_MARK_H

#include "common/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct psc_fork_mark {
    uint32_t own; /* becomes 0 in a child */
} psc_fork_mark_t;

/* Errors: NO_MEMORY. Gives. */
PSC_MUST_CHECK psc_status_t psc_fork_mark_create(psc_fork_mark_t **mark_out, psc_error_t *error);
/* Any process. NULL is a no-op. */
void psc_fork_mark_destroy(psc_fork_mark_t *mark);

static inline bool psc_fork_mark_is_own(const psc_fork_mark_t *mark)
{
    return mark->own != 0;
}

#endif
