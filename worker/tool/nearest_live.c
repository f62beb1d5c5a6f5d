/*
 * Exact search over a live table: its rows come in blocks (embps_export_next), each is scaled to
 * length 1, and for each word the best ones are kept. The arithmetic is that of the search in a
 * file, so the scores are the same to the last bit; of equal scores the lower id comes first. A row
 * that changes meanwhile counts as it was in its block.
 *
 * A row with a value that is not finite has no direction: it is left out, and said how many there
 * are; asked for, it is refused by name, before the table is looked through. Scores are numbers
 * therefore, and have an order.
 *
 * Rows that have no value of their own (never pushed, expired) are not among the answers, but can
 * be asked for: then their initial value is looked for. Memory: a block, and the best of each word.
 * One thread.
 */
#include "worker/tool/nearest_live.h"

#include "common/alloc.h"
#include "common/log.h"
#include "common/vectors.h"
#include "worker/programs/client_error.h"
#include "worker/tool/hit_output.h"
#include "worker/tool/vector_search.h"
#include "worker/tool/word_list.h"

#include <inttypes.h>
#include <string.h>

enum { ROW_BLOCK = 256 };

typedef struct live_search {
    const psw_visit_t *visit;
    const psw_nearest_live_t *asked;
    psw_vectors_t *words; /* NULL: ids */
    embps_table_t *table;
    size_t n, dim, stride, top;
    uint64_t n_not_finite; /* rows left out */
    uint64_t *ids;         /* [n] of the words */
    float *queries;        /* [n, stride] */
    float *rows;           /* [ROW_BLOCK, stride] */
    float *scores;         /* [n, ROW_BLOCK] */
    psw_hit_t *hits;       /* [n, top] */
    size_t *n_hits;        /* [n] */
    psw_named_hit_t *named;
    char (*numbers)[PSW_ID_TEXT_SIZE]; /* [top] */
} live_search_t;

/* dim floats, and zeros up to stride; scaled. */
static void put_row(const live_search_t *s, const float *from, float *to)
{
    memcpy(to, from, s->dim * sizeof *to);
    memset(to + s->dim, 0, (s->stride - s->dim) * sizeof *to);
    psw_vector_normalize(to, s->dim, s->stride);
}

static psc_status_t allocate(live_search_t *s, psc_error_t *error)
{
    s->dim = embps_table_dim(s->table);
    s->stride = (s->dim + 15) / 16 * 16;
    s->top = s->asked->top;
    s->queries = psc_alloc_array(s->n, s->stride * sizeof *s->queries);
    s->rows = psc_alloc_array(ROW_BLOCK, s->stride * sizeof *s->rows);
    s->scores = psc_alloc_array(s->n, ROW_BLOCK * sizeof *s->scores);
    s->hits = psc_alloc_array(s->n, s->top * sizeof *s->hits);
    s->n_hits = psc_alloc_zeroed(s->n, sizeof *s->n_hits);
    s->named = psc_alloc_array(s->top, sizeof *s->named);
    s->numbers = psc_alloc_array(s->top, sizeof *s->numbers);
    if (s->queries == NULL || s->rows == NULL || s->scores == NULL || s->hits == NULL ||
        s->n_hits == NULL || s->named == NULL || s->numbers == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "no memory for a search");
    return PSC_OK;
}

static void free_search(live_search_t *s)
{
    psw_vectors_destroy(s->words);
    psc_free(s->ids);
    psc_free(s->queries);
    psc_free(s->rows);
    psc_free(s->scores);
    psc_free(s->hits);
    psc_free(s->n_hits);
    psc_free(s->named);
    psc_free(s->numbers);
}

/* The vectors of the words. */
static psc_status_t pull_queries(live_search_t *s, psc_error_t *error)
{
    embps_error_t what;
    float *rows = psc_alloc_array(s->n, s->dim * sizeof *rows);
    if (rows == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "no memory for %zu rows", s->n);
    psc_status_t st = PSC_OK;
    size_t q = 0;
    if (embps_pull_states(s->table, s->ids, s->n, rows, NULL, EMBPS_PULL_SCAN | EMBPS_PULL_EXACT,
                          &what) != 0)
        st = psw_error_import(&what, error);
    for (; st == PSC_OK && q < s->n && psc_vector_all_finite(rows + q * s->dim, s->dim); q++)
        put_row(s, rows + q * s->dim, s->queries + q * s->stride);
    if (st == PSC_OK && q < s->n)
        st = psc_error_set(error, PSC_INVALID_ARGUMENT,
                           "the row of \"%.80s\" in table %.80s has a value that is not finite: "
                           "there is nothing near it",
                           s->visit->words.items[q], s->asked->table);
    psc_free(rows);
    return st;
}

/* n rows of a block, at most ROW_BLOCK, less those that are not finite: scaled, and their ids.
 * Returns how many. */
static size_t put_rows(live_search_t *s, const embps_block_t *block, size_t first, size_t n,
                       uint64_t ids[ROW_BLOCK])
{
    size_t n_put = 0;
    for (size_t i = first; i < first + n; i++) {
        const float *row = block->rows + i * s->dim;
        if (!psc_vector_all_finite(row, s->dim)) {
            s->n_not_finite++;
            continue;
        }
        put_row(s, row, s->rows + n_put * s->stride);
        ids[n_put++] = block->ids[i];
    }
    return n_put;
}

static void look_through(live_search_t *s, const embps_block_t *block)
{
    uint64_t ids[ROW_BLOCK];
    for (size_t at = 0; at < block->n; at += ROW_BLOCK) {
        const size_t left = block->n - at;
        const size_t n = put_rows(s, block, at, left < ROW_BLOCK ? left : ROW_BLOCK, ids);
        psc_vector_dot_many(s->queries, s->stride, s->n, s->rows, s->stride, n, s->stride,
                            s->scores, ROW_BLOCK);
        for (size_t q = 0; q < s->n; q++) {
            for (size_t i = 0; i < n; i++) {
                const psw_hit_t hit = {.row = ids[i], .score = s->scores[q * ROW_BLOCK + i]};
                if (hit.row != s->ids[q])
                    psw_hits_insert(s->hits + q * s->top, &s->n_hits[q], s->top, hit);
            }
        }
    }
}

static psc_status_t search(live_search_t *s, psc_error_t *error)
{
    embps_error_t what;
    embps_export_t *walk;
    embps_block_t block;
    psc_status_t st = pull_queries(s, error);
    if (st != PSC_OK)
        return st;
    if (embps_export_start(s->table, 0, &walk, &what) != 0)
        return psw_error_import(&what, error);
    do {
        if (embps_export_next(walk, &block, &what) != 0)
            st = psw_error_import(&what, error);
        else
            look_through(s, &block);
    } while (st == PSC_OK && block.n != 0);
    embps_export_end(walk);
    return st;
}

static psc_status_t print(live_search_t *s, psc_error_t *error)
{
    psw_hit_output_t output;
    if (s->n_not_finite != 0)
        psc_log(PSC_LOG_WARN,
                "table %.80s: %" PRIu64 " rows with a value that is not finite are left out",
                s->asked->table, s->n_not_finite);
    psc_status_t st = psw_hit_output_start(&output, s->visit->options.json, error);
    if (st != PSC_OK)
        return st;
    for (size_t q = 0; st == PSC_OK && q < s->n; q++) {
        for (size_t k = 0; k < s->n_hits[q]; k++) {
            const psw_hit_t *hit = &s->hits[q * s->top + k];
            s->named[k].score = hit->score;
            s->named[k].word =
                psw_word_list_word(s->words, hit->row, s->numbers[k], &s->named[k].size);
        }
        st = psw_hit_output_add_named(&output, s->visit->words.items[q], s->named, s->n_hits[q],
                                      error);
    }
    return psw_hit_output_finish(&output, st, error);
}

static psc_status_t find_words(live_search_t *s, psc_error_t *error)
{
    psc_status_t st = PSC_OK;
    s->n = s->visit->words.n;
    s->ids = psc_alloc_array(s->n, sizeof *s->ids);
    if (s->ids == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "no memory for %zu words", s->n);
    if (s->asked->vocab != NULL)
        st = psw_word_list_load(s->asked->vocab, &s->words, error);
    for (size_t i = 0; st == PSC_OK && i < s->n; i++)
        st = psw_word_list_id(s->words, s->asked->vocab, s->visit->words.items[i], &s->ids[i],
                              error);
    return st;
}

psc_status_t psw_nearest_live(const psw_visit_t *visit, const psw_nearest_live_t *asked,
                              psc_error_t *error)
{
    live_search_t s = {.visit = visit, .asked = asked};
    psc_status_t st = find_words(&s, error);
    if (st == PSC_OK)
        st = psw_visit_table(visit, asked->table, &s.table, error);
    if (st == PSC_OK)
        st = allocate(&s, error);
    if (st == PSC_OK)
        st = search(&s, error);
    if (st == PSC_OK)
        st = print(&s, error);
    free_search(&s);
    return st;
}
