/*
 * Ranks that have not connected, while a server waits for them within MPI.
 *
 * A rank that never calls MPI_Init holds up all others in theirs, and one that never connects
 * holds up the servers in their first collective; MPI says in neither case for whom it waits. So
 * every rank that comes leaves a mark in the folder of the ranks' records (psc_run_status_come),
 * and a server that waits looks for those of the workers. How many servers there are, which are
 * the first ranks of the job, the script that started it says in the environment, and mpirun how
 * many ranks: nothing here asks MPI, which may not have started yet.
 *
 * The lines come at 30, 60, 120 s and so on: a job of programs that read for long before they
 * connect says little. Threads: whoever calls; no state but the caller's.
 */
#include "ps/start_watch.h"

#include "common/run_status.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define FIRST_US UINT64_C(30000000)
#define NAMED 8u /* of those that are missing */

ps_start_watch_t ps_start_watch(uint64_t now_us, uint64_t limit_us)
{
    const uint64_t first_us =
        limit_us != 0 && limit_us / 2 < FIRST_US ? limit_us / 2 + 1 : FIRST_US;
    return (ps_start_watch_t){.began_us = now_us, .next_us = first_us, .limit_us = limit_us};
}

ps_start_due_t ps_start_look(ps_start_watch_t *watch, uint64_t now_us)
{
    const uint64_t waited_us = now_us - watch->began_us;
    if (watch->limit_us != 0 && waited_us >= watch->limit_us)
        return PS_START_END;
    if (waited_us < watch->next_us)
        return PS_START_NOTHING;
    while (watch->next_us <= waited_us)
        watch->next_us *= 2;
    return PS_START_SAY;
}

/* A number that the environment holds; 0: none. */
static uint32_t number_of(const char *variable)
{
    const char *value = getenv(variable);
    const unsigned long number = value != NULL ? strtoul(value, NULL, 10) : 0;
    return number <= UINT32_MAX ? (uint32_t)number : 0;
}

void ps_start_missing(char *text)
{
    const uint32_t n_ranks = number_of("OMPI_COMM_WORLD_SIZE");
    const uint32_t n_servers = number_of(PSC_SERVERS_VARIABLE);
    char names[PS_START_TEXT_BYTES / 2] = "";
    size_t used = 0;
    uint32_t n = 0;
    for (uint32_t rank = n_servers; n_servers != 0 && rank < n_ranks; rank++) {
        if (psc_run_status_came((int32_t)rank))
            continue;
        if (n < NAMED)
            used += (size_t)snprintf(names + used, sizeof names - used, "%s%" PRIu32,
                                     n != 0 ? ", " : "", rank - n_servers);
        n++;
    }
    if (n == 0)
        (void)snprintf(text, PS_START_TEXT_BYTES, "not all of the %" PRIu32 " ranks have connected",
                       n_ranks);
    else if (n <= NAMED)
        (void)snprintf(text, PS_START_TEXT_BYTES, "of %" PRIu32 " workers %s %s not connected",
                       n_ranks - n_servers, names, n == 1 ? "has" : "have");
    else
        (void)snprintf(text, PS_START_TEXT_BYTES,
                       "of %" PRIu32 " workers %s and %" PRIu32 " more have not connected",
                       n_ranks - n_servers, names, n - NAMED);
}
