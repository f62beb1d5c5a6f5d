/*
 * Nearest rows in a table of running servers.
 */
#ifndef WORKER_TOOL_NEAREST_LIVE_H
#define WORKER_TOOL_NEAREST_LIVE_H

#include "worker/tool/address_options.h"

typedef struct psw_nearest_live {
    const char *table, *vocab; /* vocab NULL: words are ids */
    size_t top;
} psw_nearest_live_t;

/*
 * Answers the words of a visit. Reads the table once, for all words together; holds no more of it
 * than a block. Errors: NOT_FOUND (table, words), those of reading files, pulls and exports.
 */
PSC_MUST_CHECK psc_status_t psw_nearest_live(const psw_visit_t *visit,
                                             const psw_nearest_live_t *asked, psc_error_t *error);

#endif
