/*
 * A server that belongs to no job: embps-server --listen without mpirun.
 */
#ifndef PS_ALONE_H
#define PS_ALONE_H

#include "ps/server_options.h"

/* Whether this process was started as a rank of a job. */
bool ps_is_rank(void);

/*
 * Listens and serves until one of psc_stop_signals, which must be blocked (ps_signals_block), as
 * must SIGUSR1; then all rows are written. Writes the port file once it listens, and takes it away
 * in the end. Errors are logged. Returns the program's exit status.
 */
psc_status_t ps_alone_run(const ps_server_arguments_t *arguments);

#endif
