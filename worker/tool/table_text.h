/*
 * The options of a table as JSON, and back: all that a server needs to make the same table.
 */
#ifndef WORKER_TOOL_TABLE_TEXT_H
#define WORKER_TOOL_TABLE_TEXT_H

#include "common/status.h"
#include "embps.h"

#include <jansson.h>

/* An object; numbers of 64 bits are texts. NULL: no memory. Gives. */
json_t *psw_table_text_write(const embps_table_options_t *options);

/* Borrows from object, and for as long. What it does not say has its default. Errors: CORRUPT (an
 * option of another kind, or a number out of range, named). */
PSC_MUST_CHECK psc_status_t psw_table_text_read(const json_t *object,
                                                embps_table_options_t *options_out,
                                                psc_error_t *error);

/* The options of a table of a client's servers, as they told them: like psw_table_text_write.
 * Errors: NOT_FOUND, those of embps_tables, NO_MEMORY. Gives. */
PSC_MUST_CHECK psc_status_t psw_table_text_find(embps_client_t *client, const char *name,
                                                json_t **object_out, psc_error_t *error);

#endif
