/*
 * Reads /proc/PID/stat: "PID (NAME) STATE ...", where NAME may hold anything, so fields are counted
 * from the last parenthesis; STATE is the first behind it, the parent the second, the start time
 * the twentieth, and the fiftieth how a process ended that its parent has not waited for yet, as
 * waitpid tells it; 0 for who must not know.
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
#include <sys/wait.h>
#include <unistd.h>

#define PARENT_FIELD 2 /* behind the name, the state being 1 */
#define STARTED_FIELD 20
#define ENDED_FIELD 50

typedef struct found {
    char state;
    int32_t parent;
    uint64_t started;
    uint64_t ended; /* as waitpid tells it */
} found_t;

/* 0 and what it found, or errno. */
static int read_stat(int32_t pid, found_t *found_out)
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
            found_out->state = *word;
        if (field == PARENT_FIELD)
            found_out->parent = (int32_t)strtol(word, NULL, 10);
        if (field == STARTED_FIELD)
            found_out->started = strtoull(word, NULL, 10);
        if (field == ENDED_FIELD)
            found_out->ended = strtoull(word, NULL, 10);
    }
    return field >= STARTED_FIELD ? 0 : EINVAL;
}

psc_process_id_t psc_process_self(void)
{
    psc_process_id_t self = {.pid = (int32_t)getpid()};
    found_t found = {0};
    if (gethostname(self.host, sizeof self.host) != 0)
        self.host[0] = '\0';
    self.host[sizeof self.host - 1] = '\0';
    if (read_stat(self.pid, &found) == 0)
        self.started = found.started;
    return self;
}

psc_process_state_t psc_process_look(const psc_process_id_t *process, int *signal_out)
{
    char host[sizeof process->host];
    found_t found = {.state = 'R'};
    *signal_out = 0;
    if (gethostname(host, sizeof host) != 0)
        return PSC_PROCESS_LIVES;
    host[sizeof host - 1] = '\0';
    if (strcmp(host, process->host) != 0)
        return PSC_PROCESS_ELSEWHERE;
    if (process->started == 0)
        return PSC_PROCESS_LIVES;
    int failed = read_stat(process->pid, &found);
    if (failed == ENOENT || failed == ESRCH)
        return PSC_PROCESS_GONE;
    if (failed != 0)
        return PSC_PROCESS_LIVES;
    if (found.started != process->started)
        return PSC_PROCESS_GONE;
    if (found.state == 'Z' || found.state == 'X') {
        *signal_out = WTERMSIG((int)found.ended);
        return PSC_PROCESS_GONE;
    }
    return found.state == 'T' ? PSC_PROCESS_STOPPED : PSC_PROCESS_LIVES;
}

int32_t psc_process_group_parent(void)
{
    found_t found = {0};
    return read_stat((int32_t)getpgrp(), &found) == 0 ? found.parent : 0;
}
