/*
 * Log lines: formatted into a fixed buffer and written with one write(2), so that they stay whole.
 * What they quote may come from anywhere, a table's name or a message of another process; it is
 * shown so that a terminal obeys nothing and a line stays one line (common/text.h).
 */
#include "common/log.h"

#include "common/process.h"
#include "common/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static psc_log_level_t max_level = PSC_LOG_WARN;

void psc_log_set_level(psc_log_level_t level)
{
    max_level = level;
}

void psc_log(psc_log_level_t level, const char *format, ...)
{
    static const char *const names[] = {"error", "warn", "info", "debug"};
    if (level > max_level)
        return;
    char line[1024];
    const char *label = psc_process_label();
    int used = snprintf(line, sizeof line, "embps: %s: %s%s", names[level], label,
                        label[0] != '\0' ? ": " : "");
    va_list args;
    va_start(args, format);
    (void)vsnprintf(line + used, sizeof line - (size_t)used, format, args);
    va_end(args);
    char shown[sizeof line];
    size_t length = strlen(psc_text_show(line, strlen(line), shown, sizeof shown - 1));
    shown[length] = '\n';
    (void)!write(STDERR_FILENO, shown, length + 1);
}
