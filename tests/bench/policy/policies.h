/*
 * Replacement policies in simulation, for the comparison that chose ours: which of the rows stay
 * when only some fit. Each is written after its paper, with its parameters, and does no more than
 * decide: a trace's ids are 0..n_rows-1, so what they need by row lies in arrays.
 *
 *     void *cache = bench_policies[k]->create(&trace, capacity);
 *     for i: n_hits += bench_policies[k]->access(cache, trace.ids[i]);
 *     bench_policies[k]->destroy(cache);
 */
#ifndef TESTS_BENCH_POLICY_POLICIES_H
#define TESTS_BENCH_POLICY_POLICIES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Ids in the order of their use. */
typedef struct bench_trace {
    uint32_t *ids; /* [n], each below n_rows */
    size_t n;
    uint32_t n_rows;
} bench_trace_t;

typedef struct bench_policy {
    const char *name;
    const char *source; /* where it was published, and with which parameters it is simulated */
    /* An empty cache for capacity rows, at least 1. Borrows the trace. NULL: no memory. Gives. */
    void *(*create)(const bench_trace_t *trace, uint32_t capacity);
    /* True: the row was there. It is afterwards, or was judged not worth it. */
    bool (*access)(void *cache, uint32_t id);
    void (*destroy)(void *cache);
} bench_policy_t;

extern const bench_policy_t bench_lru, bench_clock, bench_lfu, bench_sieve, bench_s3_fifo,
    bench_w_tinylfu, bench_store, bench_belady;

/* All of them, the optimum last. NULL behind the last. */
extern const bench_policy_t *const bench_policies[];

/* How many of the uses find their row. Negative: no memory. */
int64_t bench_count_hits(const bench_policy_t *policy, const bench_trace_t *trace,
                         uint32_t capacity);

#endif
