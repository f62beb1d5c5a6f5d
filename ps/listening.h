/*
 * What a server that listens needs beside its transport: the checks of what it was told, the
 * addresses of all servers, the file that says them, and what signals ask for.
 */
#ifndef PS_LISTENING_H
#define PS_LISTENING_H

#include "proto/transport.h"
#include "ps/server.h"
#include "ps/server_options.h"

/*
 * Opens the door where arguments->listen says, which refuses calls until ps_listening_begin;
 * server `rank` of a job takes the port plus rank, unless that is 0. wake_also: borrowed by the
 * transport; NULL: none. Errors: INVALID_ARGUMENT (no such address; one that others reach, without
 * --plain-text), IN_USE, IO, NO_MEMORY. Gives.
 */
PSC_MUST_CHECK psc_status_t ps_listening_open(const ps_server_arguments_t *arguments, uint32_t rank,
                                              psp_pool_t *pool, psp_transport_t *wake_also,
                                              psp_transport_t **door_out, psc_error_t *error);

/* The rows are there: the door takes calls. */
void ps_listening_begin(const ps_server_arguments_t *arguments, psp_transport_t *door);

/*
 * The addresses of n servers as they were gathered: text[0..], sizes[i] bytes each, not terminated.
 * *addresses_out: [n], NULL when no server listens; one block for psc_free. Errors:
 * INVALID_ARGUMENT (some listen, some do not), NO_MEMORY. Gives.
 */
PSC_MUST_CHECK psc_status_t ps_listening_split(const char *text, const size_t *sizes, uint32_t n,
                                               const char ***addresses_out, psc_error_t *error);

/* Writes n addresses to path, a line each, as a whole file. Errors: those of psc_file_write. */
PSC_MUST_CHECK psc_status_t ps_listening_write(const char *path, const char *const *addresses,
                                               uint32_t n, psc_error_t *error);

/*
 * SIGUSR1 asks a server for a checkpoint; those of psc_stop_signals end it, if `ends`, or else do
 * nothing. block: before any thread starts; they wait from then on. watch: a thread takes them,
 * until unwatch.
 */
void ps_signals_block(void);
typedef struct ps_signal_watch ps_signal_watch_t;
/* server: borrowed. Errors: NO_MEMORY, IO (no thread). Gives. */
PSC_MUST_CHECK psc_status_t ps_signals_watch(ps_server_t *server, bool ends,
                                             ps_signal_watch_t **watch_out, psc_error_t *error);
/* Takes; NULL is a no-op. */
void ps_signals_unwatch(ps_signal_watch_t *watch);

#endif
