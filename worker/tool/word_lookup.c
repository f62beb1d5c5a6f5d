/*
 * Look-up with lower-casing, and alternatives for a misspelt word by edit distance.
 *
 * Alternatives walk the whole vocabulary, a table of at most 64 x 64 per word, with words of very
 * different length passed over: some 20 ms for 100,000 words; only done for an error. Bytes are
 * compared, not characters, which serves UTF-8 well enough for a hint. Threads: none here.
 */
#include "worker/tool/word_lookup.h"

#include <stdio.h>
#include <string.h>

enum { MOST_BYTES = 64 };

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

psw_lookup_t psw_word_lookup(const psw_vectors_t *vectors, size_t n_rows, const char *word,
                             size_t size, size_t *row_out)
{
    size_t row;
    if (psw_vectors_find(vectors, word, size, &row) && row < n_rows) {
        *row_out = row;
        return PSW_LOOKUP_AS_IS;
    }
    char lowered[1024];
    if (size > sizeof lowered)
        return PSW_LOOKUP_NONE;
    for (size_t i = 0; i < size; i++)
        lowered[i] = lower(word[i]);
    if (!psw_vectors_find(vectors, lowered, size, &row) || row >= n_rows)
        return PSW_LOOKUP_NONE;
    *row_out = row;
    return PSW_LOOKUP_LOWERED;
}

static unsigned least(unsigned a, unsigned b)
{
    return a < b ? a : b;
}

/* Edits between two words of at most MOST_BYTES, neighbours' swap counted as one. */
static unsigned edits(const char *a, size_t na, const char *b, size_t nb)
{
    unsigned rows[3][MOST_BYTES + 1]; /* before last, last, present */
    for (size_t j = 0; j <= nb; j++)
        rows[1][j] = (unsigned)j;
    for (size_t i = 1; i <= na; i++) {
        rows[2][0] = (unsigned)i;
        for (size_t j = 1; j <= nb; j++) {
            unsigned differ = lower(a[i - 1]) == lower(b[j - 1]) ? 0 : 1;
            unsigned d = least(rows[1][j] + 1, rows[2][j - 1] + 1);
            d = least(d, rows[1][j - 1] + differ);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                d = least(d, rows[0][j - 2] + 1);
            rows[2][j] = d;
        }
        memcpy(rows[0], rows[1], sizeof rows[0]);
        memcpy(rows[1], rows[2], sizeof rows[1]);
    }
    return rows[1][nb];
}

size_t psw_word_alternatives(const psw_vectors_t *vectors, const char *word, size_t size,
                             size_t rows_out[PSW_MOST_ALTERNATIVES])
{
    unsigned distance[PSW_MOST_ALTERNATIVES];
    size_t n = 0;
    if (size == 0 || size > MOST_BYTES)
        return 0;
    unsigned most = size < 6 ? 1 + (size > 2 ? 1 : 0) : (unsigned)size / 3;
    for (size_t row = 0; row < psw_vectors_count(vectors); row++) {
        size_t other_size;
        const char *other = psw_vectors_word(vectors, row, &other_size);
        if (other_size > size + most || other_size + most < size || other_size > MOST_BYTES)
            continue;
        unsigned d = edits(word, size, other, other_size);
        if (d > most || (n == PSW_MOST_ALTERNATIVES && d >= distance[n - 1]))
            continue;
        size_t at = n < PSW_MOST_ALTERNATIVES ? n++ : n - 1;
        for (; at > 0 && distance[at - 1] > d; at--) {
            distance[at] = distance[at - 1];
            rows_out[at] = rows_out[at - 1];
        }
        distance[at] = d;
        rows_out[at] = row;
    }
    return n;
}

psc_status_t psw_unknown_word(const psw_vectors_t *vectors, const char *path, const char *word,
                              psc_error_t *error)
{
    size_t rows[PSW_MOST_ALTERNATIVES];
    size_t n = psw_word_alternatives(vectors, word, strlen(word), rows);
    char list[256] = "";
    size_t used = 0;
    for (size_t k = 0; k < n && used < sizeof list; k++) {
        size_t size;
        const char *close_word = psw_vectors_word(vectors, rows[k], &size);
        int printed = snprintf(list + used, sizeof list - used, "%s %s",
                               k == 0 ? "; close to it:" : ",", close_word);
        used += (size_t)printed;
    }
    return psc_error_set(error, PSC_NOT_FOUND, "\"%.64s\" is not among the %zu words of %.100s%s",
                         word, psw_vectors_count(vectors), path, list);
}
