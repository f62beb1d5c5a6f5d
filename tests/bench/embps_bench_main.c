/*
 * The program embps-bench: chooses the benchmark, prints its error once, exits with its code.
 *
 * Each sub-command measures one part against what this machine could do at best, in one process
 * or, where the wire is measured, in two; comparisons with whole programs of others are the scripts
 * beside it.
 */
#include "common/log.h"
#include "common/output.h"
#include "tests/bench/bench_commands.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    psc_status_t (*run)(int argc, char *const argv[], psc_error_t *error);
    const char *summary;
} commands[] = {
    {"kernel", bench_kernel, "the arithmetic of training, on one core"},
    {"store", bench_store, "the row store beside a plain array and raw RocksDB, on one core"},
    {"batch", bench_batch, "what a client does to a batch, beside a copy of its rows"},
    {"cache", bench_cache, "what a client's cache costs, beside an array of the same rows"},
    {"wire", bench_wire, "pulls and pushes between two ranks beside plain MPI and redis"},
    {"door", bench_door, "pulls and pushes by address, beside bare calls of gRPC's core"},
    {"watch", bench_watch, "pushes by address while their table is watched, or is not"},
    {"pulls", bench_pulls, "so many pulls from a server that runs, for tools that look at it"},
    {"pages", bench_pages, "what a read costs by the pages that reads are spread over"},
    {"grow", bench_grow, "the row store while its table outgrows its memory"},
};
enum { N_COMMANDS = sizeof commands / sizeof commands[0] };

static void print_help(void)
{
    (void)printf("embps-bench - measures parts of embps on this machine\n\n"
                 "usage: embps-bench COMMAND [options]\n\n");
    for (size_t k = 0; k < N_COMMANDS; k++)
        (void)printf("  %-10s%s\n", commands[k].name, commands[k].summary);
    (void)printf("\nembps-bench COMMAND --help tells the options of a command.\n");
}

int main(int argc, char *argv[])
{
    psc_log_set_level(PSC_LOG_WARN);
    if (argc >= 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "help") == 0)) {
        print_help();
        return psc_output_end(EXIT_SUCCESS);
    }
    if (argc >= 2 && strcmp(argv[1], "--version") == 0) {
        (void)printf("embps-bench %s\n", EMBPS_VERSION);
        return psc_output_end(EXIT_SUCCESS);
    }
    for (size_t k = 0; argc >= 2 && k < N_COMMANDS; k++) {
        if (strcmp(argv[1], commands[k].name) != 0)
            continue;
        psc_error_t error = PSC_ERROR_INIT;
        psc_status_t st = commands[k].run(argc - 1, argv + 1, &error);
        if (st != PSC_OK)
            psc_log(PSC_LOG_ERROR, "%s", error.message);
        return psc_output_end((int)st);
    }
    if (argc >= 2)
        psc_log(PSC_LOG_ERROR, "no command \"%s\"; embps-bench --help lists them", argv[1]);
    else
        psc_log(PSC_LOG_ERROR, "no command given; embps-bench --help lists them");
    return PSC_INVALID_ARGUMENT;
}
