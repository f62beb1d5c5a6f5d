/*
 * Similarity files and Spearman's rank correlation. The file is read whole (they have a few
 * thousand lines; 64 MiB is the limit) and cut in place. Ranks come from a sort, n log n. Threads:
 * none here.
 */
#include "worker/tool/similarity.h"

#include "common/alloc.h"
#include "common/file.h"
#include "common/vectors.h"
#include "worker/tool/word_lookup.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_FILE_BYTES = 64 << 20 };

/* Part of the file's text. */
typedef struct field {
    const char *text;
    size_t size;
} field_t;

typedef struct rank_item {
    double value;
    size_t at;
} rank_item_t;

static int by_value(const void *a, const void *b)
{
    double x = ((const rank_item_t *)a)->value;
    double y = ((const rank_item_t *)b)->value;
    return (x > y) - (x < y);
}

/* Ranks from 1 on; equal values get the mean of theirs. */
static void rank(const double *values, size_t n, rank_item_t *items, double *ranks)
{
    for (size_t i = 0; i < n; i++)
        items[i] = (rank_item_t){.value = values[i], .at = i};
    qsort(items, n, sizeof *items, by_value);
    for (size_t i = 0; i < n;) {
        size_t end = i + 1;
        while (end < n && items[end].value == items[i].value)
            end++;
        double mean = (double)(i + 1 + end) / 2.0;
        for (; i < end; i++)
            ranks[items[i].at] = mean;
    }
}

psc_status_t psw_spearman(const double *a, const double *b, size_t n, bool *defined_out,
                          double *spearman_out, psc_error_t *error)
{
    rank_item_t *items = psc_alloc_array(n, sizeof *items);
    double *rank_a = psc_alloc_array(n, sizeof *rank_a);
    double *rank_b = psc_alloc_array(n, sizeof *rank_b);
    psc_status_t st = PSC_OK;
    if (items == NULL || rank_a == NULL || rank_b == NULL) {
        st = psc_error_set(error, PSC_NO_MEMORY, "no memory for %zu ranks", n);
    } else {
        rank(a, n, items, rank_a);
        rank(b, n, items, rank_b);
        double mean = ((double)n + 1.0) / 2.0;
        double ab = 0;
        double aa = 0;
        double bb = 0;
        for (size_t i = 0; i < n; i++) {
            ab += (rank_a[i] - mean) * (rank_b[i] - mean);
            aa += (rank_a[i] - mean) * (rank_a[i] - mean);
            bb += (rank_b[i] - mean) * (rank_b[i] - mean);
        }
        *defined_out = aa > 0 && bb > 0;
        *spearman_out = *defined_out ? ab / sqrt(aa * bb) : 0.0;
    }
    psc_free(items);
    psc_free(rank_a);
    psc_free(rank_b);
    return st;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

/* Next field of a line from *at on, without blanks around; false when there is none. */
static bool next_field(const char *line, size_t size, char separator, size_t *at, field_t *field)
{
    size_t start = *at;
    if (separator == ' ')
        while (start < size && is_blank(line[start]))
            start++;
    if (start >= size)
        return false;
    size_t end = start;
    while (end < size && line[end] != separator)
        end++;
    *at = end + 1;
    while (start < end && is_blank(line[start]))
        start++;
    while (end > start && is_blank(line[end - 1]))
        end--;
    *field = (field_t){.text = line + start, .size = end - start};
    return true;
}

static bool parse_number(const field_t *field, double *value_out)
{
    char text[64];
    if (field->size == 0 || field->size >= sizeof text)
        return false;
    memcpy(text, field->text, field->size);
    text[field->size] = '\0';
    char *end;
    double value = strtod(text, &end);
    *value_out = value;
    return end == text + field->size && isfinite(value);
}

/* A line as pair; false when it is none. */
static bool parse_pair(const char *line, size_t size, field_t words[2], double *score_out)
{
    char separator = memchr(line, '\t', size) != NULL  ? '\t'
                     : memchr(line, ',', size) != NULL ? ','
                                                       : ' ';
    size_t at = 0;
    for (int k = 0; k < 2; k++)
        if (!next_field(line, size, separator, &at, &words[k]) || words[k].size == 0)
            return false;
    field_t field;
    while (next_field(line, size, separator, &at, &field))
        if (parse_number(&field, score_out))
            return true;
    return false;
}

/* Human scores and cosines of the pairs that are used; arrays with room for every line. */
typedef struct pairs {
    double *human;
    double *cosine;
    size_t n;
} pairs_t;

static void take_pair(const psw_vectors_t *vectors, size_t n_rows, const field_t words[2],
                      double score, psw_similarity_t *result, pairs_t *pairs)
{
    size_t rows[2];
    bool lowered = false;
    result->n_pairs++;
    for (int k = 0; k < 2; k++) {
        psw_lookup_t found =
            psw_word_lookup(vectors, n_rows, words[k].text, words[k].size, &rows[k]);
        if (found == PSW_LOOKUP_NONE)
            return;
        lowered = lowered || found == PSW_LOOKUP_LOWERED;
    }
    result->n_used++;
    result->n_lowered += lowered ? 1 : 0;
    pairs->human[pairs->n] = score;
    pairs->cosine[pairs->n++] =
        (double)psc_vector_dot(psw_vectors_row(vectors, rows[0]), psw_vectors_row(vectors, rows[1]),
                               psw_vectors_stride(vectors));
}

static psc_status_t take_lines(const psw_vectors_t *vectors, size_t n_rows, const char *path,
                               const char *text, size_t size, psw_similarity_t *result,
                               pairs_t *pairs, psc_error_t *error)
{
    size_t number = 0;
    bool begun = false; /* a line that is neither empty nor a comment was met */
    size_t start = size >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
    while (start < size) {
        const char *line = text + start;
        const char *end = memchr(line, '\n', size - start);
        size_t line_size = end != NULL ? (size_t)(end - line) : size - start;
        start += line_size + 1;
        number++;
        while (line_size > 0 && is_blank(line[line_size - 1]))
            line_size--;
        if (line_size == 0 || line[0] == '#')
            continue;
        field_t words[2];
        double score;
        if (parse_pair(line, line_size, words, &score))
            take_pair(vectors, n_rows, words, score, result, pairs);
        else if (begun)
            return psc_error_set(error, PSC_CORRUPT, "%s, line %zu: not two words and a score",
                                 path, number);
        begun = true;
    }
    if (result->n_pairs == 0)
        return psc_error_set(error, PSC_CORRUPT, "%s holds no pair of words with a score", path);
    return PSC_OK;
}

psc_status_t psw_similarity_run(const psw_vectors_t *vectors, size_t n_rows, const char *path,
                                psw_similarity_t *result_out, psc_error_t *error)
{
    char *text;
    size_t size;
    psc_status_t st = psc_file_read(path, MOST_FILE_BYTES, &text, &size, error);
    if (st != PSC_OK)
        return st;
    size_t n_lines = 1;
    for (size_t i = 0; i < size; i++)
        n_lines += text[i] == '\n' ? 1 : 0;
    psw_similarity_t result = {0};
    pairs_t pairs = {.human = psc_alloc_array(n_lines, sizeof(double)),
                     .cosine = psc_alloc_array(n_lines, sizeof(double))};
    if (pairs.human == NULL || pairs.cosine == NULL)
        st = psc_error_set(error, PSC_NO_MEMORY, "no memory for the pairs of %s", path);
    else
        st = take_lines(vectors, n_rows, path, text, size, &result, &pairs, error);
    if (st == PSC_OK)
        st = psw_spearman(pairs.human, pairs.cosine, pairs.n, &result.defined, &result.spearman,
                          error);
    if (st == PSC_OK)
        *result_out = result;
    psc_free(pairs.human);
    psc_free(pairs.cosine);
    psc_free(text);
    return st;
}
