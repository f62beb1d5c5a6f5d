/* The options of a table as the public header has them. */
#ifndef WORKER_TABLE_OPTIONS_H
#define WORKER_TABLE_OPTIONS_H

#include "embps.h"
#include "proto/message.h"

/* Those that make the same table. *out borrows from `from`. */
void psw_table_options(const psp_open_table_t *from, embps_table_options_t *out);

#endif
