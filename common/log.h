/*
 * Log lines on standard error: "level label text".
 *
 * error: someone must act. warn: degraded, goes on. info: start, stop, effective options. debug:
 * per object. A library does not log what it can return as an error. Text is lower case, names what
 * it is about first. One write per line, so that lines of ranks do not mix. Any thread.
 */
#ifndef COMMON_LOG_H
#define COMMON_LOG_H

#include "common/status.h"

typedef enum psc_log_level {
    PSC_LOG_ERROR = 0,
    PSC_LOG_WARN = 1,
    PSC_LOG_INFO = 2,
    PSC_LOG_DEBUG = 3,
} psc_log_level_t;

/* Lines above level are dropped. Default: PSC_LOG_WARN. Call before threads start. */
void psc_log_set_level(psc_log_level_t level);

/* Prints one line; a trailing newline is added. What is not to be shown of it (common/text.h) is
 * printed as \xNN, and what is beyond 1,022 bytes cut off. */
void psc_log(psc_log_level_t level, const char *format, ...) PSC_PRINTF(2, 3);

#endif
