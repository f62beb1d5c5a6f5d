/*
 * The vocabulary: words by id, and the lookup that every word of every epoch goes through.
 *
 * Bytes lie in one arena in the order of ids, so that what is frequent lies together and stays in
 * the cache. The index is open addressing, a power of two and at most half full; a slot holds 32
 * bits of the hash beside the id, so that a word that is not there costs one cache line, and one
 * that is there costs one more for the comparison of its bytes. 15 to 30 ns a lookup.
 *
 * Threads: read-only after build.
 */
#include "worker/train/vocab.h"

#include "common/alloc.h"
#include "common/file.h"
#include "worker/train/corpus.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

typedef struct slot {
    uint32_t tag;
    uint32_t id; /* + 1; 0: free */
} slot_t;

typedef struct vocab_word {
    uint64_t offset;
    uint64_t count;
} vocab_word_t;

struct psw_vocab {
    slot_t *slots;
    size_t mask;
    vocab_word_t *words; /* n + 1: the last one holds the end of the arena */
    uint32_t n;
    uint64_t total;
    char *arena;
};

static int by_count_then_bytes(const void *left, const void *right)
{
    const psw_counted_t *a = left, *b = right;
    if (a->count != b->count)
        return a->count > b->count ? -1 : 1;
    size_t shorter = a->size < b->size ? a->size : b->size;
    int order = memcmp(a->bytes, b->bytes, shorter);
    if (order != 0)
        return order;
    return a->size < b->size ? -1 : a->size > b->size;
}

static void insert(psw_vocab_t *vocab, uint32_t id)
{
    size_t size;
    const char *bytes = psw_vocab_word(vocab, id, &size);
    uint64_t hash = XXH3_64bits(bytes, size);
    size_t i = (size_t)hash & vocab->mask;
    while (vocab->slots[i].id != 0)
        i = (i + 1) & vocab->mask;
    vocab->slots[i] = (slot_t){.tag = (uint32_t)(hash >> 32), .id = id + 1};
}

static psc_status_t fill(psw_vocab_t *vocab, const psw_counted_t *kept, size_t n,
                         psc_error_t *error)
{
    size_t arena_bytes = 0, n_slots = 16;
    for (size_t i = 0; i < n; i++)
        arena_bytes += kept[i].size;
    while (n_slots < 2 * n)
        n_slots *= 2;
    vocab->words = psc_alloc_array(n + 1, sizeof *vocab->words);
    vocab->arena = psc_alloc(arena_bytes);
    vocab->slots = psc_alloc_zeroed(n_slots, sizeof *vocab->slots);
    if (vocab->words == NULL || vocab->arena == NULL || vocab->slots == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "out of memory for a vocabulary of %zu words",
                             n);
    vocab->mask = n_slots - 1;
    vocab->n = (uint32_t)n;
    uint64_t offset = 0;
    for (size_t i = 0; i < n; i++) {
        memcpy(vocab->arena + offset, kept[i].bytes, kept[i].size);
        vocab->words[i] = (vocab_word_t){.offset = offset, .count = kept[i].count};
        vocab->total = psw_count_sum(vocab->total, kept[i].count);
        offset += kept[i].size;
    }
    vocab->words[n] = (vocab_word_t){.offset = offset};
    for (uint32_t id = 0; id < vocab->n; id++)
        insert(vocab, id);
    return PSC_OK;
}

psc_status_t psw_vocab_build(const psw_counter_t *counter, uint64_t min_count,
                             psw_vocab_t **vocab_out, psc_error_t *error)
{
    size_t distinct = psw_counter_distinct(counter), n = 0;
    psw_vocab_t *vocab = psc_alloc_zeroed(1, sizeof *vocab);
    psw_counted_t *kept = psc_alloc_array(distinct, sizeof *kept);
    psc_status_t st = PSC_OK;
    if (vocab == NULL || kept == NULL) {
        st = psc_error_set(error, PSC_NO_MEMORY, "out of memory for a vocabulary of %zu words",
                           distinct);
        goto out;
    }
    for (size_t i = 0; i < distinct; i++) {
        psw_counted_t word = psw_counter_at(counter, i);
        if (word.count >= min_count)
            kept[n++] = word;
    }
    qsort(kept, n, sizeof *kept, by_count_then_bytes);
    st = fill(vocab, kept, n, error);
out:
    psc_free(kept);
    if (st != PSC_OK) {
        psw_vocab_destroy(vocab);
        return st;
    }
    *vocab_out = vocab;
    return PSC_OK;
}

void psw_vocab_destroy(psw_vocab_t *vocab)
{
    if (vocab == NULL)
        return;
    psc_free(vocab->slots);
    psc_free(vocab->words);
    psc_free(vocab->arena);
    psc_free(vocab);
}

uint32_t psw_vocab_size(const psw_vocab_t *vocab)
{
    return vocab->n;
}

uint64_t psw_vocab_total(const psw_vocab_t *vocab)
{
    return vocab->total;
}

uint64_t psw_vocab_count(const psw_vocab_t *vocab, uint32_t id)
{
    return vocab->words[id].count;
}

const char *psw_vocab_word(const psw_vocab_t *vocab, uint32_t id, size_t *size_out)
{
    const vocab_word_t *word = &vocab->words[id];
    *size_out = (size_t)(word[1].offset - word[0].offset);
    return vocab->arena + word->offset;
}

uint32_t psw_vocab_lookup(const psw_vocab_t *vocab, const char *bytes, size_t size)
{
    uint64_t hash = XXH3_64bits(bytes, size);
    uint32_t tag = (uint32_t)(hash >> 32);
    for (size_t i = (size_t)hash & vocab->mask;; i = (i + 1) & vocab->mask) {
        const slot_t *slot = &vocab->slots[i];
        if (slot->id == 0)
            return PSW_VOCAB_NONE;
        if (slot->tag != tag)
            continue;
        const vocab_word_t *word = &vocab->words[slot->id - 1];
        if (word[1].offset - word[0].offset == size &&
            memcmp(vocab->arena + word->offset, bytes, size) == 0)
            return slot->id - 1;
    }
}

uint64_t psw_vocab_fingerprint(const psw_vocab_t *vocab)
{
    uint64_t hash = XXH3_64bits(vocab->arena, (size_t)vocab->words[vocab->n].offset);
    return XXH3_64bits_withSeed(vocab->words, (size_t)vocab->n * sizeof *vocab->words, hash);
}

psc_status_t psw_vocab_gather(const psw_counter_t *own, uint32_t n_workers, psw_gather_fn gather,
                              void *context, psw_counter_t **all_out, psc_error_t *error)
{
    char *packed = NULL, *bytes = NULL;
    size_t packed_size = 0;
    psw_counter_t *all = NULL;
    size_t *sizes = psc_alloc_zeroed(n_workers, sizeof *sizes);
    psc_status_t st = sizes != NULL
                          ? PSC_OK
                          : psc_error_set(error, PSC_NO_MEMORY,
                                          "out of memory for the counts of %u workers", n_workers);
    if (st == PSC_OK)
        st = psw_counter_pack(own, &packed, &packed_size, error);
    if (st == PSC_OK)
        st = gather(context, packed, packed_size, &bytes, sizes, error);
    if (st == PSC_OK)
        st = psw_counter_create(&all, error);
    const char *at = bytes;
    for (uint32_t i = 0; st == PSC_OK && i < n_workers; i++) {
        st = psw_counter_unpack(all, at, sizes[i], error);
        at += sizes[i];
    }
    psc_free(sizes);
    psc_free(packed);
    psc_free(bytes);
    if (st != PSC_OK) {
        psw_counter_destroy(all);
        return st;
    }
    *all_out = all;
    return PSC_OK;
}
