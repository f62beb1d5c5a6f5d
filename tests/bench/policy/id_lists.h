/*
 * Doubly linked lists of ids: a row is in one list at most. What queues are made of here.
 *
 * An id's links lie in two arrays; a list's head and tail are kept apart, in as many lists as there
 * are needed.
 */
#ifndef TESTS_BENCH_POLICY_ID_LISTS_H
#define TESTS_BENCH_POLICY_ID_LISTS_H

#include "common/alloc.h"

#include <stdbool.h>
#include <stdint.h>

#define BENCH_NO_ID UINT32_MAX

typedef struct bench_links {
    uint32_t newer, older;
} bench_links_t;

typedef struct bench_list {
    uint32_t newest, oldest; /* BENCH_NO_ID: it is empty */
    uint32_t n;
} bench_list_t;

#define BENCH_LIST_EMPTY ((bench_list_t){.newest = BENCH_NO_ID, .oldest = BENCH_NO_ID})

static inline void bench_list_push(bench_list_t *list, bench_links_t *links, uint32_t id)
{
    links[id] = (bench_links_t){.newer = BENCH_NO_ID, .older = list->newest};
    if (list->newest != BENCH_NO_ID)
        links[list->newest].newer = id;
    else
        list->oldest = id;
    list->newest = id;
    list->n++;
}

static inline void bench_list_remove(bench_list_t *list, bench_links_t *links, uint32_t id)
{
    bench_links_t at = links[id];
    if (at.newer != BENCH_NO_ID)
        links[at.newer].older = at.older;
    else
        list->newest = at.older;
    if (at.older != BENCH_NO_ID)
        links[at.older].newer = at.newer;
    else
        list->oldest = at.newer;
    list->n--;
}

/* The oldest, taken out; the list is not empty. */
static inline uint32_t bench_list_pop(bench_list_t *list, bench_links_t *links)
{
    uint32_t id = list->oldest;
    bench_list_remove(list, links, id);
    return id;
}

#endif
