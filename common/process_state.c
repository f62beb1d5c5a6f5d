/*
 * Reads /proc/PID/stat: "PID (NAME) STATE ...", where NAME may hold anything, so fields are counted
 * from the last parenthesis; STATE is the first behind it, the start time the twentieth.
 *
 * What cannot be told counts as living: who is taken for dead loses its work. A process whose start
 * is not known (no /proc here) is never seen to end. Threads: none of its own; no state.
 */
#include "common/process_state.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STARTED_FIELD 20 /* behind the name, the state being 1 */

/* 0 and what it found, or errno. */
static int read_stat(int32_t pid, char *state_out, uint64_t *started_out)
{
    char path[64], text[1024];
    (void)snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return errno;
    ssize_t size = read(file, text, sizeof text - 1);
    int failed = size <= 0 ? (size < 0 ? errno : ESRCH) : 0;
    (void)close(file);
    if (failed != 0)
        return failed;
    text[size] = '\0';
    char *rest = strrchr(text, ')');
    if (rest == NULL)
        return EINVAL;
    int field = 0;
    char *word;
    rest++;
    while ((word = strsep(&rest, " ")) != NULL) {
        if (*word == '\0')
            continue;
        if (++field == 1)
            *state_out = *word;
        if (field == STARTED_FIELD) {
            *started_out = strtoull(word, NULL, 10);
            return 0;
        }
    }
    return EINVAL;
}

psc_process_id_t psc_process_self(void)
{
    psc_process_id_t self = {.pid = (int32_t)getpid()};
    char state;
    if (gethostname(self.host, sizeof self.host) != 0)
        self.host[0] = '\0';
    self.host[sizeof self.host - 1] = '\0';
    if (read_stat(self.pid, &state, &self.started) != 0)
        self.started = 0;
    return self;
}

psc_process_state_t psc_process_look(const psc_process_id_t *process)
{
    char host[sizeof process->host], state = 'R';
    uint64_t started = 0;
    if (process->started == 0 || gethostname(host, sizeof host) != 0)
        return PSC_PROCESS_LIVES;
    host[sizeof host - 1] = '\0';
    if (strcmp(host, process->host) != 0)
        return PSC_PROCESS_LIVES;
    int failed = read_stat(process->pid, &state, &started);
    if (failed == ENOENT || failed == ESRCH)
        return PSC_PROCESS_GONE;
    if (failed != 0)
        return PSC_PROCESS_LIVES;
    if (started != process->started || state == 'Z' || state == 'X')
        return PSC_PROCESS_GONE;
    return state == 'T' ? PSC_PROCESS_STOPPED : PSC_PROCESS_LIVES;
}
