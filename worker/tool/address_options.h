/*
 * What the sub-commands have in common that talk to servers: their options, the connection, errors.
 */
#ifndef WORKER_TOOL_ADDRESS_OPTIONS_H
#define WORKER_TOOL_ADDRESS_OPTIONS_H

#include "common/options.h"
#include "embps.h"

typedef struct psw_address_options {
    uint64_t wait_s;
    bool json;
} psw_address_options_t;

#define PSW_ADDRESS_OPTION_COUNT 2

/* Their table, over psw_address_options_t. */
extern const psc_option_t psw_address_option_table[PSW_ADDRESS_OPTION_COUNT];

/* A connection, and the words behind its address. */
typedef struct psw_visit {
    psw_address_options_t options;
    psc_option_list_t words;
    embps_client_t *client; /* NULL: nothing is to be done, help was printed */
} psw_visit_t;

/* Parses the command line, whose first word is an address, and connects; n_words: how many words
 * there must be at least. Says on standard error whom it waits for. Errors: INVALID_ARGUMENT, those
 * of embps_connect. psw_visit_end also after an error. */
PSC_MUST_CHECK psc_status_t psw_visit_begin(const psc_command_t *command, int argc,
                                            char *const argv[], size_t n_words, psw_visit_t *visit,
                                            psc_error_t *error);
/* Closes the connection. Returns st, or what went wrong in closing when that is PSC_OK. */
PSC_MUST_CHECK psc_status_t psw_visit_end(psw_visit_t *visit, psc_status_t st, psc_error_t *error);

/* An error of embps.h as one of ours; returns its code. */
psc_status_t psw_import_error(int code, const embps_error_t *from, psc_error_t *error);

#endif
