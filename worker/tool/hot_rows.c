/*
 * Space-Saving with plain arrays: an id that has no counter takes the least one, with its count as
 * what it may have too much. A pass over 256 counters an id, under a microsecond, which is little
 * beside the message that brought it. Threads: none here.
 */
#include "worker/tool/hot_rows.h"

#include <stdlib.h>
#include <string.h>

void psw_hot_rows_add(psw_hot_rows_t *hot, uint64_t id)
{
    size_t least = 0;
    for (size_t i = 0; i < hot->n; i++) {
        if (hot->rows[i].id == id) {
            hot->rows[i].count++;
            return;
        }
        if (hot->rows[i].count < hot->rows[least].count)
            least = i;
    }
    if (hot->n < PSW_HOT_ROWS) {
        hot->rows[hot->n++] = (psw_hot_row_t){.id = id, .count = 1};
        return;
    }
    psw_hot_row_t *row = &hot->rows[least];
    *row = (psw_hot_row_t){.id = id, .count = row->count + 1, .excess = row->count};
}

static int compare(const void *a, const void *b)
{
    const psw_hot_row_t *x = a, *y = b;
    if (x->count != y->count)
        return x->count > y->count ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

size_t psw_hot_rows_best(const psw_hot_rows_t *hot, psw_hot_row_t *best_out, size_t most)
{
    psw_hot_rows_t sorted = *hot;
    const size_t n = sorted.n < most ? sorted.n : most;
    qsort(sorted.rows, sorted.n, sizeof sorted.rows[0], compare);
    memcpy(best_out, sorted.rows, n * sizeof *best_out);
    return n;
}
