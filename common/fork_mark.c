/*
 * A page of its own that the kernel hands to a child as zeros (MADV_WIPEONFORK, Linux 4.14). Asking
 * for the process's number instead would be a system call for every message; a handler of
 * pthread_atfork would need a list of all that wants to know, which is global. A kernel that does
 * not know the advice leaves the mark as it is: then a child is not told from its parent.
 *
 * Threads: does not change once it is made.
 */
#include "common/fork_mark.h"

#include <stddef.h>
#include <sys/mman.h>

psc_status_t psc_fork_mark_create(psc_fork_mark_t **mark_out, psc_error_t *error)
{
    void *page = mmap(NULL, sizeof(psc_fork_mark_t), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED)
        return psc_error_set(error, PSC_NO_MEMORY, "out of memory for the mark of a process");
    (void)madvise(page, sizeof(psc_fork_mark_t), MADV_WIPEONFORK);
    psc_fork_mark_t *mark = page;
    mark->own = 1;
    *mark_out = mark;
    return PSC_OK;
}

void psc_fork_mark_destroy(psc_fork_mark_t *mark)
{
    if (mark != NULL)
        (void)munmap(mark, sizeof *mark);
}
