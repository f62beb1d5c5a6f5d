/*
 * Who keeps a server from starting: ranks of its job that have not connected. Pure but for
 * ps_start_missing, which looks into the environment and the folder of the ranks' records.
 *
 *     ps_start_watch_t watch = ps_start_watch(now_us, limit_us);
 *     switch (ps_start_look(&watch, now_us)) { ... }     now and then, until all have come
 */
#ifndef PS_START_WATCH_H
#define PS_START_WATCH_H

#include <stddef.h>
#include <stdint.h>

typedef struct ps_start_watch {
    uint64_t began_us, next_us, limit_us;
} ps_start_watch_t;

typedef enum ps_start_due {
    PS_START_NOTHING,
    PS_START_SAY, /* say who is missing: after 30 s (half of the limit, if that is less), and each
                     time that the time has doubled */
    PS_START_END, /* the limit has passed */
} ps_start_due_t;

/* limit_us: 0: none. */
ps_start_watch_t ps_start_watch(uint64_t now_us, uint64_t limit_us);
ps_start_due_t ps_start_look(ps_start_watch_t *watch, uint64_t now_us);

#define PS_START_TEXT_BYTES 400u

/*
 * "of 3 workers 1, 2 have not connected" in a job of embps-run; elsewhere only that not
 * all have. text: of PS_START_TEXT_BYTES; NUL-terminated. Any thread.
 */
void ps_start_missing(char *text);

#endif
