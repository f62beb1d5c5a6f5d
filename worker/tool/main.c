/* The tool `embps`: chooses the sub-command, prints its error once, exits with its code. */
#include "common/log.h"
#include "common/output.h"
#include "worker/tool/commands.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    psc_status_t (*run)(int argc, char *const argv[], psc_error_t *error);
    const char *summary;
} commands[] = {
    {"nearest", psw_tool_nearest, "nearest words of words, in a file or a live table"},
    {"analogy", psw_tool_analogy, "A is to B as C is to what?"},
    {"eval", psw_tool_eval, "similarity and analogy tests of a vector file"},
    {"plan", psw_tool_plan, "memory and disk that a table will take"},
    {"status", psw_tool_status, "how running servers fare"},
    {"tables", psw_tool_tables, "tables of running servers"},
    {"get", psw_tool_get, "rows of running servers"},
    {"stats", psw_tool_stats, "all counters of running servers"},
    {"checkpoint", psw_tool_checkpoint, "makes one, or looks at a folder of them"},
    {"verify", psw_tool_verify, "the data directory of servers that do not run"},
    {"top", psw_tool_top, "what running servers do, again and again"},
    {"export", psw_tool_export, "a table of running servers to a file"},
    {"import", psw_tool_import, "a file into a table of running servers"},
};
enum { N_COMMANDS = sizeof commands / sizeof commands[0] };

static void print_help(void)
{
    (void)printf("embps - looks at word vectors and running servers, and plans tables\n\nusage: "
                 "embps COMMAND [options]\n\n");
    for (size_t k = 0; k < N_COMMANDS; k++)
        (void)printf("  %-12s%s\n", commands[k].name, commands[k].summary);
    (void)printf("\nembps COMMAND --help tells the options of a command.\n");
}

int main(int argc, char *argv[])
{
    psc_log_set_level(PSC_LOG_WARN);
    if (argc >= 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "help") == 0)) {
        print_help();
        return psc_output_end(EXIT_SUCCESS);
    }
    if (argc >= 2 && strcmp(argv[1], "--version") == 0) {
        (void)printf("embps %s\n", EMBPS_VERSION);
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
        psc_log(PSC_LOG_ERROR, "no command \"%s\"; embps --help lists them", argv[1]);
    else
        psc_log(PSC_LOG_ERROR, "no command given; embps --help lists them");
    return PSC_INVALID_ARGUMENT;
}
