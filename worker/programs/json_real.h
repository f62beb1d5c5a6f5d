/* Numbers that may be infinite or none, as JSON, which has no such: null. */
#ifndef WORKER_PROGRAMS_JSON_REAL_H
#define WORKER_PROGRAMS_JSON_REAL_H

#include <jansson.h>

/* Gives; NULL when memory is short, and never for what the number is. */
static inline json_t *psw_json_real(double value)
{
    return __builtin_isfinite(value) ? json_real(value) : json_null();
}

#endif
