/*
 * embps verify: whether the data directory of servers that do not run is whole.
 *
 * A line for each server, and one for each fault; the first fault is the exit status. Servers are
 * compared with the first: a directory from elsewhere does not fit. Servers that are not here are
 * told, and are no fault: each node may have its own DATA. Threads: none.
 */
#include "common/alloc.h"
#include "common/options.h"
#include "common/output.h"
#include "ps/data_check.h"
#include "worker/tool/commands.h"
#include "worker/tool/hit_output.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

typedef struct verify_options {
    uint64_t memory_bytes;
    bool json;
} verify_options_t;

static const psc_option_t option_table[] = {
    {.name = "memory",
     .argument = "BYTES",
     .type = PSC_OPTION_SIZE,
     .offset = offsetof(verify_options_t, memory_bytes),
     .min = (double)(8 << 20),
     .max = 0x1p50,
     .default_value = "64M",
     .help = "Memory for reading."},
    {.name = "json",
     .type = PSC_OPTION_FLAG,
     .offset = offsetof(verify_options_t, json),
     .help = "Print JSON instead of text."},
};

static const psc_command_t command = {
    .name = "embps verify",
    .synopsis = "DATA [options]",
    .summary = "Checks the data directory of servers that do not run.",
    .description =
        "DATA is what servers had as --data. All files and rows of those that were closed in order "
        "are read and compared with their checksums; what is damaged, missing, from elsewhere, "
        "of another release's format or still in use is named. What a server that was killed "
        "left is not to be trusted, nor is a copy that was made while one ran: what counts then is "
        "the newest whole checkpoint (embps checkpoint verify DIR), and with --durability push or "
        "sync the log behind it, which servers look through when they start. Nothing is changed.",
    .options = option_table,
    .n_options = sizeof option_table / sizeof option_table[0],
    .operands = "DATA",
    .min_operands = 1,
    .max_operands = 1,
    .examples = "embps verify tables",
};

typedef struct verifying {
    uint32_t rank;
    json_t *all, *faults; /* NULL: text */
    psc_error_t first;
} verifying_t;

static void take_fault(void *context, const psc_error_t *fault)
{
    verifying_t *verifying = context;
    psw_shown_t message;
    if (verifying->first.code == PSC_OK)
        verifying->first = *fault;
    if (verifying->faults != NULL)
        (void)json_array_append_new(verifying->faults,
                                    psw_json_text(fault->message, strlen(fault->message)));
    else
        (void)printf("server-%" PRIu32 ": %s\n", verifying->rank,
                     psw_show(fault->message, &message));
}

static void tell(verifying_t *verifying, const ps_data_found_t *found, bool whole)
{
    const ps_data_identity_t *identity = &found->identity;
    char run[20];
    psw_shown_t shown;
    (void)snprintf(run, sizeof run, "%016" PRIx64, identity->cluster);
    if (verifying->all != NULL) {
        (void)json_array_append_new(
            verifying->all,
            json_pack("{s:I, s:b, s:b, s:b, s:s, s:I, s:o, s:I, s:I, s:I, s:o}", "server",
                      (json_int_t)verifying->rank, "whole", whole, "clean", identity->clean, "copy",
                      found->is_copy, "run", run, "servers", (json_int_t)identity->n_servers,
                      "checkpoint",
                      psw_json_text(identity->checkpoint, strlen(identity->checkpoint)), "files",
                      (json_int_t)found->n_files, "bytes", (json_int_t)found->bytes, "rows",
                      (json_int_t)found->n_rows, "faults", verifying->faults));
        return;
    }
    if (!whole)
        return;
    (void)printf("server-%" PRIu32 " of %" PRIu32 ", run %s: whole; %zu files, %" PRIu64
                 " bytes, %" PRIu64 " rows%s%s%s\n",
                 verifying->rank, identity->n_servers, run, found->n_files, found->bytes,
                 found->n_rows, identity->checkpoint[0] != '\0' ? ", all of it in " : "",
                 psw_show(identity->checkpoint, &shown),
                 found->is_copy ? "; a copy, made when it was closed" : "");
}

/* Servers of the run that have no directory here. */
static void tell_missing(const ps_data_found_t *first, const uint32_t *ranks, size_t n)
{
    for (uint32_t rank = 0, i = 0; first->known && rank < first->identity.n_servers; rank++) {
        while (i < n && ranks[i] < rank)
            i++;
        if (i == n || ranks[i] != rank)
            (void)printf("server-%" PRIu32 " is not here\n", rank);
    }
}

static psc_status_t verify(const verify_options_t *options, const char *data, psc_error_t *error)
{
    uint32_t *ranks = NULL;
    size_t n = 0, n_faulty = 0, n_used = 0;
    ps_data_found_t first = {.known = false}, found;
    verifying_t verifying = {.all = options->json ? json_array() : NULL, .first = PSC_ERROR_INIT};
    psc_status_t st = ps_data_list(data, &ranks, &n, error);
    if (st != PSC_OK) {
        json_decref(verifying.all);
        return st;
    }
    for (size_t i = 0; i < n; i++) {
        psc_error_t fault = PSC_ERROR_INIT;
        verifying.rank = ranks[i];
        verifying.faults = options->json ? json_array() : NULL;
        psc_status_t of_server = ps_data_check(data, ranks[i], options->memory_bytes, take_fault,
                                               &verifying, &found, &fault);
        /* What a run with more servers left stays until one with as many comes. */
        if (first.known && found.known && ranks[i] < first.identity.n_servers &&
            ps_data_same_run(data, &first, &found, &fault) != PSC_OK) {
            take_fault(&verifying, &fault);
            of_server = fault.code;
        }
        if (!first.known && found.known)
            first = found;
        tell(&verifying, &found, of_server == PSC_OK);
        n_used += of_server == PSC_IN_USE;
        n_faulty += of_server != PSC_OK && of_server != PSC_IN_USE;
    }
    if (verifying.all == NULL)
        tell_missing(&first, ranks, n);
    psc_free(ranks);
    st = options->json ? psw_json_print(verifying.all, error) : psc_output_flush(error);
    if (st != PSC_OK || n_faulty + n_used == 0)
        return st;
    if (n_used == 0)
        return psc_error_set(error, verifying.first.code, "of %zu servers in %s %zu have faults", n,
                             data, n_faulty);
    if (n_faulty == 0)
        return psc_error_set(error, PSC_IN_USE, "of %zu servers in %s %zu are running: not checked",
                             n, data, n_used);
    return psc_error_set(error, verifying.first.code,
                         "of %zu servers in %s %zu have faults, and %zu are running: not checked",
                         n, data, n_faulty, n_used);
}

psc_status_t psw_tool_verify(int argc, char *const argv[], psc_error_t *error)
{
    verify_options_t options;
    psc_option_list_t words;
    psc_parse_result_t parsed;
    psc_status_t st =
        psc_options_parse(&command, argc, argv, &options, &words, NULL, &parsed, error);
    if (st != PSC_OK || parsed == PSC_PARSE_EXIT)
        return st;
    return verify(&options, words.items[0], error);
}
