/*
 * The table of policies, in the order of the columns of the report: the simplest first, ours before
 * the optimum. One suite of tests runs over it, so that a policy which is added is tested too.
 */
#include "tests/bench/policy/policies.h"

const bench_policy_t *const bench_policies[] = {
    &bench_lru,       &bench_clock, &bench_lfu,    &bench_sieve, &bench_s3_fifo,
    &bench_w_tinylfu, &bench_store, &bench_belady, NULL,
};

int64_t bench_count_hits(const bench_policy_t *policy, const bench_trace_t *trace,
                         uint32_t capacity)
{
    void *cache = policy->create(trace, capacity);
    if (cache == NULL)
        return -1;
    int64_t n_hits = 0;
    for (size_t i = 0; i < trace->n; i++)
        n_hits += policy->access(cache, trace->ids[i]);
    policy->destroy(cache);
    return n_hits;
}
