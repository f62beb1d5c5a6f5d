/*
 * What the sub-commands have in common that talk to servers: their options, the connection, errors.
 */
#ifndef WORKER_TOOL_ADDRESS_OPTIONS_H
#define WORKER_TOOL_ADDRESS_OPTIONS_H

#include "common/options.h"
#include "embps.h"

typedef struct psw_address_options {
    uint64_t wait_s;
    const char *tls_ca, *tls_cert, *tls_key, *token_file; /* NULL: none */
    bool plain_text;
    bool json;
} psw_address_options_t;

/* A connection, and the words of the command line. */
typedef struct psw_visit {
    psw_address_options_t options;
    psc_option_list_t words;
    const void *own; /* the sub-command's own options */
    embps_client_t *client;
} psw_visit_t;

typedef psc_status_t (*psw_visit_fn)(const psw_visit_t *visit, psc_error_t *error);

/*
 * Parses the command line, whose first word is an address, connects, calls fn and closes the
 * connection; fn is not called where help is all that is wanted. command: without options, which
 * are those of psw_address_options_t, and with min_operands > 0. Says on standard error whom
 * it waits for. Errors: INVALID_ARGUMENT, those of embps_connect, of fn and of embps_close.
 */
PSC_MUST_CHECK psc_status_t psw_visit(const psc_command_t *command, int argc, char *const argv[],
                                      psw_visit_fn fn, psc_error_t *error);

/* Own options of a sub-command, at most. */
#define PSW_OWN_OPTIONS_MAX 16u

/*
 * The same for a sub-command with options of its own, which are those of command: values is their
 * struct, of which the first member is a psw_address_options_t.
 */
PSC_MUST_CHECK psc_status_t psw_visit_with(const psc_command_t *command, void *values, int argc,
                                           char *const argv[], psw_visit_fn fn, psc_error_t *error);

/* Its parts: the command line (*go_on_out false: help is all that is wanted); then the connection.
 */
PSC_MUST_CHECK psc_status_t psw_visit_parse(const psc_command_t *command, void *values, int argc,
                                            char *const argv[], psw_visit_t *visit_out,
                                            bool *go_on_out, psc_error_t *error);
PSC_MUST_CHECK psc_status_t psw_visit_address(psw_visit_t *visit, const char *address,
                                              psw_visit_fn fn, psc_error_t *error);

/* A table that exists. Errors: those of embps_table_find. */
PSC_MUST_CHECK psc_status_t psw_visit_table(const psw_visit_t *visit, const char *name,
                                            embps_table_t **table_out, psc_error_t *error);

#endif
