/*
 * embps-sim: simulations from seeds, each in a process of its own, several at once.
 */
#include "tests/sim/sim_world.h"

#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { JOBS_MAX = 64 };

static const char usage[] =
    "Usage: embps-sim [--seed N | --seeds A-B] [--jobs J] [--twice] [--verbose]\n"
    "Runs servers and clients in a simulated world, where messages, processes and disks fail in\n"
    "ways that follow from a seed, and checks that nothing is lost or counted twice.\n"
    "  --seed N     this one (default 1); its history is the same each time\n"
    "  --seeds A-B  all of these, each in a process of its own\n"
    "  --jobs J     so many processes at once (default 1)\n"
    "  --twice      each seed two times, whose histories must be the same\n"
    "  --verbose    prints the history\n"
    "Status 0: all is as it must be. Else the seed, what is wrong, the end of its history and how\n"
    "to replay it are printed. Files are made below TMPDIR (default /dev/shm).\n";

typedef struct options {
    uint64_t first, last;
    uint64_t jobs;
    bool many, twice, verbose;
} options_t;

/* What is known of a process that runs a seed. */
typedef struct place {
    pid_t pid; /* 0: free */
    uint64_t seed;
} place_t;

static bool read_number(const char *text, char stop, uint64_t *out, const char **rest_out)
{
    char *end;
    if (text[0] < '0' || text[0] > '9')
        return false;
    *out = strtoull(text, &end, 10);
    *rest_out = end;
    return *end == stop;
}

static bool parse(int argc, char *argv[], options_t *options)
{
    static const struct option known[] = {
        {"seed", required_argument, NULL, 's'}, {"seeds", required_argument, NULL, 'S'},
        {"jobs", required_argument, NULL, 'j'}, {"twice", no_argument, NULL, 't'},
        {"verbose", no_argument, NULL, 'v'},    {NULL, 0, NULL, 0}};
    const char *rest;
    bool fine = true;
    int option;
    *options = (options_t){.first = 1, .last = 1, .jobs = 1};
    while (fine && (option = getopt_long(argc, argv, "", known, NULL)) != -1) {
        if (option == 's') {
            fine = read_number(optarg, '\0', &options->first, &rest);
            options->last = options->first;
        } else if (option == 'S') {
            options->many = true;
            fine = read_number(optarg, '-', &options->first, &rest) &&
                   read_number(rest + 1, '\0', &options->last, &rest) &&
                   options->first <= options->last;
        } else if (option == 'j') {
            fine = read_number(optarg, '\0', &options->jobs, &rest) && options->jobs != 0 &&
                   options->jobs <= JOBS_MAX;
        } else if (option == 't') {
            options->twice = true;
        } else if (option == 'v') {
            options->verbose = true;
        } else {
            fine = false;
        }
    }
    return fine && optind == argc;
}

static void print_result(uint64_t seed, const sim_result_t *r)
{
    printf("seed %" PRIu64 ": history %016" PRIx64 ", %.1f s simulated, %" PRIu64 " calls, %" PRIu64
           " ended by a loss, %" PRIu64 " starts, %" PRIu64 " kills, %" PRIu64
           " power cuts, %" PRIu64 " checkpoints at the end\n",
           seed, r->history, (double)r->simulated_us / 1e6, r->n_calls, r->n_told, r->n_starts,
           r->n_kills, r->n_power_cuts, r->n_checkpoints);
}

static pid_t start(const options_t *options, uint64_t seed, sim_result_t *result)
{
    (void)fflush(NULL);
    const pid_t pid = fork();
    if (pid == 0) {
        sim_run(seed, options->verbose, result);
        exit(EXIT_SUCCESS);
    }
    return pid;
}

static bool ended_well(uint64_t seed, int status)
{
    if (WIFSIGNALED(status))
        (void)fprintf(stderr,
                      "seed %" PRIu64 ": ended by signal %d\nreplay: embps-sim --seed %" PRIu64
                      " --verbose\n",
                      seed, WTERMSIG(status), seed);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* Waits for one of the processes. Its place is free then. False: it has failed. */
static bool wait_for_one(place_t *places, size_t n)
{
    int status;
    const pid_t pid = waitpid(-1, &status, 0);
    for (size_t i = 0; i < n; i++) {
        if (places[i].pid == pid) {
            places[i].pid = 0;
            return ended_well(places[i].seed, status);
        }
    }
    return false;
}

static size_t free_place(const place_t *places, size_t n)
{
    size_t i = 0;
    while (i < n && places[i].pid != 0)
        i++;
    return i;
}

static size_t count_running(const place_t *places, size_t n)
{
    size_t running = 0;
    for (size_t i = 0; i < n; i++)
        running += places[i].pid != 0;
    return running;
}

/* Runs each seed in a process; stops at the first that fails. */
static bool run_all(const options_t *options, sim_result_t *results)
{
    place_t places[JOBS_MAX] = {{0}};
    const size_t n = (size_t)options->jobs;
    bool fine = true;
    for (uint64_t seed = options->first; fine && seed <= options->last; seed++) {
        size_t at = free_place(places, n);
        if (at == n) {
            fine = wait_for_one(places, n);
            at = free_place(places, n);
        }
        places[at].seed = seed;
        places[at].pid = start(options, seed, &results[seed - options->first]);
    }
    while (count_running(places, n) != 0)
        fine = wait_for_one(places, n) && fine;
    return fine;
}

static void print_sums(const options_t *options, const sim_result_t *results)
{
    sim_result_t sum = {0};
    for (uint64_t i = 0; i <= options->last - options->first; i++) {
        sum.simulated_us += results[i].simulated_us;
        sum.n_calls += results[i].n_calls;
        sum.n_told += results[i].n_told;
        sum.n_starts += results[i].n_starts;
        sum.n_kills += results[i].n_kills;
        sum.n_power_cuts += results[i].n_power_cuts;
    }
    printf("seeds %" PRIu64 "-%" PRIu64 ": all well; %.0f s simulated, %" PRIu64 " calls, %" PRIu64
           " ended by a loss, %" PRIu64 " starts of servers, %" PRIu64 " kills, %" PRIu64
           " power cuts\n",
           options->first, options->last, (double)sum.simulated_us / 1e6, sum.n_calls, sum.n_told,
           sum.n_starts, sum.n_kills, sum.n_power_cuts);
}

static sim_result_t *shared_results(const options_t *options)
{
    const size_t n = (size_t)(options->last - options->first) + 1;
    void *results = mmap(NULL, n * sizeof(sim_result_t), PROT_READ | PROT_WRITE,
                         MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return results != MAP_FAILED ? results : NULL;
}

int main(int argc, char *argv[])
{
    options_t options;
    if (argc == 2 && strcmp(argv[1], "--help") == 0)
        return fputs(usage, stdout) < 0;
    if (!parse(argc, argv, &options)) {
        (void)fputs(usage, stderr);
        return 2;
    }
    if (getenv("TMPDIR") == NULL && access("/dev/shm", W_OK) == 0)
        (void)setenv("TMPDIR", "/dev/shm", 1);
    sim_result_t *results = shared_results(&options);
    if (results == NULL || !run_all(&options, results))
        return EXIT_FAILURE;
    if (options.twice) {
        sim_result_t *again = shared_results(&options);
        if (again == NULL || !run_all(&options, again))
            return EXIT_FAILURE;
        for (uint64_t i = 0; i <= options.last - options.first; i++) {
            if (results[i].history != again[i].history) {
                (void)fprintf(stderr,
                              "seed %" PRIu64 " has two histories: %016" PRIx64 " and %016" PRIx64
                              "\n",
                              options.first + i, results[i].history, again[i].history);
                return EXIT_FAILURE;
            }
        }
    }
    if (!options.many)
        print_result(options.first, &results[0]);
    else
        print_sums(&options, results);
    return EXIT_SUCCESS;
}
