/*
 * How often each word was seen: a counting hash that grows, and its bytes for other workers.
 *
 *     psw_counter_create(&counter, error);
 *     psw_counter_add(counter, bytes, size, 1, error);
 *     ...
 *     psw_vocab_build(counter, min_count, &vocab, error);
 */
#ifndef WORKER_TRAIN_WORD_COUNTER_H
#define WORKER_TRAIN_WORD_COUNTER_H

#include "common/status.h"

#include <stddef.h>
#include <stdint.h>

typedef struct psw_counter psw_counter_t;

/* A word and how often it was seen. bytes: borrowed until the counter changes. */
typedef struct psw_counted {
    const char *bytes;
    size_t size;
    uint64_t count;
} psw_counted_t;

/* Errors: NO_MEMORY. Gives. */
PSC_MUST_CHECK psc_status_t psw_counter_create(psw_counter_t **counter_out, psc_error_t *error);
/* NULL is a no-op. */
void psw_counter_destroy(psw_counter_t *counter);

/*
 * Adds n to the count of a word. Copies bytes. n 0: makes the word known.
 * Errors: NO_MEMORY (also above 2^31 distinct words).
 */
PSC_MUST_CHECK psc_status_t psw_counter_add(psw_counter_t *counter, const char *bytes, size_t size,
                                            uint64_t n, psc_error_t *error);

/* The count of a word, 0 when it was never added. */
uint64_t psw_counter_get(const psw_counter_t *counter, const char *bytes, size_t size);

size_t psw_counter_distinct(const psw_counter_t *counter);
uint64_t psw_counter_total(const psw_counter_t *counter);

/* a + b, at most 2^64-1: counts of a file may be anything. */
static inline uint64_t psw_count_sum(uint64_t a, uint64_t b)
{
    return a <= UINT64_MAX - b ? a + b : UINT64_MAX;
}

/* The i-th distinct word, in the order in which they first came. i < distinct. */
psw_counted_t psw_counter_at(const psw_counter_t *counter, size_t i);

/* Adds all counts of from to counter. Errors: NO_MEMORY. */
PSC_MUST_CHECK psc_status_t psw_counter_merge(psw_counter_t *counter, const psw_counter_t *from,
                                              psc_error_t *error);

/* All counts as bytes for psw_counter_unpack. Errors: NO_MEMORY. Gives (psc_free). */
PSC_MUST_CHECK psc_status_t psw_counter_pack(const psw_counter_t *counter, char **bytes_out,
                                             size_t *size_out, psc_error_t *error);

/* Adds packed counts. Any bytes are safe. Errors: PROTOCOL (not what pack writes), NO_MEMORY. */
PSC_MUST_CHECK psc_status_t psw_counter_unpack(psw_counter_t *counter, const char *bytes,
                                               size_t size, psc_error_t *error);

#endif
