/*
 * embps-server: the server ranks of an mpirun job.
 *
 * Start, on every rank: options, MPI, roles, then the server is opened, then all ranks of both
 * roles agree whether everybody could start. Whatever failed on whichever rank, all stop with its
 * code and that rank alone says why; servers take away what they made. After that nothing is
 * collective until the end: a server that fails writes its status record, says so unless another
 * rank does, and aborts the job, since its share of the rows is gone for all. At the end servers
 * agree on how they closed.
 *
 * Where the script that started the job lets it live on when a worker is lost, the server looks at
 * the workers' processes: those of this machine itself; of others it hears signs of life, and finds
 * in the folder of the ranks' records what their host wrote when one ended. Servers tell each other
 * by notes. A job that lost somebody ends without MPI_Finalize, which would wait for the lost.
 *
 * SIGTERM, SIGINT and SIGHUP are for a whole job, and so is SIGUSR2, which mpirun passes on at once
 * and scripts/embps-run therefore sends. Servers ignore them: the workers stop, say goodbye, and so
 * let the servers end in order, with all rows written. SIGUSR1, which mpirun passes on as well,
 * asks servers with --checkpoints for one.
 *
 * A job of servers that listen needs no workers; then the former signals stop each server. Without
 * mpirun a server that listens is ps/alone.c's.
 *
 * Threads: this one, which alone calls MPI (the abort hook excepted), and the store's I/O thread;
 * until all ranks have come also one that says who has not, since this one then waits within MPI.
 * Memory outside of --memory is kept small: two malloc arenas, freed memory goes back early.
 */
#include "common/alloc.h"
#include "common/clock.h"
#include "common/log.h"
#include "common/output.h"
#include "common/process.h"
#include "common/run_status.h"
#include "common/ticker.h"
#include "proto/grpc/grpc_server.h"
#include "proto/joined_transport.h"
#include "proto/message.h"
#include "proto/mpi/mpi_transport.h"
#include "ps/alone.h"
#include "ps/listening.h"
#include "ps/server.h"
#include "ps/server_options.h"
#include "ps/start_watch.h"

#include <inttypes.h>
#include <malloc.h>
#include <mpi.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define POOL_KEEP_BYTES ((size_t)8 << 20)
#define TRIM_BYTES (1 << 20)
#define REPORT_WINDOW_US                                                                           \
    UINT64_C(300000) /* in which several servers may fail, e.g. of one full disk */
#define ABORT_WAIT_US UINT64_C(10000000)
#define START_LOOK_US UINT64_C(250000)
#define HEAR_US UINT64_C(50000)
#define RECORD_US UINT64_C(400000) /* between two looks for the record of a process */

/* What is known of a worker's process without seeing it. */
typedef struct remote {
    uint64_t beats; /* signs of life so far */
    uint64_t looked_us;
    bool ended; /* its host says so */
    int signal;
} remote_t;

typedef struct program {
    ps_server_arguments_t arguments;
    psp_mpi_job_t *job;
    psp_pool_t *pool;
    psp_transport_t *transport;
    ps_server_t *server;
    ps_surroundings_t surroundings;
    ps_fellows_t fellows;
    remote_t *remotes;        /* [n_workers] */
    uint64_t heard_us;        /* when signs of life were taken last */
    psp_transport_t *door;    /* of guests, until it is part of transport; NULL: none */
    psp_transport_t *guests;  /* the same, for as long as it lives */
    const char **addresses;   /* [n_servers] where they listen; NULL: they do not */
    ps_signal_watch_t *watch; /* of signals, where any of them is for servers */
    ps_start_watch_t start;   /* the ticker's */
    psc_ticker_t *ticker;     /* until all ranks have come */
} program_t;

/* Where the others live on, MPI_Abort ends this rank alone, and mpirun never notices its end. */
static void abort_job(int exit_status)
{
    if (!psc_run_recovers())
        (void)MPI_Abort(MPI_COMM_WORLD, exit_status);
    _exit(exit_status);
}

/* Where there may be no workers to leave them to, and where one asks for a checkpoint, the signals
 * wait to be asked for. */
static void put_signals_off(const ps_server_arguments_t *arguments)
{
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    (void)sigemptyset(&ignore.sa_mask);
    (void)sigaction(SIGPIPE, &ignore, NULL);
    if (arguments->listen != NULL || arguments->checkpoints != NULL) {
        ps_signals_block();
        return;
    }
    (void)sigaction(SIGTERM, &ignore, NULL);
    (void)sigaction(SIGINT, &ignore, NULL);
    (void)sigaction(SIGHUP, &ignore, NULL);
    (void)sigaction(SIGUSR1, &ignore, NULL);
    (void)sigaction(SIGUSR2, &ignore, NULL);
}

static void log_start(const program_t *program)
{
    psc_log(PSC_LOG_INFO,
            "server %" PRIu32 " of %" PRIu32 ", %" PRIu32 " workers, run %016" PRIx64
            ", data %s, memory %" PRIu64 " bytes",
            psp_mpi_job_rank(program->job), psp_mpi_job_n_servers(program->job),
            psp_mpi_job_n_workers(program->job), psp_mpi_job_cluster(program->job),
            program->arguments.data, program->arguments.memory_bytes);
    cpu_set_t cores;
    CPU_ZERO(&cores);
    if (sched_getaffinity(0, sizeof cores, &cores) == 0 && CPU_COUNT(&cores) < 2)
        psc_log(PSC_LOG_INFO, "bound to one core with two threads: where rows lie on disk, "
                              "mpirun --bind-to none or a wider binding is faster");
}

/* ---- the workers' processes, and the other servers ---- */

/* Takes the signs of life that have come: from whoever, so that none stay. */
static void hear_beats(program_t *program, uint64_t now_us)
{
    uint32_t from;
    if (now_us - program->heard_us < HEAR_US)
        return;
    program->heard_us = now_us;
    while (psp_mpi_job_take_beat(program->job, &from))
        program->remotes[from].beats++;
}

/* What the parent of a worker's process wrote when it ended. */
static bool has_ended(remote_t *remote, uint32_t worker, uint64_t now_us)
{
    if (!remote->ended && now_us - remote->looked_us >= RECORD_US) {
        remote->looked_us = now_us;
        remote->ended = psc_run_status_ended("worker", (int32_t)worker, &remote->signal);
    }
    return remote->ended;
}

static ps_sight_t look(void *context, uint32_t worker)
{
    program_t *program = context;
    remote_t *remote = &program->remotes[worker];
    ps_sight_t seen = {0};
    const uint64_t now_us = psc_clock_us();
    hear_beats(program, now_us);
    seen.state = psc_process_look(psp_mpi_job_worker_process(program->job, worker), &seen.signal);
    seen.beats = remote->beats;
    if (seen.state == PSC_PROCESS_ELSEWHERE && has_ended(remote, worker, now_us))
        seen.state = PSC_PROCESS_GONE;
    if (seen.state == PSC_PROCESS_GONE && seen.signal == 0 && has_ended(remote, worker, now_us))
        seen.signal = remote->signal;
    seen.told = seen.signal != 0 || remote->ended;
    return seen;
}

static void describe(void *context, uint32_t worker, char *text, size_t size)
{
    const program_t *program = context;
    const psc_process_id_t *process = psp_mpi_job_worker_process(program->job, worker);
    (void)snprintf(text, size, "host %s, process %d", process->host, (int)process->pid);
}

static void tell_servers(void *context, const ps_vote_t *vote)
{
    const program_t *program = context;
    (void)!psp_mpi_job_send_note(program->job, PSP_MPI_TO_ALL, PSP_MPI_NOTE_LOSS, vote,
                                 sizeof *vote);
}

static bool hear_server(void *context, ps_vote_t *vote_out, uint32_t *server_out)
{
    const program_t *program = context;
    return psp_mpi_job_take_note(program->job, PSP_MPI_NOTE_LOSS, vote_out, sizeof *vote_out,
                                 server_out);
}

/* Both of ps_fellows_t. */
static void tell_server(void *context, uint32_t server, const ps_round_word_t *word)
{
    const program_t *program = context;
    _Static_assert(sizeof *word <= PSP_MPI_NOTE_BYTES, "a word is a note");
    /* The others would wait for ever. */
    PSC_BUG_ON(
        !psp_mpi_job_send_note(program->job, server, PSP_MPI_NOTE_ROUND, word, sizeof *word));
}

static bool hear_word(void *context, ps_round_word_t *word_out, uint32_t *server_out)
{
    const program_t *program = context;
    return psp_mpi_job_take_note(program->job, PSP_MPI_NOTE_ROUND, word_out, sizeof *word_out,
                                 server_out);
}

static void log_resumed(const ps_server_t *server)
{
    const char *name = ps_server_resumed(server);
    if (name != NULL)
        psc_log(PSC_LOG_INFO, "goes on from %s, as run %016" PRIx64, name,
                ps_server_cluster(server));
}

static psc_status_t open_server(program_t *program, psc_error_t *error)
{
    program->surroundings = (ps_surroundings_t){.context = program,
                                                .look = look,
                                                .describe = describe,
                                                .tell_servers = tell_servers,
                                                .hear_server = hear_server};
    program->fellows = (ps_fellows_t){.context = program, .tell = tell_server, .hear = hear_word};
    const uint32_t n_workers = psp_mpi_job_n_workers(program->job);
    const ps_server_arguments_t *arguments = &program->arguments;
    program->remotes = psc_alloc_zeroed((size_t)n_workers + 1, sizeof *program->remotes);
    if (program->remotes == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "out of memory for %" PRIu32 " workers",
                             n_workers);
    ps_server_options_t options = {
        .data = program->arguments.data,
        .memory_bytes = program->arguments.memory_bytes,
        .cluster = psp_mpi_job_cluster(program->job),
        .rank = psp_mpi_job_rank(program->job),
        .n_servers = psp_mpi_job_n_servers(program->job),
        .n_workers = n_workers,
        .pool = program->pool,
        .direct = program->arguments.direct,
        /* Where mpirun ends a job that lost a rank there is nothing to watch for. */
        .surroundings = n_workers != 0 && psc_run_recovers() ? &program->surroundings : NULL,
        .on_loss = program->arguments.loss_rule,
        .stopped_us = (uint64_t)(program->arguments.worker_timeout_s * 1e6),
        .n_guests = program->door != NULL ? (uint32_t)arguments->guests : 0,
        .lease_us = (uint64_t)(arguments->lease_s * 1e6),
        .checkpoints = arguments->checkpoints,
        .resume = arguments->resume,
        .resets = arguments->reset_optimizer.items,
        .n_resets = arguments->reset_optimizer.n,
        .weights = arguments->weights,
        .read_only = arguments->read_only,
        .keep = arguments->keep,
        .checkpoint_every_us = (uint64_t)(arguments->checkpoint_every_s * 1e6),
        .durability = arguments->durability,
        /* Workers begin anew, at clock 0. */
        .same_run = n_workers == 0,
        .fellows = psp_mpi_job_n_servers(program->job) != 1 ? &program->fellows : NULL,
        .addresses = program->addresses,
    };
    psc_status_t st = ps_server_open(&options, &program->server, error);
    if (st == PSC_OK)
        log_resumed(program->server);
    if (st == PSC_OK && program->door != NULL) {
        st = psp_joined_create(program->transport, program->door, &program->transport, error);
        program->door = st == PSC_OK ? NULL : program->door;
    }
    return st;
}

/* Collective over the servers, whatever failed so far: when all of them have their rows, and not
 * before, guests are let in everywhere, and then it is written where. */
static void let_guests_in(program_t *program, psc_error_t *error)
{
    const ps_server_arguments_t *arguments = &program->arguments;
    psc_error_t of_all = *error; /* whoever failed says so itself, later */
    bool reporter;
    if (psp_mpi_job_agree(program->job, &of_all, &reporter) != PSC_OK)
        return;
    if (program->guests != NULL)
        ps_listening_begin(arguments, program->guests);
    psp_mpi_job_barrier(program->job);
    if (arguments->port_file != NULL && psp_mpi_job_rank(program->job) == 0 &&
        ps_listening_write(arguments->port_file, program->addresses,
                           psp_mpi_job_n_servers(program->job), error) == PSC_OK)
        error->code = PSC_OK;
}

/* What messages come by. */
static psc_status_t open_transports(program_t *program, psc_error_t *error)
{
    psc_status_t st = psp_pool_create(POOL_KEEP_BYTES, &program->pool, error);
    if (st == PSC_OK)
        st = psp_mpi_transport_create(program->job, program->pool, PSP_MAX_MESSAGE_BYTES,
                                      &program->transport, error);
    if (st == PSC_OK && program->arguments.listen != NULL)
        st = ps_listening_open(&program->arguments, psp_mpi_job_rank(program->job), program->pool,
                               program->transport, &program->door, error);
    program->guests = program->door;
    return st;
}

/* Collective over the servers, whatever failed so far: where they listen. */
static psc_status_t learn_addresses(program_t *program, psc_error_t *error)
{
    const char *own = program->door != NULL ? psp_door_address(program->door) : "";
    const uint32_t n = psp_mpi_job_n_servers(program->job);
    size_t *sizes = psc_alloc_array(n, sizeof *sizes);
    char *all = NULL;
    PSC_BUG_ON(sizes == NULL); /* the others would wait for ever */
    psc_status_t st = psp_mpi_job_gather(program->job, own, strlen(own), &all, sizes, error);
    if (st == PSC_OK)
        st = ps_listening_split(all, sizes, n, &program->addresses, error);
    psc_free(all);
    psc_free(sizes);
    return st;
}

/* What the options of one server say of checkpoints. As bytes of a message. */
typedef struct saving {
    uint64_t way;
    uint32_t checkpoints; /* 0: none; 1: it makes some; 2: its options are not known */
    uint32_t durability;
} saving_t;

/* Collective over the servers, whatever failed so far: all make checkpoints or none does, since
 * each waits for the parts of the others; what is acknowledged is as safe on each; and all go on in
 * the same way. failed: the own options are not known. */
static psc_status_t compare_checkpoints(program_t *program, bool failed, psc_error_t *error)
{
    const ps_server_arguments_t *arguments = &program->arguments;
    const saving_t own = {.way = failed ? 0 : ps_server_arguments_way(arguments),
                          .checkpoints = failed ? 2 : arguments->checkpoints != NULL,
                          .durability = (uint32_t)arguments->durability};
    const uint32_t n = psp_mpi_job_n_servers(program->job);
    size_t *sizes = psc_alloc_array(n, sizeof *sizes);
    char *all = NULL;
    uint32_t n_with = 0, n_without = 0, n_others = 0, n_ways = 0;
    PSC_BUG_ON(sizes == NULL); /* the others would wait for ever */
    psc_status_t st =
        psp_mpi_job_gather(program->job, (const char *)&own, sizeof own, &all, sizes, error);
    for (size_t i = 0; st == PSC_OK && i < n; i++) {
        saving_t other;
        memcpy(&other, all + i * sizeof other, sizeof other);
        n_with += other.checkpoints == 1;
        n_without += other.checkpoints == 0;
        n_others += other.checkpoints != 2 && !failed && other.durability != own.durability;
        n_ways += other.checkpoints != 2 && !failed && other.way != own.way;
    }
    psc_free(all);
    psc_free(sizes);
    if (st == PSC_OK && n_with != 0 && n_without != 0)
        st = psc_error_set(error, PSC_INVALID_ARGUMENT,
                           "%" PRIu32 " of %" PRIu32 " servers have --checkpoints: give it to all "
                           "of them, or to none",
                           n_with, n);
    if (st == PSC_OK && n_others != 0)
        st = psc_error_set(error, PSC_INVALID_ARGUMENT,
                           "%" PRIu32 " of %" PRIu32 " servers have another --durability than this "
                           "one: give the same to all of them",
                           n_others, n);
    if (st == PSC_OK && n_ways != 0)
        st = psc_error_set(error, PSC_INVALID_ARGUMENT,
                           "%" PRIu32 " of %" PRIu32 " servers are to go on from a checkpoint in "
                           "another way than this one: give the same --resume, "
                           "--reset-optimizer, --weights and --read-only to all of them",
                           n_ways, n);
    return st;
}

/* What was opened is put away; the server has been closed. */
static void close_rest(program_t *program)
{
    psp_transport_destroy(program->door);
    psp_transport_destroy(program->transport);
    psc_free(program->addresses);
    psp_pool_destroy(program->pool);
    psc_free(program->remotes);
    psp_mpi_job_destroy(program->job);
}

/* That of the first server, which wrote it when it had been opened. */
static void remove_port_file(const program_t *program)
{
    if (psp_mpi_job_rank(program->job) == 0 && program->arguments.port_file != NULL)
        (void)unlink(program->arguments.port_file);
}

/* All ranks start, or none. Returns the code that all ranks got. */
static psc_status_t start(program_t *program, psc_error_t *error)
{
    bool reporter = false;
    psc_status_t st = psp_mpi_job_agree_all(program->job, error, &reporter);
    if (st == PSC_OK) {
        if (psp_mpi_job_rank(program->job) == 0)
            psc_run_status_begin();
        return PSC_OK;
    }
    if (reporter)
        psc_log(PSC_LOG_ERROR, "%s", error->message);
    if (program->server != NULL)
        remove_port_file(program);
    psc_error_t left = PSC_ERROR_INIT;
    if (ps_server_close(program->server, true, true, &left) != PSC_OK)
        psc_log(PSC_LOG_WARN, "%s", left.message);
    psc_run_status_write("server", (int32_t)psp_mpi_job_rank(program->job), st, error->message);
    close_rest(program);
    return st;
}

/*
 * A failure while the job runs. One rank says it: if not this one, the job is about to be ended by
 * another.
 */
__attribute__((noreturn)) static void fail(const program_t *program, const psc_error_t *error)
{
    psc_run_status_write("server", (int32_t)psp_mpi_job_rank(program->job), error->code,
                         error->message);
    if (psp_mpi_job_claim_report(program->job, REPORT_WINDOW_US))
        psc_log(PSC_LOG_ERROR, "%s", error->message);
    else
        psc_clock_sleep_us(ABORT_WAIT_US);
    psc_process_abort(error->code);
}

/* Serves; on failure the whole job ends here. */
static psc_status_t serve(program_t *program)
{
    int32_t rank = (int32_t)psp_mpi_job_rank(program->job);
    psc_error_t error = PSC_ERROR_INIT;
    psc_status_t st = PSC_OK;
    const bool alone = psp_mpi_job_n_workers(program->job) == 0;
    if (alone || program->arguments.checkpoints != NULL)
        st = ps_signals_watch(program->server, alone, &program->watch, &error);
    if (st == PSC_OK)
        st = ps_server_run(program->server, program->transport, &error);
    if (st != PSC_OK)
        fail(program, &error);
    ps_signals_unwatch(program->watch);
    remove_port_file(program);
    psc_status_t worst = psc_status_from_number(ps_server_worst_status(program->server));
    const uint32_t n_lost = ps_server_lost(program->server);
    bool reporter = false;
    st = ps_server_close(program->server, false, false, &error);
    if (st == PSC_OK)
        error.code = PSC_OK;
    st = psp_mpi_job_agree(program->job, &error, &reporter);
    if (reporter && st != PSC_OK)
        psc_log(PSC_LOG_ERROR, "%s", error.message);
    else if (st == PSC_OK && worst != PSC_OK)
        st = psc_error_set(&error, worst, "a worker ended with: %s", psc_status_text(worst));
    if (st == PSC_PEER_GONE && n_lost != 0)
        (void)psc_error_set(&error, st, "%" PRIu32 " of the workers were lost", n_lost);
    psc_run_status_write("server", rank, st, error.message);
    if (n_lost != 0) { /* MPI_Finalize would wait for those who are gone */
        (void)fflush(NULL);
        _exit((int)st);
    }
    close_rest(program);
    return st;
}

/* ---- ranks that do not come ---- */

static uint32_t own_rank(void) /* MPI may not know it yet */
{
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");
    return rank != NULL ? (uint32_t)strtoul(rank, NULL, 10) : 0;
}

/* On the ticker's thread. At the limit this rank ends, and with it the job. */
static void look_for_ranks(void *context)
{
    ps_start_watch_t *watch = context;
    const uint64_t now_us = psc_clock_us();
    const unsigned long long waited_s = (now_us - watch->began_us) / 1000000;
    const ps_start_due_t due = ps_start_look(watch, now_us);
    /* Of a script's job the first server speaks for all; of others nobody knows which that is. */
    const bool speaks = own_rank() == 0 || getenv(PSC_SERVERS_VARIABLE) == NULL;
    char text[PS_START_TEXT_BYTES];
    psc_error_t error = PSC_ERROR_INIT;
    if (due == PS_START_NOTHING)
        return;
    ps_start_missing(text);
    if (due == PS_START_SAY) {
        psc_log(speaks ? PSC_LOG_WARN : PSC_LOG_INFO, "%s after %llu s: the job waits", text,
                waited_s);
        return;
    }
    (void)psc_error_set(&error, PSC_TIMEOUT, "%s after %llu s (--start-timeout)", text, waited_s);
    psc_run_status_write("server", (int32_t)own_rank(), error.code, error.message);
    if (speaks)
        psc_log(PSC_LOG_ERROR, "%s", error.message);
    _exit((int)error.code);
}

static psc_status_t run(psc_status_t st, program_t *program, psc_error_t *error)
{
    MPI_Comm world = MPI_COMM_WORLD;
    psc_error_t job_error = PSC_ERROR_INIT;
    const psp_mpi_role_t role =
        program->arguments.listen != NULL ? PSP_MPI_LISTENING_SERVER : PSP_MPI_SERVER;
    const psc_status_t created =
        program->arguments.checksums
            ? psp_mpi_job_create_checked(&world, role, &program->job, &job_error)
            : psp_mpi_job_create(&world, role, &program->job, &job_error);
    psc_ticker_stop(program->ticker);
    if (created != PSC_OK) {
        /* Every rank knows the same: the first one says it. */
        int world_rank = 0;
        (void)MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
        const psc_error_t *first = st != PSC_OK ? error : &job_error;
        if (world_rank == 0)
            psc_log(PSC_LOG_ERROR, "%s", first->message);
        psc_run_status_write("server", world_rank, first->code, first->message);
        return first->code;
    }
    char label[32];
    (void)snprintf(label, sizeof label, "server %" PRIu32, psp_mpi_job_rank(program->job));
    psc_process_set_label(label);
    if (st == PSC_OK) {
        log_start(program);
        st = open_transports(program, error);
    }
    psc_error_t gathering = PSC_ERROR_INIT, comparing = PSC_ERROR_INIT;
    psc_status_t gathered = learn_addresses(program, &gathering);
    const psc_status_t compared = compare_checkpoints(program, st != PSC_OK, &comparing);
    if (gathered == PSC_OK && compared != PSC_OK) {
        gathered = compared;
        gathering = comparing;
    }
    if (st == PSC_OK && gathered != PSC_OK) {
        st = gathered;
        *error = gathering;
    }
    if (st == PSC_OK && open_server(program, error) == PSC_OK)
        error->code = PSC_OK; /* what all ranks agree on is in error */
    let_guests_in(program, error);
    st = start(program, error);
    return st == PSC_OK ? serve(program) : st;
}

int main(int argc, char *argv[])
{
    (void)mallopt(M_ARENA_MAX, 2);
    (void)mallopt(M_TRIM_THRESHOLD, TRIM_BYTES);
    program_t program = {0};
    psc_error_t error = PSC_ERROR_INIT;
    psc_log_level_t level = PSC_LOG_WARN;
    psc_parse_result_t parsed = PSC_PARSE_RUN;
    psc_process_set_label("server");
    psc_status_t st =
        ps_server_arguments_parse(argc, argv, &program.arguments, &level, &parsed, &error);
    if (st == PSC_OK && parsed == PSC_PARSE_EXIT)
        return psc_output_end(EXIT_SUCCESS);
    psc_log_set_level(level);
    put_signals_off(&program.arguments);
    if (st == PSC_OK && program.arguments.listen != NULL && !ps_is_rank())
        return (int)ps_alone_run(&program.arguments);
    program.start =
        ps_start_watch(psc_clock_us(), (uint64_t)(program.arguments.start_timeout_s * 1e6));
    if (st == PSC_OK)
        st = psc_ticker_start(look_for_ranks, &program.start, START_LOOK_US, &program.ticker,
                              &error);
    int provided = 0;
    if (MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &provided) != MPI_SUCCESS) {
        psc_log(PSC_LOG_ERROR, "MPI could not be initialised");
        return PSC_INTERNAL;
    }
    psc_process_set_abort(abort_job);
    if (provided < MPI_THREAD_FUNNELED && st == PSC_OK)
        st = psc_error_set(&error, PSC_UNSUPPORTED, "this MPI has no support for threads");
    st = run(st, &program, &error);
    (void)MPI_Finalize();
    return (int)st;
}
