/*
 * Error codes and messages.
 *
 * Purpose: one place that formats an error. Nothing is allocated, so "out of memory" can be
 * reported as well. Thread-safe: works on the caller's struct alone (strerror_r, not strerror).
 */
#include "common/status.h"

#include "common/process.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#undef psc_error_set /* what the analyzer sees elsewhere */
#undef psc_error_set_errno

/* Drops a letter at the end of text that was cut in its middle. */
static void drop_half_letter(char *text)
{
    size_t length = strlen(text);
    size_t start = length; /* of the last letter */
    while (start > 0 && length - start < 4) {
        start--;
        if (((unsigned char)text[start] & 0xc0u) != 0x80u)
            break;
    }
    unsigned char lead = start < length ? (unsigned char)text[start] : 0;
    size_t wanted = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc0 ? 2 : 1;
    if (length - start < wanted)
        text[start] = '\0';
}

PSC_PRINTF(3, 0)
static void fill(psc_error_t *error, psc_status_t code, const char *format, va_list args)
{
    error->code = code;
    error->rank = -1;
    error->id = 0;
    int length = vsnprintf(error->message, sizeof error->message, format, args);
    if (length >= (int)sizeof error->message)
        drop_half_letter(error->message);
}

psc_status_t psc_error_set(psc_error_t *error, psc_status_t code, const char *format, ...)
{
    if (error != NULL) {
        va_list args;
        va_start(args, format);
        fill(error, code, format, args);
        va_end(args);
    }
    return code;
}

static psc_status_t code_of_errno(int errno_value)
{
    switch (errno_value) {
    case ENOSPC:
    case EDQUOT:
        return PSC_DISK_FULL;
    case ENOENT:
        return PSC_NOT_FOUND;
    case ENOMEM:
        return PSC_NO_MEMORY;
    default:
        return PSC_IO;
    }
}

psc_status_t psc_error_set_errno(psc_error_t *error, int errno_value, const char *format, ...)
{
    psc_status_t code = code_of_errno(errno_value);
    if (error != NULL) {
        va_list args;
        va_start(args, format);
        fill(error, code, format, args);
        va_end(args);
        char text[128];
        const char *reason = strerror_r(errno_value, text, sizeof text);
        size_t used = strlen(error->message);
        if (used + 2 < sizeof error->message)
            (void)snprintf(error->message + used, sizeof error->message - used, ": %s", reason);
    }
    return code;
}

const char *psc_status_name(psc_status_t code)
{
    switch (code) {
#define X(name, number, text)                                                                      \
    case PSC_##name:                                                                               \
        return #name;
        PSC_STATUS_LIST(X)
#undef X
    }
    return "UNKNOWN";
}

const char *psc_status_text(psc_status_t code)
{
    switch (code) {
#define X(name, number, text)                                                                      \
    case PSC_##name:                                                                               \
        return text;
        PSC_STATUS_LIST(X)
#undef X
    }
    return "unknown status";
}

psc_status_t psc_status_from_number(uint32_t number)
{
    switch (number) {
#define X(name, value, text)                                                                       \
    case value:                                                                                    \
        return PSC_##name;
        PSC_STATUS_LIST(X)
#undef X
    default:
        break;
    }
    return PSC_INTERNAL;
}

void psc_bug(const char *expression, const char *file, int line)
{
    (void)fprintf(stderr, "bug in embps: %s at %s:%d\n", expression, file, line);
    psc_process_abort(PSC_INTERNAL);
}
