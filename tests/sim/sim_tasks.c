/*
 * Tasks are contexts (ucontext) that pass one thread on to each other, so nothing is ever at work
 * beside anything else, and a switch costs less than a microsecond. The product's own locks are
 * never held across one, since it holds none while it waits.
 *
 * Of two tasks or events that are due the one that was due earlier comes first, and then the one
 * that was scheduled earlier: every run of a seed is the same. What differs between seeds is how
 * long everything takes.
 *
 * A process that is killed cannot be taken off the stacks of its tasks. Instead all that it does
 * comes to nothing (sim_disk.c, sim_net.c), its waits return at once and its clock runs on, so that
 * it ends by itself; sim_kill does nothing else until it has.
 */
#include "tests/sim/sim_tasks.h"

#include "common/alloc.h"
#include "common/queue.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <ucontext.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#define WITH_ASAN 1
#else
#define WITH_ASAN 0
#endif

#define STACK_BYTES ((size_t)1 << 20)
#define BEGIN_US UINT64_C(1700000000000000)
#define NEVER UINT64_MAX
#define DEAD_CLOCK_US UINT64_C(200000) /* that a dead process's clock goes on at each look */
#define TAIL_LINES 120u
#define LINE_BYTES 240u
#define DEAD_STEPS 200000u

struct sim_task {
    sim_task_t *next; /* of all, or of the free ones */
    sim_process_t *process;
    ucontext_t context;
    void *stack;
    void (*run)(void *argument);
    void *(*thread)(void *argument); /* instead of run */
    void *argument;
    uint64_t due_us, order;
    const psc_queue_t *queue; /* that it waits for; NULL: none */
    bool is_thread, ended;
#if WITH_ASAN
    void *fake_stack;
#endif
};

typedef struct event {
    uint64_t at_us, order;
    void (*fn)(void *context);
    void *context;
} event_t;

static struct {
    uint64_t seed, now_us, order;
    test_random_t random;
    sim_task_t *tasks, *free_tasks;
    sim_task_t *running;
    ucontext_t outside;
    event_t *events;
    size_t n_events, room;
    bool verbose;
    const char *folder;
    uint64_t history;
    char tail[TAIL_LINES][LINE_BYTES];
    uint64_t n_lines;
#if WITH_ASAN
    const void *outside_stack;
    size_t outside_bytes;
    void *outside_fake;
#endif
} sim;

/* ---- the real ones, and those that are called in their place ---- */

int real_clock_gettime(clockid_t clock, struct timespec *time_out) __asm__("__real_clock_gettime");
int sim_clock_gettime(clockid_t clock, struct timespec *time_out) __asm__("__wrap_clock_gettime");
int sim_nanosleep(const struct timespec *time, struct timespec *left) __asm__("__wrap_nanosleep");
ssize_t sim_getrandom(void *bytes, size_t n, unsigned flags) __asm__("__wrap_getrandom");
int sim_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                       void *(*run)(void *argument),
                       void *argument) __asm__("__wrap_pthread_create");
int sim_pthread_join(pthread_t thread, void **result) __asm__("__wrap_pthread_join");
void real_queue_push(psc_queue_t *queue, psc_queue_node_t *node) __asm__("__real_psc_queue_push");
void sim_queue_push(psc_queue_t *queue, psc_queue_node_t *node) __asm__("__wrap_psc_queue_push");
void sim_queue_wake(psc_queue_t *queue) __asm__("__wrap_psc_queue_wake");
void sim_queue_wait(psc_queue_t *queue, uint64_t timeout_us) __asm__("__wrap_psc_queue_wait");

/* ---- time and chance ---- */

uint64_t sim_now(void)
{
    return sim.now_us;
}

uint64_t sim_below(uint64_t n)
{
    return test_next(&sim.random) % n;
}

bool sim_one_in(uint64_t n)
{
    return n != 0 && sim_below(n) == 0;
}

int sim_clock_gettime(clockid_t clock, struct timespec *time_out)
{
    (void)clock;
    uint64_t us = sim.now_us;
    sim_process_t *process = sim_current();
    if (process != NULL && process->dead)
        us += process->dead_us += DEAD_CLOCK_US;
    time_out->tv_sec = (time_t)(us / 1000000);
    time_out->tv_nsec = (long)(us % 1000000 * 1000);
    return 0;
}

int sim_nanosleep(const struct timespec *time, struct timespec *left)
{
    (void)left;
    sim_wait_until(sim.now_us + (uint64_t)time->tv_sec * 1000000 + (uint64_t)time->tv_nsec / 1000);
    return 0;
}

ssize_t sim_getrandom(void *bytes, size_t n, unsigned flags)
{
    (void)flags;
    for (size_t i = 0; i < n; i++)
        ((uint8_t *)bytes)[i] = (uint8_t)test_next(&sim.random);
    return (ssize_t)n;
}

/* ---- switching ---- */

sim_process_t *sim_current(void)
{
    return sim.running != NULL ? sim.running->process : NULL;
}

sim_task_t *sim_task(void)
{
    return sim.running;
}

/* Back to whoever called sim_step. */
static void leave(sim_task_t *task)
{
#if WITH_ASAN
    __sanitizer_start_switch_fiber(task->ended ? NULL : &task->fake_stack, sim.outside_stack,
                                   sim.outside_bytes);
#endif
    (void)swapcontext(&task->context, &sim.outside);
#if WITH_ASAN
    __sanitizer_finish_switch_fiber(task->fake_stack, &sim.outside_stack, &sim.outside_bytes);
#endif
}

static void enter(sim_task_t *task)
{
    sim.running = task;
#if WITH_ASAN
    __sanitizer_start_switch_fiber(&sim.outside_fake, task->stack, STACK_BYTES);
#endif
    (void)swapcontext(&sim.outside, &task->context);
#if WITH_ASAN
    __sanitizer_finish_switch_fiber(sim.outside_fake, NULL, NULL);
#endif
    sim.running = NULL;
}

static void begin_task(void)
{
    sim_task_t *task = sim.running;
#if WITH_ASAN
    __sanitizer_finish_switch_fiber(NULL, &sim.outside_stack, &sim.outside_bytes);
#endif
    if (task->thread != NULL)
        (void)task->thread(task->argument);
    else
        task->run(task->argument);
    task->ended = true;
    task->process->n_tasks--;
    for (;;)
        leave(task);
}

static sim_task_t *new_task(void)
{
    sim_task_t *task = sim.free_tasks;
    void *stack;
    if (task != NULL) {
        sim.free_tasks = task->next;
        stack = task->stack;
    } else {
        task = psc_alloc(sizeof *task);
        stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
        if (task == NULL || stack == MAP_FAILED)
            sim_fail("out of memory for a task");
    }
    *task = (sim_task_t){.stack = stack};
#if WITH_ASAN
    __asan_unpoison_memory_region(stack, STACK_BYTES);
#endif
    return task;
}

/* Apart, since getcontext might come back a second time. */
__attribute__((noinline)) static void make_context(ucontext_t *context, void *stack)
{
    (void)getcontext(context);
    context->uc_stack.ss_sp = stack;
    context->uc_stack.ss_size = STACK_BYTES;
    context->uc_link = NULL;
    makecontext(context, begin_task, 0);
}

static sim_task_t *add_task(sim_process_t *process)
{
    sim_task_t *task = new_task();
    task->process = process;
    task->due_us = sim.now_us;
    task->order = ++sim.order;
    process->n_tasks++;
    make_context(&task->context, task->stack);
    sim_task_t **end = &sim.tasks;
    while (*end != NULL)
        end = &(*end)->next;
    *end = task;
    return task;
}

sim_task_t *sim_task_start(sim_process_t *process, void (*run)(void *argument), void *argument)
{
    sim_task_t *task = add_task(process);
    task->run = run;
    task->argument = argument;
    return task;
}

void sim_wait_until(uint64_t at_us)
{
    sim_task_t *task = sim.running;
    SIM_CHECK(task != NULL);
    task->due_us = at_us;
    task->order = ++sim.order;
    leave(task);
}

void sim_task_wake(sim_task_t *task, uint64_t at_us)
{
    if (task->due_us > at_us) {
        task->due_us = at_us;
        task->order = ++sim.order;
    }
}

static void forget_task(sim_task_t *task)
{
    sim_task_t **at = &sim.tasks;
    while (*at != task)
        at = &(*at)->next;
    *at = task->next;
    task->next = sim.free_tasks;
    sim.free_tasks = task;
}

/* When it may go on. */
static uint64_t due(const sim_task_t *task)
{
    const sim_process_t *process = task->process;
    if (process->dead)
        return 0;
    return task->due_us > process->stopped_until_us ? task->due_us : process->stopped_until_us;
}

/* Those of one process, NULL: of all. */
static sim_task_t *next_task(const sim_process_t *process)
{
    sim_task_t *best = NULL;
    for (sim_task_t *task = sim.tasks; task != NULL; task = task->next) {
        if (task->ended || (process != NULL && task->process != process))
            continue;
        if (best == NULL || due(task) < due(best) ||
            (due(task) == due(best) && task->order < best->order))
            best = task;
    }
    return best;
}

static void run_task(sim_task_t *task)
{
    if (!task->process->dead) {
        const uint64_t due_us = due(task);
        sim.now_us = sim.now_us > due_us ? sim.now_us : due_us;
        sim.now_us += 1 + sim_below(4);
    }
    task->due_us = NEVER;
    enter(task);
    if (task->ended && !task->is_thread) /* threads are joined */
        forget_task(task);
}

/* ---- events ---- */

void sim_at(uint64_t at_us, void (*fn)(void *context), void *context)
{
    if (sim.n_events == sim.room) {
        sim.room = sim.room != 0 ? 2 * sim.room : 256;
        sim.events = psc_realloc_array(sim.events, sim.room, sizeof *sim.events);
        if (sim.events == NULL)
            sim_fail("out of memory for events");
    }
    sim.events[sim.n_events++] =
        (event_t){.at_us = at_us, .order = ++sim.order, .fn = fn, .context = context};
}

static event_t *next_event(void)
{
    event_t *best = NULL;
    for (size_t i = 0; i < sim.n_events; i++) {
        event_t *event = &sim.events[i];
        if (best == NULL || event->at_us < best->at_us ||
            (event->at_us == best->at_us && event->order < best->order))
            best = event;
    }
    return best;
}

bool sim_step(uint64_t until_us)
{
    sim_task_t *task = next_task(NULL);
    event_t *event = next_event();
    const uint64_t task_us = task != NULL ? due(task) : NEVER;
    const uint64_t event_us = event != NULL ? event->at_us : NEVER;
    if (task_us >= until_us && event_us >= until_us) {
        sim.now_us = until_us > sim.now_us ? until_us : sim.now_us;
        return false;
    }
    if (event != NULL && event_us <= task_us) {
        const event_t happens = *event;
        *event = sim.events[--sim.n_events];
        sim.now_us = event_us > sim.now_us ? event_us : sim.now_us;
        happens.fn(happens.context);
    } else if (task != NULL) {
        run_task(task);
    }
    return true;
}

void sim_kill(sim_process_t *process)
{
    sim_task_t *task;
    SIM_CHECK(sim.running == NULL);
    if (!process->dead)
        sim_log("%s is killed", process->label);
    process->dead = true;
    for (unsigned i = 0; process->n_tasks != 0; i++) {
        task = next_task(process);
        if (task == NULL || i == DEAD_STEPS)
            sim_fail("%s was killed and does not end", process->label);
        run_task(task);
    }
}

/* ---- threads and queues ---- */

int sim_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                       void *(*run)(void *argument), void *argument)
{
    (void)attributes;
    SIM_CHECK(sim.running != NULL);
    sim_task_t *task = add_task(sim.running->process);
    task->thread = run;
    task->argument = argument;
    task->is_thread = true;
    *thread = (pthread_t)(uintptr_t)task;
    return 0;
}

int sim_pthread_join(pthread_t thread, void **result)
{
    sim_task_t *task = (sim_task_t *)(uintptr_t)thread;
    (void)result;
    while (!task->ended)
        sim_wait_until(sim.now_us + 10);
    forget_task(task);
    return 0;
}

/* Whoever waits for the queue goes on. What a process's own threads do, files, takes time. */
static void notify(const psc_queue_t *queue)
{
    for (sim_task_t *task = sim.tasks; task != NULL; task = task->next) {
        const uint64_t slow_us = task->is_thread ? task->process->disk_us : 0;
        if (task->queue == queue && queue != NULL)
            sim_task_wake(task, sim.now_us + 1 + (slow_us != 0 ? sim_below(slow_us) : 0));
    }
}

void sim_queue_push(psc_queue_t *queue, psc_queue_node_t *node)
{
    real_queue_push(queue, node);
    notify(queue);
}

void sim_queue_wake(psc_queue_t *queue)
{
    notify(queue);
}

void sim_queue_wait(psc_queue_t *queue, uint64_t timeout_us)
{
    if (psc_queue_ready(queue))
        return;
    sim.running->queue = queue;
    sim_wait_until(timeout_us < NEVER - sim.now_us ? sim.now_us + timeout_us : NEVER);
    sim.running->queue = NULL;
}

/* ---- life ---- */

void sim_tasks_begin(uint64_t seed)
{
    sim.seed = seed;
    sim.random = (test_random_t){.key = psc_rng_stream(seed, 0, 0)};
    sim.now_us = BEGIN_US;
    sim.order = 0;
    sim.history = UINT64_C(0xcbf29ce484222325);
    sim.n_lines = 0;
    sim.folder = "";
}

void sim_tasks_end(void)
{
    SIM_CHECK(sim.tasks == NULL);
    while (sim.free_tasks != NULL) {
        sim_task_t *task = sim.free_tasks;
        sim.free_tasks = task->next;
        (void)munmap(task->stack, STACK_BYTES);
        psc_free(task);
    }
    psc_free(sim.events);
    sim.events = NULL;
    sim.n_events = sim.room = 0;
}

/* ---- what happened ---- */

void sim_set_verbose(bool verbose)
{
    sim.verbose = verbose;
}

void sim_set_folder(const char *folder)
{
    sim.folder = folder;
}

static void hide_folder(char *line)
{
    const size_t n = strlen(sim.folder);
    char *at;
    while (n >= 3 && (at = strstr(line, sim.folder)) != NULL) {
        memset(at, '.', 3);
        memmove(at + 3, at + n, strlen(at + n) + 1);
    }
}

uint64_t sim_history(void)
{
    return sim.history;
}

void sim_log(const char *format, ...)
{
    char *line = sim.tail[sim.n_lines++ % TAIL_LINES];
    const int n = snprintf(line, LINE_BYTES, "%10.6f ", (double)(sim.now_us - BEGIN_US) / 1e6);
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(line + n, LINE_BYTES - (size_t)n, format, arguments);
    va_end(arguments);
    hide_folder(line);
    for (const char *c = line; *c != '\0'; c++)
        sim.history = (sim.history ^ (uint8_t)*c) * UINT64_C(0x100000001b3);
    if (sim.verbose)
        (void)fprintf(stderr, "%s\n", line);
}

void sim_fail(const char *format, ...)
{
    va_list arguments;
    const uint64_t first = sim.n_lines > TAIL_LINES ? sim.n_lines - TAIL_LINES : 0;
    (void)fprintf(stderr, "seed %llu: ", (unsigned long long)sim.seed);
    va_start(arguments, format);
    (void)vfprintf(stderr, format, arguments);
    va_end(arguments);
    (void)fprintf(stderr, "\n");
    for (uint64_t i = first; !sim.verbose && i < sim.n_lines; i++)
        (void)fprintf(stderr, "%s\n", sim.tail[i % TAIL_LINES]);
    (void)fprintf(stderr, "replay: embps-sim --seed %llu --verbose\n",
                  (unsigned long long)sim.seed);
    _Exit(1);
}
