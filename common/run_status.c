/*
 * The status record of a rank: one small file, written through common/file.c so that a reader sees
 * all of it or nothing. A second record of the same rank replaces the first: the last word counts.
 *
 * Nothing is returned: the caller is on its way out and has a status of its own to report.
 */
#include "common/run_status.h"

#include "common/file.h"
#include "common/log.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The path of a file of the folder; false: there is none (a path that is too long is logged). */
static bool make_path(const char *name, char path[PATH_MAX])
{
    const char *folder = getenv(PSC_STATUS_DIR_VARIABLE);
    if (folder == NULL || folder[0] == '\0')
        return false;
    int length = snprintf(path, PATH_MAX, "%s/%s", folder, name);
    if (length >= 0 && length < PATH_MAX)
        return true;
    psc_log(PSC_LOG_WARN, "%s: path too long, no status record", PSC_STATUS_DIR_VARIABLE);
    return false;
}

/* Writes a file of the folder, where there is one. */
static void write_record(const char *name, const char *bytes, size_t size)
{
    char path[PATH_MAX];
    if (!make_path(name, path))
        return;
    psc_error_t error = PSC_ERROR_INIT;
    if (psc_file_write(path, bytes, size, &error) != PSC_OK)
        psc_log(PSC_LOG_WARN, "no status record: %s", error.message);
}

void psc_run_status_begin(void)
{
    write_record("running", "\n", 1);
}

bool psc_run_status_ended(const char *role, int32_t rank, int *signal_out)
{
    char name[64], path[PATH_MAX], text[32] = "";
    *signal_out = 0;
    (void)snprintf(name, sizeof name, "ended-%s-%" PRId32, role, rank);
    if (!make_path(name, path))
        return false;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return false;
    if (read(file, text, sizeof text - 1) > 0) {
        const long number = strtol(text, NULL, 10);
        *signal_out = number > 0 && number < NSIG ? (int)number : 0;
    }
    (void)close(file);
    return true;
}

static void came_name(int32_t rank, char name[64])
{
    (void)snprintf(name, 64, "came-%" PRId32, rank);
}

void psc_run_status_come(int32_t rank)
{
    char name[64];
    came_name(rank, name);
    write_record(name, "\n", 1);
}

bool psc_run_status_came(int32_t rank)
{
    char name[64], path[PATH_MAX];
    came_name(rank, name);
    return make_path(name, path) && access(path, F_OK) == 0;
}

bool psc_run_recovers_hosts(void)
{
    const char *value = getenv(PSC_RECOVERY_VARIABLE);
    return value != NULL && strcmp(value, PSC_RECOVERY_HOSTS) == 0;
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
