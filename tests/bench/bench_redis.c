/*
 * Redis through hiredis: MGET and MSET, pipelined.
 *
 * The server listens on a unix socket in its folder and nowhere else, and writes nothing to disk.
 * It ends with the process that started it, however that ends (PR_SET_PDEATHSIG). Commands are
 * formatted into hiredis's buffer, which leaves with the next wait; answers come in order, so a
 * ring of places is enough to know where rows belong. Built without hiredis, all there is left is
 * an error that says so.
 */
#include "tests/bench/bench_redis.h"

#ifdef BENCH_HIREDIS

#include "common/alloc.h"
#include "common/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <hiredis/hiredis.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAX_IN_FLIGHT 64u
#define START_STEP_US 10000u
#define START_STEPS 1000u

typedef struct pending {
    size_t n;
    float *rows_out; /* NULL: a set */
} pending_t;

struct bench_redis {
    pid_t server;
    redisContext *context;
    size_t dim;
    const char **words; /* [2 * max batch + 1], of one command */
    size_t *lengths;
    size_t first, n; /* in the ring */
    pending_t pending[MAX_IN_FLIGHT];
};

static psc_status_t run_server(const char *folder, const char *path, pid_t *server_out,
                               psc_error_t *error)
{
    pid_t parent = getpid(), child = fork();
    if (child < 0)
        return psc_error_set(error, PSC_IO, "fork: %s", strerror(errno));
    if (child == 0) {
        int null = open("/dev/null", O_RDWR | O_CLOEXEC);
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent || null < 0 || dup2(null, 0) < 0 || dup2(null, 1) < 0 ||
            dup2(null, 2) < 0)
            _exit(1);
        (void)execlp("redis-server", "redis-server", "--port", "0", "--unixsocket", path, "--save",
                     "", "--appendonly", "no", "--dir", folder, (char *)NULL);
        _exit(127);
    }
    *server_out = child;
    return PSC_OK;
}

/* Connects once the server listens, or says why it never will. */
static psc_status_t connect_to(bench_redis_t *redis, const char *path, psc_error_t *error)
{
    for (unsigned step = 0; step < START_STEPS; step++) {
        int status;
        if (waitpid(redis->server, &status, WNOHANG) == redis->server) {
            redis->server = 0;
            if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
                return psc_error_set(error, PSC_UNSUPPORTED, "redis-server is not installed");
            return psc_error_set(error, PSC_IO, "redis-server ended by itself");
        }
        redisContext *context = redisConnectUnix(path);
        if (context != NULL && context->err == 0) {
            redis->context = context;
            return PSC_OK;
        }
        if (context != NULL)
            redisFree(context);
        psc_clock_sleep_us(START_STEP_US);
    }
    return psc_error_set(error, PSC_IO, "redis-server does not listen on %.300s", path);
}

psc_status_t bench_redis_start(const char *folder, size_t dim, size_t max_batch,
                               bench_redis_t **redis_out, psc_error_t *error)
{
    char path[1024];
    bench_redis_t *redis = psc_alloc_zeroed(1, sizeof *redis);
    if (redis == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "out of memory for a client of redis");
    redis->dim = dim;
    redis->words = psc_alloc_array(2 * max_batch + 1, sizeof *redis->words);
    redis->lengths = psc_alloc_array(2 * max_batch + 1, sizeof *redis->lengths);
    (void)snprintf(path, sizeof path, "%.900s/redis.socket", folder);
    psc_status_t st = PSC_OK;
    if (redis->words == NULL || redis->lengths == NULL)
        st = psc_error_set(error, PSC_NO_MEMORY, "out of memory for a client of redis");
    if (st == PSC_OK)
        st = run_server(folder, path, &redis->server, error);
    if (st == PSC_OK)
        st = connect_to(redis, path, error);
    if (st != PSC_OK) {
        bench_redis_stop(redis);
        return st;
    }
    *redis_out = redis;
    return PSC_OK;
}

void bench_redis_stop(bench_redis_t *redis)
{
    if (redis == NULL)
        return;
    if (redis->context != NULL)
        redisFree(redis->context);
    if (redis->server > 0) {
        (void)kill(redis->server, SIGKILL);
        (void)waitpid(redis->server, NULL, 0);
    }
    psc_free(redis->words);
    psc_free(redis->lengths);
    psc_free(redis);
}

static psc_status_t lost(const bench_redis_t *redis, psc_error_t *error)
{
    return psc_error_set(error, PSC_IO, "redis: %.200s", redis->context->errstr);
}

static psc_status_t begin(bench_redis_t *redis, size_t n_words, pending_t pending,
                          psc_error_t *error)
{
    PSC_BUG_ON(redis->n == MAX_IN_FLIGHT);
    if (redisAppendCommandArgv(redis->context, (int)n_words, redis->words, redis->lengths) !=
        REDIS_OK)
        return lost(redis, error);
    redis->pending[(redis->first + redis->n) % MAX_IN_FLIGHT] = pending;
    redis->n++;
    return PSC_OK;
}

psc_status_t bench_redis_get(bench_redis_t *redis, const uint64_t *ids, size_t n, float *rows_out,
                             psc_error_t *error)
{
    redis->words[0] = "MGET";
    redis->lengths[0] = 4;
    for (size_t i = 0; i < n; i++) {
        redis->words[i + 1] = (const char *)&ids[i];
        redis->lengths[i + 1] = sizeof ids[i];
    }
    return begin(redis, n + 1, (pending_t){.n = n, .rows_out = rows_out}, error);
}

psc_status_t bench_redis_set(bench_redis_t *redis, const uint64_t *ids, size_t n, const float *rows,
                             psc_error_t *error)
{
    redis->words[0] = "MSET";
    redis->lengths[0] = 4;
    for (size_t i = 0; i < n; i++) {
        redis->words[2 * i + 1] = (const char *)&ids[i];
        redis->lengths[2 * i + 1] = sizeof ids[i];
        redis->words[2 * i + 2] = (const char *)(rows + i * redis->dim);
        redis->lengths[2 * i + 2] = redis->dim * sizeof *rows;
    }
    return begin(redis, 2 * n + 1, (pending_t){.n = n}, error);
}

static psc_status_t take(const bench_redis_t *redis, const pending_t *pending,
                         const redisReply *reply, psc_error_t *error)
{
    if (reply->type == REDIS_REPLY_ERROR)
        return psc_error_set(error, PSC_IO, "redis: %.200s", reply->str);
    if (pending->rows_out == NULL)
        return PSC_OK;
    const size_t bytes = redis->dim * sizeof(float);
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != pending->n)
        return psc_error_set(error, PSC_INTERNAL, "redis answers with something else than rows");
    for (size_t i = 0; i < pending->n; i++) {
        const redisReply *row = reply->element[i];
        if (row->type != REDIS_REPLY_STRING || (size_t)row->len != bytes)
            return psc_error_set(error, PSC_INTERNAL, "redis has no such row");
        memcpy(pending->rows_out + i * redis->dim, row->str, bytes);
    }
    return PSC_OK;
}

psc_status_t bench_redis_wait(bench_redis_t *redis, size_t in_flight, psc_error_t *error)
{
    psc_status_t st = PSC_OK;
    while (st == PSC_OK && redis->n > in_flight) {
        void *reply = NULL;
        if (redisGetReply(redis->context, &reply) != REDIS_OK || reply == NULL)
            return lost(redis, error);
        st = take(redis, &redis->pending[redis->first], reply, error);
        freeReplyObject(reply);
        redis->first = (redis->first + 1) % MAX_IN_FLIGHT;
        redis->n--;
    }
    return st;
}

#else

psc_status_t bench_redis_start(const char *folder, size_t dim, size_t max_batch,
                               bench_redis_t **redis_out, psc_error_t *error)
{
    (void)folder;
    (void)dim;
    (void)max_batch;
    (void)redis_out;
    return psc_error_set(error, PSC_UNSUPPORTED, "built without hiredis (scripts/setup --bench)");
}

void bench_redis_stop(bench_redis_t *redis)
{
    (void)redis;
}

static psc_status_t absent(psc_error_t *error)
{
    return psc_error_set(error, PSC_UNSUPPORTED, "built without hiredis");
}

psc_status_t bench_redis_get(bench_redis_t *redis, const uint64_t *ids, size_t n, float *rows_out,
                             psc_error_t *error)
{
    (void)redis;
    (void)ids;
    (void)n;
    (void)rows_out;
    return absent(error);
}

psc_status_t bench_redis_set(bench_redis_t *redis, const uint64_t *ids, size_t n, const float *rows,
                             psc_error_t *error)
{
    (void)redis;
    (void)ids;
    (void)n;
    (void)rows;
    return absent(error);
}

psc_status_t bench_redis_wait(bench_redis_t *redis, size_t in_flight, psc_error_t *error)
{
    (void)redis;
    (void)in_flight;
    return absent(error);
}

#endif
