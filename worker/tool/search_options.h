/*
 * The options that the searching sub-commands share.
 */
#ifndef WORKER_TOOL_SEARCH_OPTIONS_H
#define WORKER_TOOL_SEARCH_OPTIONS_H

#include "common/options.h"

typedef struct psw_search_options {
    const char *vectors;
    uint64_t top;
    bool json;
} psw_search_options_t;

#define PSW_SEARCH_OPTION_COUNT 3

/* Their table, over psw_search_options_t. */
extern const psc_option_t psw_search_option_table[PSW_SEARCH_OPTION_COUNT];

#endif
