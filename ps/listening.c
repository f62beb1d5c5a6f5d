/*
 * Listening: what is checked before a port is opened, and what is told once it is.
 *
 * Whoever is let in can read and change all tables, or what his token allows. So an address that
 * is not this machine's own loopback needs certificates of the clients, or tokens over TLS, or
 * --plain-text, and is then logged as what it is. The port is opened before rows are loaded, so
 * that one in use ends the start at once, and other servers can be told where this one is; until
 * all of them have their rows, guests are told to wait.
 *
 * Signals are taken by a thread that waits for them (sigwaitinfo), not by a handler: nothing global
 * is needed, and nothing is cut off half done. To end that thread it is sent one of them. SIGUSR1
 * asks for a checkpoint; one whose sender started this process group is of mpirun, which passes it
 * on to all ranks. The others end a server, also SIGUSR2, since mpirun passes that on at once and
 * without a limit of time.
 */
#include "ps/listening.h"

#include "common/alloc.h"
#include "common/file.h"
#include "common/log.h"
#include "common/process_state.h"
#include "common/stop_signals.h"
#include "proto/grpc/grpc_server.h"
#include "proto/grpc/listen_address.h"

#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

psc_status_t ps_listening_open(const ps_server_arguments_t *arguments, uint32_t rank,
                               psp_pool_t *pool, psp_transport_t *wake_also,
                               psp_transport_t **door_out, psc_error_t *error)
{
    psp_listen_address_t address;
    char text[PSP_ADDRESS_MAX + 1];
    psc_status_t st = psp_listen_address_parse(arguments->listen, &address, error);
    if (st != PSC_OK)
        return st;
    const bool tls = arguments->tls_cert != NULL, tokens = arguments->tokens != NULL;
    const bool open = !address.is_loopback && arguments->tls_client_ca == NULL && !(tls && tokens);
    if (open && !arguments->plain_text && tokens)
        return psc_error_set(error, PSC_INVALID_ARGUMENT,
                             "--listen %.200s can be reached from other machines, and tokens would "
                             "come to it in plain text: give --tls-cert and --tls-key as well, or "
                             "listen on 127.0.0.1, or say --plain-text",
                             arguments->listen);
    if (open && !arguments->plain_text)
        return psc_error_set(error, PSC_INVALID_ARGUMENT,
                             "--listen %.200s can be reached from other machines, by anybody: give "
                             "--tls-client-ca as well, or --tokens over TLS, or listen on "
                             "127.0.0.1, or say --plain-text",
                             arguments->listen);
    const uint32_t port = address.port != 0 ? address.port + rank : 0;
    if (port > 65535)
        return psc_error_set(error, PSC_INVALID_ARGUMENT,
                             "server %" PRIu32 " would listen on port %" PRIu32
                             ": each server takes the port of --listen plus its rank",
                             rank, port);
    psp_listen_address_text(&address, port, text, sizeof text);
    psp_door_options_t options = PSP_DOOR_OPTIONS_DEFAULT;
    options.listen = text;
    options.wake_also = wake_also;
    options.checksums = arguments->checksums;
    options.tls = (psp_door_tls_t){.cert = arguments->tls_cert,
                                   .key = arguments->tls_key,
                                   .client_ca = arguments->tls_client_ca};
    options.tokens = arguments->tokens;
    options.not_yet = "the server is starting: it loads its rows";
    st = psp_door_open(&options, pool, door_out, error);
    const char *danger = !open    ? "guests wait until the rows are there"
                         : tokens ? "whoever is on the way can read tokens and what they open"
                                  : "whoever reaches it may do anything";
    if (st == PSC_OK)
        psc_log(open ? PSC_LOG_WARN : PSC_LOG_INFO, "opens %s: %s", psp_door_address(*door_out),
                danger);
    return st;
}

void ps_listening_begin(const ps_server_arguments_t *arguments, psp_transport_t *door)
{
    const char *how = arguments->tls_cert == NULL        ? "in plain text"
                      : arguments->tls_client_ca == NULL ? "with TLS"
                                                         : "with TLS of both sides";
    psp_door_serve(door);
    psc_log(PSC_LOG_INFO, "listens on %s %s%s", psp_door_address(door), how,
            arguments->tokens != NULL ? ", for who has a token" : "");
}

psc_status_t ps_listening_split(const char *text, const size_t *sizes, uint32_t n,
                                const char ***addresses_out, psc_error_t *error)
{
    size_t total = 0;
    uint32_t n_listen = 0;
    for (uint32_t i = 0; i < n; i++) {
        total += sizes[i] + 1;
        n_listen += sizes[i] != 0;
    }
    *addresses_out = NULL;
    if (n_listen == 0)
        return PSC_OK;
    if (n_listen != n)
        return psc_error_set(error, PSC_INVALID_ARGUMENT,
                             "%" PRIu32 " of %" PRIu32 " servers listen: give --listen to all of "
                             "them, or to none",
                             n_listen, n);
    const char **addresses = psc_alloc(n * sizeof(char *) + total);
    if (addresses == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "out of memory for addresses");
    char *place = (char *)(addresses + n);
    for (uint32_t i = 0; i < n; i++) {
        memcpy(place, text, sizes[i]);
        place[sizes[i]] = '\0';
        addresses[i] = place;
        place += sizes[i] + 1;
        text += sizes[i];
    }
    *addresses_out = addresses;
    return PSC_OK;
}

psc_status_t ps_listening_write(const char *path, const char *const *addresses, uint32_t n,
                                psc_error_t *error)
{
    const size_t room = (size_t)n * (PSP_ADDRESS_MAX + 16);
    size_t size = 0;
    char *text = psc_alloc(room);
    if (text == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "out of memory for addresses");
    for (uint32_t i = 0; i < n; i++)
        size += (size_t)snprintf(text + size, room - size, "%s\n", addresses[i]);
    psc_status_t st = psc_file_write(path, text, size, error);
    psc_free(text);
    return st;
}

/* ---- signals ---- */

struct ps_signal_watch {
    ps_server_t *server;
    bool ends; /* whether those of psc_stop_signals do */
    pthread_t thread;
    atomic_bool over;
};

static void all_signals(sigset_t *set)
{
    psc_stop_signals(set);
    (void)sigaddset(set, SIGUSR1);
}

void ps_signals_block(void)
{
    struct sigaction usual = {.sa_handler = SIG_DFL};
    sigset_t set;
    (void)sigemptyset(&usual.sa_mask);
    all_signals(&set);
    (void)sigaction(SIGUSR1, &usual, NULL); /* one that is ignored does not wait */
    (void)sigaction(SIGUSR2, &usual, NULL);
    (void)pthread_sigmask(SIG_BLOCK, &set, NULL);
}

static void *take_signals(void *context)
{
    ps_signal_watch_t *watch = context;
    siginfo_t from;
    sigset_t set;
    all_signals(&set);
    while (!atomic_load(&watch->over)) {
        const int signal = sigwaitinfo(&set, &from);
        if (signal <= 0 || atomic_load(&watch->over))
            continue;
        if (signal == SIGUSR1)
            ps_server_ask(watch->server,
                          from.si_pid != 0 && from.si_pid == psc_process_group_parent());
        else if (watch->ends)
            ps_server_stop(watch->server);
    }
    return NULL;
}

psc_status_t ps_signals_watch(ps_server_t *server, bool ends, ps_signal_watch_t **watch_out,
                              psc_error_t *error)
{
    ps_signal_watch_t *watch = psc_alloc_zeroed(1, sizeof *watch);
    if (watch == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "out of memory");
    watch->server = server;
    watch->ends = ends;
    int failed = pthread_create(&watch->thread, NULL, take_signals, watch);
    if (failed != 0) {
        psc_free(watch);
        return psc_error_set_errno(error, failed, "no thread that waits for signals");
    }
    *watch_out = watch;
    return PSC_OK;
}

void ps_signals_unwatch(ps_signal_watch_t *watch)
{
    if (watch == NULL)
        return;
    atomic_store(&watch->over, true);
    (void)pthread_kill(watch->thread, SIGUSR2);
    (void)pthread_join(watch->thread, NULL);
    psc_free(watch);
}
