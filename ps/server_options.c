/*
 * Options of embps-server: one table, from which parsing, bounds and --help come.
 *
 * Levels of the log are words in the order of psc_log_level_t. Threads: none.
 */
#include "ps/server_options.h"

#include "common/hash.h"
#include "proto/saved.h"
#include "ps/checkpoint/optimizer_reset.h"
#include "ps/store/store.h"

#include <string.h>

static const char *const level_names[] = {"error", "warn", "info", "debug", NULL};

/* In the order of ps_direct_t. */
static const char *const direct_names[] = {"off", "auto", "on", NULL};

/* In the order of ps_loss_rule_t. */
static const char *const loss_rule_names[] = {"auto", "rollback", "continue", NULL};

/* In the order of ps_durability_t. */
static const char *const durability_names[] = {"none", "checkpoint", "push", "sync", NULL};

static const psc_option_t options[] = {
    {.name = "data",
     .argument = "DIR",
     .type = PSC_OPTION_TEXT,
     .offset = offsetof(ps_server_arguments_t, data),
     .required = true,
     .environment = "EMBPS_DATA",
     .help = "Directory for the rows that do not fit into memory. Each server makes and uses "
             "DIR/server-N; DIR itself is made where its parent exists. It must not hold tables of "
             "another run: those are refused, never mixed and never deleted."},
    {.name = "memory",
     .argument = "SIZE",
     .type = PSC_OPTION_SIZE,
     .offset = offsetof(ps_server_arguments_t, memory_bytes),
     .min = (double)PS_STORE_MIN_MEMORY,
     .max = 0x1p46,
     .default_value = "256M",
     .environment = "EMBPS_MEMORY",
     .help = "Memory of this server for rows, index and RocksDB together. Resident anonymous and "
             "shared memory stay under SIZE + 64M at any number of rows."},
    {.name = "direct",
     .argument = "WHEN",
     .type = PSC_OPTION_TEXT,
     .offset = offsetof(ps_server_arguments_t, direct_name),
     .default_value = "auto",
     .environment = "EMBPS_DIRECT",
     .choices = direct_names,
     .help =
         "Whether workers on this host may read rows straight from this server's memory: off, on, "
         "or auto: when one of them asks for it before there are rows. Memory that is shared has "
         "no huge pages on most systems, so this server itself then reads rows more slowly."},
    {.name = "on-worker-loss",
     .argument = "RULE",
     .type = PSC_OPTION_TEXT,
     .offset = offsetof(ps_server_arguments_t, on_worker_loss),
     .default_value = "auto",
     .environment = "EMBPS_ON_WORKER_LOSS",
     .choices = loss_rule_names,
     .help = "What becomes of the clock that a lost worker had not ended, while the others go on "
             "(in a job of embps-run). rollback: nothing of it counts, on no "
             "server; pushes above staleness 0 are applied at once, and where such are of that "
             "clock, the job ends. continue: what has come counts. auto: rollback at staleness 0, "
             "continue above. The clocks that it had ended count on all servers."},
    {.name = "worker-timeout",
     .argument = "SECONDS",
     .type = PSC_OPTION_DOUBLE,
     .offset = offsetof(ps_server_arguments_t, worker_timeout_s),
     .min = 0,
     .max = 1e6,
     .default_value = "10",
     .environment = "EMBPS_WORKER_TIMEOUT",
     .help =
         "How long the process of a worker may stand still (SIGSTOP), or on another machine give "
         "no sign of life, until it is taken for lost; should it go on later, it is refused. 0: "
         "for ever."},
    {.name = "start-timeout",
     .argument = "SECONDS",
     .type = PSC_OPTION_DOUBLE,
     .offset = offsetof(ps_server_arguments_t, start_timeout_s),
     .min = 0,
     .max = 1e6,
     .default_value = "0",
     .environment = "EMBPS_START_TIMEOUT",
     .help =
         "How long to wait until all ranks of the job have connected; then the job ends, and it "
         "is said which workers have not. 0: for ever; it is said after 30 s, 60 s and so on."},
    {.name = "listen",
     .argument = "HOST:PORT",
     .type = PSC_OPTION_TEXT,
     .offset = offsetof(ps_server_arguments_t, listen),
     .environment = "EMBPS_LISTEN",
     .help = "Listen there for guests: processes that are no ranks of the job and come by gRPC "
             "(proto/embps.proto). Port 0 is a free one; of several servers each takes PORT plus "
             "its rank. Without workers, also without mpirun, the server then runs until SIGTERM. "
             "A socket's file (unix:PATH) is nothing to listen on: that is for clients alone."},
    {.name = "tls-cert",
     .argument = "FILE",
     .type = PSC_OPTION_TEXT,
     .offset = offsetof(ps_server_arguments_t, tls_cert),
     .environment = "EMBPS_TLS_CERT",
     .help = "Guests speak TLS: this server's certificate, and those that it rests on, in PEM. The "
             "three files may be replaced at any time; new connections go by what is there then."},
    {.name = "tls-key",
     .argument = "FILE",
     .type = PSC_OPTION_TEXT,
     .offset = offsetof(ps_server_arguments_t, tls_key),
     .environment = "EMBPS_TLS_KEY",
     .help = "The certificate's private key, in PEM."},
    {.name = "tls-client-ca",
     .argument = "FILE",
     .type = PSC_OPTION_TEXT,
     .offset = offsetof(ps_server_arguments_t, tls_client_ca),
     .environment = "EMBPS_TLS_CLIENT_CA",
     .help = "Guests must show a certificate that one of the authorities in FILE (PEM) has signed. "
             "Without it, and without --tokens, any guest is let in, encrypted or not."},
    {.name = "tokens",
     .argument = "FILE",
     .type = PSC_OPTION_TEXT,
     .offset = offsetof(ps_server_arguments_t, tokens),
     .environment = "EMBPS_TOKENS",
     .help = "Guests must show a token (authorization: Bearer TOKEN) of FILE, which says on each "
             "line: a token or sha256: and its digest; its rights, of read, write and admin, with "
             "commas between; for which tables, * standing for anything. For its owner's eyes "
             "alone (mode 600). It may be replaced at any time."},
    {.name = "plain-text",
     .type = PSC_OPTION_FLAG,
     .offset = offsetof(ps_server_arguments_t, plain_text),
     .environment = "EMBPS_PLAIN_TEXT",
     .help = "Lets --listen be an address that other machines reach without --tls-client-ca, and "
             "without --tokens over TLS. Whoever reaches it can then read and change all tables "
             "and, without TLS, what others send, their tokens included."},
    {.name = "checksums",
     .type = PSC_OPTION_FLAG,
     .offset = offsetof(ps_server_arguments_t, checksums),
     .environment = "EMBPS_CHECKSUMS",
     .help = "Messages between this server and its clients, workers and guests, carry a checksum "
             "(XXH3, 64 bits), and what came damaged is sent again. Of a job all ranks then do so. "
             "Guests that know nothing of it (other languages) are served as ever, unchecked."},
    {.name = "port-file",
     .argument = "FILE",
     .type = PSC_OPTION_TEXT,
     .offset = offsetof(ps_server_arguments_t, port_file),
     .environment = "EMBPS_PORT_FILE",
     .help = "Once all servers listen, write where to FILE, HOST:PORT on a line for each."},
    {.name = "guests",
     .argument = "N",
     .type = PSC_OPTION_U64,
     .offset = offsetof(ps_server_arguments_t, guests),
     .min = 1,
     .max = 4096,
     .default_value = "256",
     .environment = "EMBPS_GUESTS",
     .help = "How many guests may be here at a time; further ones are told to come again."},
    {.name = "lease",
     .argument = "SECONDS",
     .type = PSC_OPTION_DOUBLE,
     .offset = offsetof(ps_server_arguments_t, lease_s),
     .min = 0,
     .max = 1e6,
     .default_value = "60",
     .environment = "EMBPS_LEASE",
     .help = "A guest that has sent nothing for so long is gone; what it sends later is refused. "
             "0: for ever."},
    {.name = "checkpoints",
     .argument = "DIR",
     .type = PSC_OPTION_TEXT,
     .offset = offsetof(ps_server_arguments_t, checkpoints),
     .environment = "EMBPS_CHECKPOINTS",
     .help = "Checkpoints are made in DIR, which all servers must see; it is made where its parent "
             "exists. A run that is started again with the same DIR goes on from the newest one, "
             "and takes over the --data of the run before. Servers make one when they get SIGUSR1, "
             "which mpirun passes on, while they serve; those without workers also when they end. "
             "Give it to all servers of a job."},
    {.name = "checkpoint-every",
     .argument = "SECONDS",
     .type = PSC_OPTION_DOUBLE,
     .offset = offsetof(ps_server_arguments_t, checkpoint_every_s),
     .min = 0,
     .max = 1e9,
     .default_value = "0",
     .environment = "EMBPS_CHECKPOINT_EVERY",
     .help = "Servers make a checkpoint by themselves so long after they began the last one, while "
             "they serve; of several the first one's SECONDS count. 0: never. One that fails is "
             "logged, and so is one that was due while a client was making its own."},
    {.name = "keep",
     .argument = "N",
     .type = PSC_OPTION_U64,
     .offset = offsetof(ps_server_arguments_t, keep),
     .min = 0,
     .max = 1e6,
     .default_value = "3",
     .environment = "EMBPS_KEEP",
     .help = "How many checkpoints stay: older ones are removed, but not the newest that a client "
             "made with a state of its own, nor the newest such one that this run went on from or "
             "made. 0: all stay."},
    {.name = "resume",
     .argument = "WHICH",
     .type = PSC_OPTION_TEXT,
     .offset = offsetof(ps_server_arguments_t, resume),
     .default_value = "auto",
     .environment = "EMBPS_RESUME",
     .help = "The checkpoint of --checkpoints to go on from: auto (the newest, if there is one; in "
             "a job with workers the newest with a client's state, if there is one), "
             "none, or its name; embps checkpoint list DIR shows which there are, and which have a "
             "client's state. It may be of any number of servers. One with a file that is missing "
             "or damaged is refused, by its name, and parts that are missing by server and host."},
    {.name = "reset-optimizer",
     .argument = "TABLE=OPTIMIZER",
     .type = PSC_OPTION_LIST,
     .offset = offsetof(ps_server_arguments_t, reset_optimizer),
     .help = "A table of the checkpoint goes on with another optimizer: the weights of its rows "
             "stay, the state of the former optimizer is dropped, and that of the new one begins "
             "in every row at its initial value, its count of steps at 0. Parameters follow with "
             "commas: TABLE=adam,beta1=0.8,state_precision=bf16. Without it another optimizer is "
             "refused. Where the table has it already nothing changes, so that the same command "
             "line goes on. Give it to all servers of a job."},
    {.name = "weights",
     .argument = "DIR/NAME",
     .type = PSC_OPTION_TEXT,
     .offset = offsetof(ps_server_arguments_t, weights),
     .environment = "EMBPS_WEIGHTS",
     .help = "Begin with the tables of the checkpoint NAME of the folder DIR, also of another run, "
             "and with the weights of their rows: states of optimizers, sessions, clocks, ages and "
             "what a client left there are not taken, so that a training begins at its first "
             "batch. Where there is a checkpoint to go on from (--checkpoints, --resume) that is "
             "what counts, so that the same command line goes on. DIR is only read."},
    {.name = "read-only",
     .type = PSC_OPTION_FLAG,
     .offset = offsetof(ps_server_arguments_t, read_only),
     .environment = "EMBPS_READ_ONLY",
     .help = "Serve the checkpoint that --checkpoints and --resume say as it is, to guests: what "
             "would change anything (a push, an import, a new table, a clock, a checkpoint) is "
             "refused. Nothing is written into DIR, which a run may be writing its checkpoints to; "
             "--data has a copy of the rows, which goes at the end."},
    {.name = "durability",
     .argument = "LEVEL",
     .type = PSC_OPTION_TEXT,
     .offset = offsetof(ps_server_arguments_t, durability_name),
     .default_value = "checkpoint",
     .environment = "EMBPS_DURABILITY",
     .choices = durability_names,
     .help =
         "What an acknowledged push outlives. none: nothing; no checkpoints are made. checkpoint: "
         "a crash goes back to the newest one of --checkpoints. push: kill -9 of every process; "
         "what came after the newest checkpoint is written to a log in --checkpoints before it "
         "is acknowledged, and replayed at the start by servers without workers. sync: a power "
         "cut too; the log is on the disk by then. Give it to all servers of a job."},
    {.name = "log-level",
     .argument = "LEVEL",
     .type = PSC_OPTION_TEXT,
     .offset = offsetof(ps_server_arguments_t, log_level),
     .default_value = "warn",
     .environment = "EMBPS_LOG_LEVEL",
     .choices = level_names,
     .help = "What is logged on standard error: error, warn, info or debug."},
};

const psc_command_t ps_server_command = {
    .name = "embps-server",
    .synopsis = "--data DIR [options]",
    .summary = "a server of an embps job: keeps a share of the rows of all tables",
    .description =
        "Runs as the server ranks of an mpirun job whose other ranks are workers (embps-train, or "
        "any program with libembps):\n\n"
        "    mpirun -n 2 embps-server --data DIR : -n 2 embps-train skipgram ...\n\n"
        "Any number of servers and workers will do, one of each at least. A server takes its share "
        "of the ids by their hash, keeps rows that are in use in memory and the rest in RocksDB, "
        "and "
        "leaves when all workers have left. Its exit status is the worst one of the workers, or "
        "that of a peer that is gone when workers were lost and the others ended well. "
        "SIGTERM, SIGINT and SIGHUP, and SIGUSR2 to mpirun, which passes it on without a limit of "
        "time, "
        "are "
        "left to the workers, which stop and let the servers end in order. SIGUSR1 asks servers "
        "with "
        "--checkpoints for a checkpoint: to mpirun, or to any one of them.\n\n"
        "With --listen there need not be workers, nor mpirun:\n\n"
        "    embps-server --data DIR --listen 127.0.0.1:50051\n\n"
        "serves processes that come by gRPC, until SIGTERM, SIGINT, or SIGHUP (a "
        "terminal that is closed) unless it is ignored, as under nohup. Several servers of that "
        "kind make one "
        "job (mpirun -n 3 embps-server ... --listen ...), which SIGUSR2 to mpirun ends in order.",
    .options = options,
    .n_options = sizeof options / sizeof options[0],
    .operands = NULL,
    .examples = "mpirun -n 1 embps-server --data /tmp/tables --memory 512M : -n 1 embps-train "
                "skipgram --corpus text --out vectors.txt",
};

static psc_status_t check_read_only(const ps_server_arguments_t *arguments, psc_error_t *error)
{
    const char *without = arguments->weights != NULL               ? "--weights"
                          : arguments->reset_optimizer.n != 0      ? "--reset-optimizer"
                          : arguments->checkpoint_every_s > 0      ? "--checkpoint-every"
                          : strcmp(arguments->resume, "none") == 0 ? "--resume none"
                                                                   : NULL;
    if (!arguments->read_only)
        return PSC_OK;
    if (arguments->checkpoints == NULL || arguments->listen == NULL)
        return psc_error_set(error, PSC_INVALID_ARGUMENT,
                             "--read-only serves a checkpoint to guests: give --checkpoints DIR "
                             "and --listen HOST:PORT");
    if (without != NULL || arguments->durability >= PS_DURABILITY_PUSH)
        return psc_error_set(error, PSC_INVALID_ARGUMENT,
                             "--read-only takes a checkpoint as it is, and makes nothing: leave %s "
                             "out",
                             without != NULL ? without : "--durability");
    return PSC_OK;
}

static psc_status_t check_weights(const char *weights, psc_error_t *error)
{
    if (weights == NULL)
        return PSC_OK;
    const char *slash = strrchr(weights, '/');
    const char *name = slash != NULL ? slash + 1 : weights;
    if (slash != weights && psp_saved_is_name(name) && strcmp(name, "auto") != 0 &&
        strcmp(name, "none") != 0)
        return PSC_OK;
    return psc_error_set(error, PSC_INVALID_ARGUMENT,
                         "--weights %.200s: wants DIR/NAME, a checkpoint of a folder; embps "
                         "checkpoint list DIR shows which there are",
                         weights);
}

psc_status_t ps_server_arguments_parse(int argc, char *const argv[],
                                       ps_server_arguments_t *arguments_out,
                                       psc_log_level_t *level_out, psc_parse_result_t *result_out,
                                       psc_error_t *error)
{
    ps_server_arguments_t arguments = {0};
    psc_status_t st = psc_options_parse(&ps_server_command, argc, argv, &arguments, NULL, NULL,
                                        result_out, error);
    if (st != PSC_OK)
        return st;
    if (*result_out == PSC_PARSE_EXIT)
        return PSC_OK;
    size_t level = 0;
    while (strcmp(arguments.log_level, level_names[level]) != 0)
        level++;
    for (size_t i = 0; direct_names[i] != NULL; i++) {
        if (strcmp(arguments.direct_name, direct_names[i]) == 0)
            arguments.direct = (ps_direct_t)i;
    }
    const char *alone = arguments.plain_text          ? "plain-text"
                        : arguments.tokens != NULL    ? "tokens"
                        : arguments.port_file != NULL ? "port-file"
                                                      : NULL;
    if (arguments.listen == NULL && alone != NULL)
        return psc_error_set(error, PSC_INVALID_ARGUMENT, "--%s is of use with --listen alone",
                             alone);
    if (arguments.checkpoints == NULL && strcmp(arguments.resume, "auto") != 0 &&
        strcmp(arguments.resume, "none") != 0)
        return psc_error_set(error, PSC_INVALID_ARGUMENT,
                             "--resume %s: in which folder? See --checkpoints", arguments.resume);
    if (arguments.checkpoints == NULL && arguments.weights == NULL &&
        arguments.reset_optimizer.n != 0)
        return psc_error_set(error, PSC_INVALID_ARGUMENT,
                             "--reset-optimizer is of use with --checkpoints or --weights alone");
    for (size_t i = 0; i < arguments.reset_optimizer.n; i++) {
        ps_optimizer_reset_t reset;
        st = ps_optimizer_reset_parse(arguments.reset_optimizer.items[i], &reset, error);
        if (st != PSC_OK)
            return st;
    }
    while (strcmp(arguments.durability_name, durability_names[arguments.durability]) != 0)
        arguments.durability++;
    st = check_read_only(&arguments, error);
    if (st == PSC_OK)
        st = check_weights(arguments.weights, error);
    if (st != PSC_OK)
        return st;
    if (arguments.checkpoints == NULL && arguments.checkpoint_every_s != 0)
        return psc_error_set(error, PSC_INVALID_ARGUMENT,
                             "--checkpoint-every is of use with --checkpoints alone");
    if (arguments.checkpoints == NULL && arguments.durability >= PS_DURABILITY_PUSH)
        return psc_error_set(error, PSC_INVALID_ARGUMENT,
                             "--durability %s keeps a log with the checkpoints: give --checkpoints "
                             "DIR",
                             arguments.durability_name);
    if (arguments.checkpoints != NULL && arguments.durability == PS_DURABILITY_NONE)
        return psc_error_set(error, PSC_INVALID_ARGUMENT,
                             "--durability none makes no checkpoints: leave --checkpoints out, or "
                             "say --durability checkpoint");
    const bool tls = arguments.tls_cert != NULL;
    if (tls != (arguments.tls_key != NULL) || (arguments.tls_client_ca != NULL && !tls) ||
        (tls && arguments.listen == NULL))
        return psc_error_set(error, PSC_INVALID_ARGUMENT,
                             "--tls-cert and --tls-key come together, --tls-client-ca with both, "
                             "and all with --listen");
    *level_out = (psc_log_level_t)level;
    for (size_t i = 0; loss_rule_names[i] != NULL; i++) {
        if (strcmp(arguments.on_worker_loss, loss_rule_names[i]) == 0)
            arguments.loss_rule = (ps_loss_rule_t)i;
    }
    *arguments_out = arguments;
    return PSC_OK;
}

/* Texts one behind the other, each with its end. */
static uint64_t add_text(uint64_t way, const char *text)
{
    const size_t n = text != NULL ? strlen(text) + 1 : 0;
    for (size_t i = 0; i < n; i++)
        way = psc_mix64(way ^ (uint8_t)text[i]);
    return psc_mix64(way ^ n);
}

uint64_t ps_server_arguments_way(const ps_server_arguments_t *arguments)
{
    uint64_t way = add_text(0, arguments->resume);
    for (size_t i = 0; i < arguments->reset_optimizer.n; i++)
        way = add_text(way, arguments->reset_optimizer.items[i]);
    return psc_mix64(add_text(way, arguments->weights) ^ arguments->read_only);
}
