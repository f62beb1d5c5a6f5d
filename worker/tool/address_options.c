/*
 * Options and connection of the sub-commands that talk to servers. They are clients like any other,
 * over embps.h alone.
 *
 * The library calls what it is given by the names of embps.h (tls_ca). What it says while it
 * connects is told in the words of the command line (--tls-ca), and where it speaks of a file that
 * an option or the environment names, that comes first. One thread.
 */
#include "worker/tool/address_options.h"

#include "common/log.h"
#include "worker/programs/client_error.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define WORDS_BYTES 1024u

static const psc_option_t option_table[] = {
    {.name = "wait",
     .argument = "SECONDS",
     .type = PSC_OPTION_U64,
     .offset = offsetof(psw_address_options_t, wait_s),
     .min = 0,
     .max = 1000000,
     .default_value = "5",
     .help = "How long servers may take until they are there and have answered."},
    {.name = "tls-ca",
     .argument = "FILE",
     .type = PSC_OPTION_TEXT,
     .offset = offsetof(psw_address_options_t, tls_ca),
     .environment = "EMBPS_TLS_CA",
     .help = "Speak TLS: the authorities (PEM) of which one must have signed the servers' "
             "certificates."},
    {.name = "tls-cert",
     .argument = "FILE",
     .type = PSC_OPTION_TEXT,
     .offset = offsetof(psw_address_options_t, tls_cert),
     .environment = "EMBPS_CLIENT_TLS_CERT",
     .help = "With --tls-ca: the certificate to show, in PEM, where servers want one "
             "(--tls-client-ca)."},
    {.name = "tls-key",
     .argument = "FILE",
     .type = PSC_OPTION_TEXT,
     .offset = offsetof(psw_address_options_t, tls_key),
     .environment = "EMBPS_CLIENT_TLS_KEY",
     .help = "The private key of --tls-cert, in PEM."},
    {.name = "token-file",
     .argument = "FILE",
     .type = PSC_OPTION_TEXT,
     .offset = offsetof(psw_address_options_t, token_file),
     .environment = "EMBPS_TOKEN_FILE",
     .help = "A file with the token to show, for its owner's eyes alone (mode 600), where servers "
             "want one (--tokens)."},
    {.name = "plain-text",
     .type = PSC_OPTION_FLAG,
     .offset = offsetof(psw_address_options_t, plain_text),
     .help = "Send the token to another machine even without TLS, for all to read on the way."},
    {.name = "json",
     .type = PSC_OPTION_FLAG,
     .offset = offsetof(psw_address_options_t, json),
     .help = "Print JSON instead of text."},
};

enum { N_OPTIONS = sizeof option_table / sizeof option_table[0] };

/* Could this be within the name of a file or of an option? */
static bool is_of_name(const char *c)
{
    return isalnum((unsigned char)c[0]) || (c[0] != '\0' && strchr("_-/", c[0]) != NULL) ||
           (c[0] == '.' && isalnum((unsigned char)c[1]));
}

/* The option whose name in embps.h stands here as a whole word; NULL: none. */
static const psc_option_t *option_named(const char *said, const char *here)
{
    if (here != said && (is_of_name(here - 1) || here[-1] == '.'))
        return NULL;
    for (size_t i = 0; i < N_OPTIONS; i++) {
        const char *name = option_table[i].name;
        size_t n = 0;
        while (name[n] != '\0' && here[n] == (name[n] == '-' ? '_' : name[n]))
            n++;
        if (name[n] == '\0' && strchr(name, '-') != NULL && !is_of_name(here + n))
            return &option_table[i];
    }
    return NULL;
}

/* What the library said, with the names of the options. */
static void translate(const char *said, char words[WORDS_BYTES])
{
    size_t n = 0;
    for (const char *at = said; *at != '\0' && n < WORDS_BYTES - 1;) {
        const psc_option_t *option = option_named(said, at);
        if (option != NULL) {
            n += (size_t)snprintf(words + n, WORDS_BYTES - n, "--%s", option->name);
            at += strlen(option->name);
        } else {
            words[n++] = *at++;
        }
    }
    words[n < WORDS_BYTES ? n : WORDS_BYTES - 1] = '\0';
}

static void say(void *context, const char *line)
{
    char words[WORDS_BYTES];
    (void)context;
    translate(line, words);
    psc_log(PSC_LOG_WARN, "%s", words);
}

/* Is there the name of this file among the words? */
static bool speaks_of(const char *words, const char *path)
{
    const size_t length = strlen(path);
    for (const char *at = strstr(words, path); at != NULL; at = strstr(at + 1, path)) {
        if ((at == words || at[-1] == ' ') && strchr(" :,", at[length]) != NULL)
            return true;
    }
    return false;
}

/* Where such a file is named: "--tls-ca ca.pem: ", "EMBPS_TLS_CA=ca.pem: "; else nothing. */
static void name_option(const psw_address_options_t *options, const char *words, char *where,
                        size_t size)
{
    where[0] = '\0';
    for (size_t i = 0; i < N_OPTIONS && where[0] == '\0'; i++) {
        const psc_option_t *option = &option_table[i];
        if (option->type != PSC_OPTION_TEXT)
            continue;
        const char *path =
            *(const char *const *)(const void *)((const char *)options + option->offset);
        if (path == NULL || !speaks_of(words, path))
            continue;
        if (path == getenv(option->environment))
            (void)snprintf(where, size, "%s=%.120s: ", option->environment, path);
        else
            (void)snprintf(where, size, "--%s %.120s: ", option->name, path);
    }
}

/* Why there is no connection. */
static psc_status_t not_connected(const psw_visit_t *visit, const embps_error_t *why,
                                  psc_error_t *error)
{
    char words[WORDS_BYTES], where[WORDS_BYTES] = "";
    psc_error_t known = PSC_ERROR_INIT;
    psc_status_t st = psw_error_import(why, &known);
    translate(why->message, words);
    if (st == PSC_INVALID_ARGUMENT || st == PSC_NOT_FOUND || st == PSC_IO || st == PSC_CORRUPT)
        name_option(&visit->options, words, where, sizeof where);
    (void)psc_error_set(&known, st, "%s%s", where, words);
    known.rank = why->rank;
    if (error != NULL)
        *error = known;
    return st;
}

psc_status_t psw_visit_parse(const psc_command_t *command, void *values, int argc,
                             char *const argv[], psw_visit_t *visit_out, bool *go_on_out,
                             psc_error_t *error)
{
    psc_option_t options[PSW_OWN_OPTIONS_MAX + N_OPTIONS];
    psc_parse_result_t parsed;
    psc_command_t with_options = *command;
    PSC_BUG_ON(command->n_options > PSW_OWN_OPTIONS_MAX);
    if (command->n_options != 0)
        memcpy(options, command->options, command->n_options * sizeof options[0]);
    memcpy(options + command->n_options, option_table, sizeof option_table);
    with_options.options = options;
    with_options.n_options = command->n_options + N_OPTIONS;
    *visit_out = (psw_visit_t){.own = values};
    psc_status_t st = psc_options_parse(&with_options, argc, argv, values, &visit_out->words, NULL,
                                        &parsed, error);
    *go_on_out = st == PSC_OK && parsed != PSC_PARSE_EXIT;
    if (*go_on_out)
        memcpy(&visit_out->options, values, sizeof visit_out->options);
    return st;
}

psc_status_t psw_visit_address(psw_visit_t *visit, const char *address, psw_visit_fn fn,
                               psc_error_t *error)
{
    embps_connect_options_t options = EMBPS_CONNECT_OPTIONS_DEFAULT;
    embps_error_t what;
    options.wait_ms = (uint32_t)(visit->options.wait_s * 1000);
    options.waiting = say;
    options.tls_ca = visit->options.tls_ca;
    options.tls_cert = visit->options.tls_cert;
    options.tls_key = visit->options.tls_key;
    options.token_file = visit->options.token_file;
    options.plain_text = visit->options.plain_text;
    (void)setenv("GRPC_VERBOSITY", "NONE", 0); /* errors are said here, once */
    if (embps_connect(address, &options, &visit->client, &what) != 0)
        return not_connected(visit, &what, error);
    psc_status_t st = fn(visit, error);
    if (embps_close(visit->client, &what) != 0 && st == PSC_OK)
        st = psw_error_import(&what, error);
    return st;
}

psc_status_t psw_visit_with(const psc_command_t *command, void *values, int argc,
                            char *const argv[], psw_visit_fn fn, psc_error_t *error)
{
    psw_visit_t visit;
    bool go_on;
    psc_status_t st = psw_visit_parse(command, values, argc, argv, &visit, &go_on, error);
    if (st != PSC_OK || !go_on)
        return st;
    return psw_visit_address(&visit, visit.words.items[0], fn, error);
}

psc_status_t psw_visit(const psc_command_t *command, int argc, char *const argv[], psw_visit_fn fn,
                       psc_error_t *error)
{
    psw_address_options_t options;
    return psw_visit_with(command, &options, argc, argv, fn, error);
}

psc_status_t psw_visit_table(const psw_visit_t *visit, const char *name, embps_table_t **table_out,
                             psc_error_t *error)
{
    embps_error_t what;
    return embps_table_find(visit->client, name, table_out, &what) == 0
               ? PSC_OK
               : psw_error_import(&what, error);
}
