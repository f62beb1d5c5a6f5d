/* What the two sides of embps-bench door share: the servers, each in a process of its own. */
#ifndef TESTS_BENCH_BENCH_DOOR_H
#define TESTS_BENCH_BENCH_DOOR_H

#include "common/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define BENCH_BARE_PULL "/bare/Pull"
#define BENCH_BARE_PUSH "/bare/Push"

/* A server in a child process, which ends with this one. */
typedef struct bench_door_child {
    pid_t process; /* 0: none */
    char address[64];
} bench_door_child_t;

/*
 * Starts a server; data: the folder for its tables, NULL: a bare one on gRPC's core alone, which
 * reads nothing of a request and answers pulls with reply_bytes and pushes with few. checksums: as
 * embps-server --checksums. To be called before anything of gRPC is used in this process. Errors:
 * IO.
 */
PSC_MUST_CHECK psc_status_t bench_door_start(const char *data, size_t reply_bytes, bool checksums,
                                             bench_door_child_t *child_out, psc_error_t *error);
void bench_door_stop(bench_door_child_t *child);

/* A client on gRPC's core alone. */
typedef struct bench_bare bench_bare_t;
PSC_MUST_CHECK psc_status_t bench_bare_create(const char *address, bench_bare_t **bare_out,
                                              psc_error_t *error);
void bench_bare_destroy(bench_bare_t *bare);
/* One unary call, waited for; neither its request is written nor its reply read. request: borrowed.
 * Errors: IO (the call failed), PROTOCOL (a reply of other than reply_bytes). */
PSC_MUST_CHECK psc_status_t bench_bare_call(bench_bare_t *bare, const char *method,
                                            const uint8_t *request, size_t request_bytes,
                                            size_t reply_bytes, psc_error_t *error);

#endif
