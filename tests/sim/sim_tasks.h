/*
 * Tasks, processes and time of a simulation: everything runs on one thread, in an order that
 * follows from a seed.
 *
 * What the product takes for threads are tasks with stacks of their own: pthread_create and its
 * like, queues, clocks, sleeps and random numbers are wrapped when embps-sim is linked
 * (CMakeLists.txt). A task runs until it waits; time goes on when nothing else is due.
 *
 *     sim_tasks_begin(seed);
 *     sim_task_start(&process, run, argument);
 *     sim_at(when_us, fn, context);
 *     while (sim_step(until_us))
 *         ;
 *     sim_tasks_end();
 */
#ifndef TESTS_SIM_SIM_TASKS_H
#define TESTS_SIM_SIM_TASKS_H

#include "tests/support/test_seed.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A process: what its tasks do has no effect any more once it is dead, and they run on until they
 * have ended, as fast as they can. */
typedef struct sim_process {
    char label[32];
    bool dead;
    uint64_t dead_us;          /* how far its clock has run on since */
    uint64_t stopped_until_us; /* SIGSTOP; 0: none */
    uint64_t files_left;       /* changes of files after which it is killed; 0: it is not */
    uint64_t disk_us;          /* what a change of a file takes at most */
    uint32_t disk_faults;      /* of 1,000 changes of files */
    size_t n_tasks;            /* that have not ended */
    void *owner;
} sim_process_t;

typedef struct sim_task sim_task_t;

void sim_tasks_begin(uint64_t seed);
/* All tasks have ended. */
void sim_tasks_end(void);

/* Microseconds since some day; never 0. */
uint64_t sim_now(void);
uint64_t sim_below(uint64_t n); /* n > 0 */
/* True once in n times on average; n 0: never. */
bool sim_one_in(uint64_t n);

sim_task_t *sim_task_start(sim_process_t *process, void (*run)(void *argument), void *argument);
/* Of the running task; NULL outside of all of them. */
sim_process_t *sim_current(void);
/* In a task: others run, and it goes on at that time, or when it is woken. */
void sim_wait_until(uint64_t at_us);
sim_task_t *sim_task(void);
void sim_task_wake(sim_task_t *task, uint64_t at_us);

/* Calls fn at that time, outside of all tasks. */
void sim_at(uint64_t at_us, void (*fn)(void *context), void *context);

/* The next task or event before until_us. False: there is none, and it is that time now. */
bool sim_step(uint64_t until_us);

/* Nothing of it has an effect any more: returns when its tasks have ended. Outside of tasks. */
void sim_kill(sim_process_t *process);

/* ---- what happened ---- */

/* A line of the history, with the time in front. */
void sim_log(const char *format, ...) __attribute__((format(printf, 1, 2)));
void sim_set_verbose(bool verbose);
/* Whose name is another each time: the history has it as "...". Borrowed. */
void sim_set_folder(const char *folder);
/* Of all lines so far. */
uint64_t sim_history(void);
/* Says what is wrong, the end of the history and how to replay it; ends the program. */
void sim_fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

#define SIM_CHECK(condition)                                                                       \
    do {                                                                                           \
        if (!(condition))                                                                          \
            sim_fail("%s:%d: %s", __FILE__, __LINE__, #condition);                                 \
    } while (0)

#endif
