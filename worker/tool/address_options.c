/*
 * Options and connection of the sub-commands that talk to servers. They are clients like any other,
 * over embps.h alone. One thread.
 */
#include "worker/tool/address_options.h"

#include "common/log.h"

static const psc_option_t option_table[] = {
    {.name = "wait",
     .argument = "SECONDS",
     .type = PSC_OPTION_U64,
     .offset = offsetof(psw_address_options_t, wait_s),
     .min = 0,
     .max = 1000000,
     .default_value = "5",
     .help = "How long servers may take until they are there and have answered."},
    {.name = "json",
     .type = PSC_OPTION_FLAG,
     .offset = offsetof(psw_address_options_t, json),
     .help = "Print JSON instead of text."},
};

psc_status_t psw_import_error(const embps_error_t *from, psc_error_t *error)
{
    const psc_status_t st = psc_status_from_number((uint32_t)from->code);
    (void)psc_error_set(error, st, "%s", from->message);
    if (error != NULL) {
        error->rank = from->rank;
        error->id = from->id;
    }
    return st;
}

static void say(void *context, const char *line)
{
    (void)context;
    psc_log(PSC_LOG_WARN, "%s", line);
}

psc_status_t psw_visit(const psc_command_t *command, int argc, char *const argv[], size_t n_words,
                       psw_visit_fn fn, psc_error_t *error)
{
    psw_visit_t visit = {.client = NULL};
    psc_parse_result_t parsed;
    psc_command_t with_options = *command;
    with_options.options = option_table;
    with_options.n_options = sizeof option_table / sizeof option_table[0];
    psc_status_t st = psc_options_parse(&with_options, argc, argv, &visit.options, &visit.words,
                                        NULL, &parsed, error);
    if (st != PSC_OK || parsed == PSC_PARSE_EXIT)
        return st;
    if (visit.words.n < n_words)
        return psc_error_set(error, PSC_INVALID_ARGUMENT, "%s: wants %s; see %s --help",
                             command->name, command->operands, command->name);
    embps_connect_options_t options = EMBPS_CONNECT_OPTIONS_DEFAULT;
    embps_error_t what;
    options.wait_ms = (uint32_t)(visit.options.wait_s * 1000);
    options.waiting = say;
    if (embps_connect(visit.words.items[0], &options, &visit.client, &what) != 0)
        return psw_import_error(&what, error);
    st = fn(&visit, error);
    if (embps_close(visit.client, &what) != 0 && st == PSC_OK)
        st = psw_import_error(&what, error);
    return st;
}
