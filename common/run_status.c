/*
 * The status record of a rank: one small file, written through common/file.c so that a reader sees
 * all of it or nothing. A second record of the same rank replaces the first: the last word counts.
 *
 * Nothing is returned: the caller is on its way out and has a status of its own to report.
 */
#include "common/run_status.h"

#include "common/file.h"
#include "common/log.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

/* Writes a file of the folder, where there is one. */
static void write_record(const char *name, const char *bytes, size_t size)
{
    const char *folder = getenv(PSC_STATUS_DIR_VARIABLE);
    if (folder == NULL || folder[0] == '\0')
        return;
    char path[PATH_MAX];
    int length = snprintf(path, sizeof path, "%s/%s", folder, name);
    if (length < 0 || (size_t)length >= sizeof path) {
        psc_log(PSC_LOG_WARN, "%s: path too long, no status record", PSC_STATUS_DIR_VARIABLE);
        return;
    }
    psc_error_t error = PSC_ERROR_INIT;
    if (psc_file_write(path, bytes, size, &error) != PSC_OK)
        psc_log(PSC_LOG_WARN, "no status record: %s", error.message);
}

void psc_run_status_begin(void)
{
    write_record("running", "\n", 1);
}

bool psc_run_recovers(void)
{
    const char *value = getenv(PSC_RECOVERY_VARIABLE);
    return value != NULL && value[0] != '\0';
}

void psc_run_status_write(const char *role, int32_t rank, psc_status_t code, const char *message)
{
    char name[64];
    (void)snprintf(name, sizeof name, "%s-%" PRId32, role, rank);
    char line[640];
    int used = snprintf(line, sizeof line, "%d\t", (int)code);
    size_t size = (size_t)used;
    for (; *message != '\0' && size < sizeof line - 1; message++)
        line[size++] = (unsigned char)*message < ' ' ? ' ' : *message;
    line[size++] = '\n';
    write_record(name, line, size);
}
