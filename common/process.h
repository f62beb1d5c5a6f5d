/*
 * The only global mutable state of the project: what a program sets once, before it starts threads.
 * (proto/grpc/grpc_layer.c has one number more, which process uses gRPC: a child after a fork has
 * no handle that could tell it; worker/tool/export_table.c the name of a file that a handler of
 * signals removes.)
 *
 * The abort hook is how one rank stops all of them (MPI_Abort in a job; plain exit otherwise). The
 * label ("server 1", "worker 0") stands in front of every log line.
 */
#ifndef COMMON_PROCESS_H
#define COMMON_PROCESS_H

#include "common/status.h"

typedef void (*psc_abort_fn)(int exit_status);

/* Sets the hook; NULL means _exit. Call before threads start. */
void psc_process_set_abort(psc_abort_fn hook);

/* Copies label (at most 31 bytes). Call before threads start. */
void psc_process_set_label(const char *label);

/* The label, "" when none was set. Static. */
const char *psc_process_label(void);

/* Calls the hook with the code as exit status; does not return. Any thread. */
__attribute__((noreturn)) void psc_process_abort(psc_status_t code);

#endif
