/*
 * The sub-commands of the tool `embps`; each is a program of its own with its options.
 *
 * argv[0] is the name of the sub-command. Results go to standard output. Errors: INVALID_ARGUMENT
 * for the command line; NOT_FOUND for unknown words and tables; what reading files gives; what
 * embps_connect and pulls give, of those that talk to servers; IO or DISK_FULL when the output
 * could not be written.
 */
#ifndef WORKER_TOOL_COMMANDS_H
#define WORKER_TOOL_COMMANDS_H

#include "common/status.h"

PSC_MUST_CHECK psc_status_t psw_tool_nearest(int argc, char *const argv[], psc_error_t *error);
PSC_MUST_CHECK psc_status_t psw_tool_analogy(int argc, char *const argv[], psc_error_t *error);
PSC_MUST_CHECK psc_status_t psw_tool_eval(int argc, char *const argv[], psc_error_t *error);
PSC_MUST_CHECK psc_status_t psw_tool_plan(int argc, char *const argv[], psc_error_t *error);
PSC_MUST_CHECK psc_status_t psw_tool_status(int argc, char *const argv[], psc_error_t *error);
PSC_MUST_CHECK psc_status_t psw_tool_tables(int argc, char *const argv[], psc_error_t *error);
PSC_MUST_CHECK psc_status_t psw_tool_get(int argc, char *const argv[], psc_error_t *error);
PSC_MUST_CHECK psc_status_t psw_tool_checkpoint(int argc, char *const argv[], psc_error_t *error);
PSC_MUST_CHECK psc_status_t psw_tool_verify(int argc, char *const argv[], psc_error_t *error);
PSC_MUST_CHECK psc_status_t psw_tool_stats(int argc, char *const argv[], psc_error_t *error);
PSC_MUST_CHECK psc_status_t psw_tool_export(int argc, char *const argv[], psc_error_t *error);
PSC_MUST_CHECK psc_status_t psw_tool_import(int argc, char *const argv[], psc_error_t *error);
PSC_MUST_CHECK psc_status_t psw_tool_top(int argc, char *const argv[], psc_error_t *error);

#endif
