/*
 * gRPC's log is the process's, and so is what is kept here: when the last warning was, and how many
 * have come since. Both are statics, since gRPC hands its lines over without a context. They only
 * bound how often a line is printed; nothing else depends on them.
 *
 * What a server hears of most is a handshake that failed: of a client that speaks plain text, has
 * no certificate, or does not trust the server's, again and again while it tries. Anybody who
 * reaches the port can cause such lines, hence one a minute.
 *
 * Threads: any, which are gRPC's.
 */
#include "proto/grpc/grpc_log.h"

#include "common/clock.h"
#include "common/log.h"

#include <grpc/support/log.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define PERIOD_US UINT64_C(60000000)
#define WORDS_BYTES 300

static atomic_uint_least64_t next_us; /* when a line may be printed */
static atomic_uint_least64_t n_since; /* that were not */

void psp_grpc_log_words(const char *message, char *words_out, size_t size)
{
    static const char handshake[] = "Handshake failed", reason_mark[] = "::";
    words_out[0] = '\0';
    if (strncmp(message, "No match found for server name", 30) == 0)
        return; /* a name that was asked for by an address: there is one certificate anyway */
    if (strncmp(message, handshake, sizeof handshake - 1) != 0) {
        (void)snprintf(words_out, size, "gRPC: %s", message);
        return;
    }
    const char *reason = message, *next;
    while ((next = strstr(reason, reason_mark)) != NULL)
        reason = next + sizeof reason_mark - 1;
    const size_t length = strcspn(reason, ".\n");
    (void)snprintf(words_out, size, "a guest's TLS handshake failed: %.*s", (int)length, reason);
}

/* Whether a line may be printed now; *others_out: how many were not since the last one. */
static bool may_speak(uint64_t *others_out)
{
    const uint64_t now_us = psc_clock_us();
    uint64_t due_us = atomic_load(&next_us);
    if (now_us >= due_us && atomic_compare_exchange_strong(&next_us, &due_us, now_us + PERIOD_US)) {
        *others_out = atomic_exchange(&n_since, 0);
        return true;
    }
    atomic_fetch_add(&n_since, 1);
    return false;
}

static void take_line(gpr_log_func_args *line)
{
    char words[WORDS_BYTES];
    uint64_t others;
    if (line->severity != GPR_LOG_SEVERITY_ERROR) {
        psc_log(PSC_LOG_DEBUG, "gRPC: %s", line->message);
        return;
    }
    psp_grpc_log_words(line->message, words, sizeof words);
    if (words[0] == '\0' || !may_speak(&others))
        return;
    if (others == 0)
        psc_log(PSC_LOG_WARN, "%s", words);
    else
        psc_log(PSC_LOG_WARN, "%s; %" PRIu64 " more such lines came since the last one", words,
                others);
}

void psp_grpc_log_take(void)
{
    gpr_set_log_function(take_line);
}
