/*
 * Calls of embps.h that must succeed, in a test program that is one file:
 *
 *     ok(embps_pull(table, ids, n, rows, &error));
 */
#ifndef TESTS_SUPPORT_CLIENT_CALLS_H
#define TESTS_SUPPORT_CLIENT_CALLS_H

#include "embps.h"

#include "tests/support/cmocka.h"

static embps_error_t error; /* of the calls of the test's own thread */

/* Ends the test with the error's words if code is one. */
static inline void ok(int code)
{
    if (code != 0)
        fail_msg("code %d: %s", code, error.message);
}

static inline embps_client_t *connect_to(const char *address)
{
    embps_client_t *client = NULL;
    ok(embps_connect(address, NULL, &client, &error));
    return client;
}

#endif
