/*
 * The command line of embps-server.
 */
#ifndef PS_SERVER_OPTIONS_H
#define PS_SERVER_OPTIONS_H

#include "common/log.h"
#include "common/options.h"
#include "ps/server_log.h"

typedef struct ps_server_arguments {
    const char *data;           /* --data; borrowed from argv or the environment */
    uint64_t memory_bytes;      /* --memory */
    const char *direct_name;    /* --direct */
    ps_direct_t direct;         /* the same */
    const char *log_level;      /* --log-level */
    const char *on_worker_loss; /* --on-worker-loss, and the same as a rule */
    ps_loss_rule_t loss_rule;
    double worker_timeout_s;                        /* --worker-timeout */
    double start_timeout_s;                         /* --start-timeout */
    const char *listen;                             /* --listen; NULL: no guests */
    bool plain_text;                                /* --plain-text */
    bool checksums;                                 /* --checksums */
    const char *tls_cert, *tls_key, *tls_client_ca; /* --tls-...; NULL: none */
    const char *tokens;                             /* --tokens; NULL: none are asked for */
    const char *port_file;                          /* --port-file; NULL: none */
    uint64_t guests;                                /* --guests */
    double lease_s;                                 /* --lease */
    const char *checkpoints;                        /* --checkpoints; NULL: none */
    uint64_t keep;                                  /* --keep */
    double checkpoint_every_s;                      /* --checkpoint-every; 0: never */
    const char *resume;                             /* --resume */
    const char *weights;                            /* --weights; NULL: none */
    bool read_only;                                 /* --read-only */
    psc_option_list_t reset_optimizer;              /* --reset-optimizer */
    const char *durability_name;                    /* --durability, and the same as a number */
    ps_durability_t durability;
} ps_server_arguments_t;

/* Name, options and help of the program. */
extern const psc_command_t ps_server_command;

/*
 * Parses the command line. *level_out: --log-level. Borrows argv.
 * Errors: INVALID_ARGUMENT (names the option), NO_MEMORY.
 */
PSC_MUST_CHECK psc_status_t ps_server_arguments_parse(int argc, char *const argv[],
                                                      ps_server_arguments_t *arguments_out,
                                                      psc_log_level_t *level_out,
                                                      psc_parse_result_t *result_out,
                                                      psc_error_t *error);

/* A number that is the same for servers that go on from a checkpoint in the same way, by all
 * options that say so. */
uint64_t ps_server_arguments_way(const ps_server_arguments_t *arguments);

#endif
