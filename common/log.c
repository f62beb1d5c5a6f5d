/* Log lines: formatted into a fixed buffer and written with one write(2), so that they stay whole.
 */
#include "common/log.h"

#include "common/process.h"

#include <stdarg.h>
#include <stdio.h>
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
    int more = vsnprintf(line + used, sizeof line - (size_t)used, format, args);
    va_end(args);
    size_t length = (size_t)used + (more > 0 ? (size_t)more : 0);
    if (length > sizeof line - 2)
        length = sizeof line - 2;
    line[length] = '\n';
    (void)!write(STDERR_FILENO, line, length + 1);
}
