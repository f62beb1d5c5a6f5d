/*
 * The one error type: a code, a message that a person can act on, and the id and rank it concerns.
 *
 * Every function that can fail returns a psc_status_t, is marked PSC_MUST_CHECK, and takes a
 * psc_error_t as its last parameter. Who detects a fault writes the message; callers pass it up
 * unchanged. A library never logs instead of returning; a program prints the message once and exits
 * with the code.
 *
 *     psc_status_t st = psc_file_read(path, limit, &bytes, &size, error);
 *     if (st != PSC_OK)
 *         return st;
 */
#ifndef COMMON_STATUS_H
#define COMMON_STATUS_H

#include <stdint.h>

#define PSC_MUST_CHECK __attribute__((warn_unused_result))
#define PSC_PRINTF(fmt_index, first) __attribute__((format(printf, fmt_index, first)))

/*
 * Codes: name, number, text. The number goes over the wire and is a program's exit status: never
 * renumber, never above 125. Grouped by what is broken: the call, the connection, the shard, the
 * node.
 */
#define PSC_STATUS_LIST(X)                                                                         \
    X(OK, 0, "ok")                                                                                 \
    X(INVALID_ARGUMENT, 2, "invalid argument")                                                     \
    X(NOT_FOUND, 3, "not found")                                                                   \
    X(MISMATCH, 4, "does not match what exists")                                                   \
    X(UNSUPPORTED, 5, "not supported")                                                             \
    X(BUSY, 6, "busy, try again later")                                                            \
    X(INTERRUPTED, 7, "stopped by a signal")                                                       \
    X(DENIED, 8, "not allowed")                                                                    \
    X(PROTOCOL, 20, "malformed or foreign message")                                                \
    X(PEER_GONE, 21, "peer is gone")                                                               \
    X(TIMEOUT, 22, "timed out")                                                                    \
    X(IO, 40, "input/output error")                                                                \
    X(DISK_FULL, 41, "disk full")                                                                  \
    X(CORRUPT, 42, "damaged data")                                                                 \
    X(UNCLEAN, 43, "was not closed clean, or belongs to another run")                              \
    X(IN_USE, 44, "in use by another process")                                                     \
    X(NO_MEMORY, 60, "out of memory")                                                              \
    X(INTERNAL, 61, "internal error")

typedef enum psc_status {
#define X(name, number, text) PSC_##name = (number),
    PSC_STATUS_LIST(X)
#undef X
} psc_status_t;

/* Plain data; PSC_ERROR_INIT is "no error". */
typedef struct psc_error {
    psc_status_t code;
    int32_t rank;      /* server or worker that detected it; -1: not known or does not matter */
    uint64_t id;       /* row id it concerns; 0 when none */
    char message[488]; /* NUL-terminated UTF-8, cut at the end where it does not fit */
} psc_error_t;

#define PSC_ERROR_INIT                                                                             \
    {                                                                                              \
        .code = PSC_OK, .rank = -1                                                                 \
    }

/* Fills error (may be NULL: only the code is wanted) and returns code. Any thread. */
psc_status_t psc_error_set(psc_error_t *error, psc_status_t code, const char *format, ...)
    PSC_PRINTF(3, 4);

/*
 * The same for a failed system call: appends ": " and the text of errno_value. The code is
 * DISK_FULL for ENOSPC and EDQUOT, NOT_FOUND for ENOENT, NO_MEMORY for ENOMEM, otherwise IO.
 */
psc_status_t psc_error_set_errno(psc_error_t *error, int errno_value, const char *format, ...)
    PSC_PRINTF(3, 4);

#ifdef __clang_analyzer__
/* The analyzer sees one file at a time and cannot know that neither returns PSC_OK. */
static inline psc_status_t psc_error_known(psc_status_t returned, psc_status_t code)
{
    (void)returned;
    return code;
}
#define psc_error_set(error, code, ...)                                                            \
    psc_error_known(psc_error_set(error, code, __VA_ARGS__), code)
#define psc_error_set_errno(error, errno_value, ...)                                               \
    psc_error_known(psc_error_set_errno(error, errno_value, __VA_ARGS__), PSC_IO)
#endif

/* Name of a code as in the list ("DISK_FULL"); "UNKNOWN" for a number that is none. Static. */
const char *psc_status_name(psc_status_t code);

/* What a code means in words. Static. */
const char *psc_status_text(psc_status_t code);

/* A number from the wire as a code; numbers that are none become PSC_INTERNAL. */
psc_status_t psc_status_from_number(uint32_t number);

/*
 * Stops the program when an invariant of our own is broken; never for input. Names the expression,
 * file and line, then calls the abort hook of common/process.h, so that all ranks stop.
 */
#define PSC_BUG_ON(condition)                                                                      \
    do {                                                                                           \
        if (__builtin_expect(!!(condition), 0))                                                    \
            psc_bug(#condition, __FILE__, __LINE__);                                               \
    } while (0)

__attribute__((noreturn)) void psc_bug(const char *expression, const char *file, int line);

#endif
