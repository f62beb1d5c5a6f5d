/* One of a client's counters (embps_stats). */
#ifndef TESTS_SUPPORT_CLIENT_COUNTER_H
#define TESTS_SUPPORT_CLIENT_COUNTER_H

#include "embps.h"

#include "tests/support/cmocka.h"

#include <string.h>

typedef struct counter {
    const char *name;
    uint64_t value;
} counter_t;

static inline void counter_see(void *context, const char *name, uint64_t value)
{
    counter_t *counter = context;
    if (strcmp(counter->name, name) == 0)
        counter->value = value;
}

/* Ends the test if there is none of that name. */
static inline uint64_t counter_of(embps_client_t *client, const char *name)
{
    counter_t counter = {.name = name, .value = UINT64_MAX};
    assert_int_equal(embps_stats(client, counter_see, &counter, NULL), 0);
    assert_true(counter.value != UINT64_MAX);
    return counter.value;
}

#endif
