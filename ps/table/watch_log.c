/*
 * A ring of ids, written by pushes without a look at who reads. A row that is pushed again and
 * again stands in it as often, and is told once to who reads it all at a time. Cost of a push to a
 * watched table: 8 bytes written a row. Threads: the owner's.
 */
#include "ps/table/watch_log.h"

#include "common/alloc.h"

#include <stdlib.h>
#include <string.h>

psc_status_t ps_watch_log_create(uint64_t number, ps_watch_log_t **log_out, psc_error_t *error)
{
    ps_watch_log_t *log = psc_alloc_zeroed(1, sizeof *log);
    if (log == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "out of memory for watching a table");
    log->number = number;
    *log_out = log;
    return PSC_OK;
}

void ps_watch_log_note(ps_watch_log_t *log, const uint64_t *ids, size_t n)
{
    while (n != 0) {
        const size_t at = log->end % PS_WATCH_LOG_IDS;
        const size_t part = PS_WATCH_LOG_IDS - at < n ? PS_WATCH_LOG_IDS - at : n;
        memcpy(log->ids + at, ids, part * sizeof *ids);
        log->end += part;
        ids += part;
        n -= part;
    }
}

ps_watch_place_t ps_watch_log_end(const ps_watch_log_t *log)
{
    return (ps_watch_place_t){.log = log->number, .at = log->end};
}

bool ps_watch_log_has_news(const ps_watch_log_t *log, const ps_watch_place_t *place)
{
    return place->log != log->number || place->at != log->end;
}

static int compare(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

size_t ps_watch_log_read(const ps_watch_log_t *log, ps_watch_place_t *place, uint64_t *ids_out,
                         size_t max, bool *lost_out)
{
    *lost_out = place->log != log->number || place->at > log->end ||
                log->end - place->at > PS_WATCH_LOG_IDS;
    if (*lost_out) {
        *place = ps_watch_log_end(log);
        return 0;
    }
    const uint64_t left = log->end - place->at;
    const size_t n = left < max ? (size_t)left : max;
    size_t n_distinct = 0;
    for (size_t i = 0; i < n; i++)
        ids_out[i] = log->ids[(place->at + i) % PS_WATCH_LOG_IDS];
    place->at += n;
    qsort(ids_out, n, sizeof *ids_out, compare);
    for (size_t i = 0; i < n; i++) {
        if (i == 0 || ids_out[i] != ids_out[n_distinct - 1])
            ids_out[n_distinct++] = ids_out[i];
    }
    return n_distinct;
}
