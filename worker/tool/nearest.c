/*
 * embps nearest: the words whose vectors have the greatest cosine with that of a word.
 *
 * Each word is looked up as typed, then in lower case. Known words are answered even if others are
 * unknown; those are reported after, and the exit status says so.
 */
#include "common/alloc.h"
#include "common/log.h"
#include "worker/tool/commands.h"
#include "worker/tool/hit_output.h"
#include "worker/tool/search_options.h"
#include "worker/tool/vector_search.h"
#include "worker/tool/word_lookup.h"

#include <string.h>

static const psc_command_t command = {
    .name = "embps nearest",
    .synopsis = "--vectors FILE [options] WORD...",
    .summary = "Shows the nearest words of words.",
    .description =
        "For each WORD, the words whose vectors have the greatest cosine with its own. A "
        "word that the file does not hold is tried in lower case.",
    .options = psw_search_option_table,
    .n_options = PSW_SEARCH_OPTION_COUNT,
    .operands = "WORD...",
    .examples = "embps nearest --vectors vectors.txt king physics",
};

static psc_status_t answer(const psw_vectors_t *vectors, const psw_search_options_t *o, size_t row,
                           psw_hit_t *hits, psw_hit_output_t *output, psc_error_t *error)
{
    psw_excluded_t self = {.rows = {row}, .n = 1};
    size_t n;
    psc_status_t st = psw_search(vectors, psw_vectors_count(vectors), psw_vectors_row(vectors, row),
                                 1, &self, (size_t)o->top, hits, &n, error);
    if (st != PSC_OK)
        return st;
    size_t size;
    const char *word = psw_vectors_word(vectors, row, &size);
    return psw_hit_output_add(output, word, vectors, hits, n, error);
}

static psc_status_t answer_all(const psw_vectors_t *vectors, const psw_search_options_t *o,
                               const psc_option_list_t *words, psw_hit_t *hits, psc_error_t *error)
{
    psw_hit_output_t output;
    psc_status_t st = psw_hit_output_start(&output, o->json, error);
    psc_error_t unknown = PSC_ERROR_INIT;
    for (size_t i = 0; st == PSC_OK && i < words->n; i++) {
        size_t row;
        if (psw_word_lookup(vectors, psw_vectors_count(vectors), words->items[i],
                            strlen(words->items[i]), &row) != PSW_LOOKUP_NONE) {
            st = answer(vectors, o, row, hits, &output, error);
            continue;
        }
        /* Several unknown words: all but the last are said here. */
        if (unknown.code != PSC_OK)
            psc_log(PSC_LOG_ERROR, "%s", unknown.message);
        (void)psw_unknown_word(vectors, o->vectors, words->items[i], &unknown);
    }
    st = psw_hit_output_finish(&output, st, error);
    if (st == PSC_OK && unknown.code != PSC_OK) {
        *error = unknown;
        st = unknown.code;
    }
    return st;
}

psc_status_t psw_tool_nearest(int argc, char *const argv[], psc_error_t *error)
{
    psw_search_options_t o = {0};
    psc_option_list_t words = {0};
    psc_parse_result_t parsed;
    psc_status_t st = psc_options_parse(&command, argc, argv, &o, &words, NULL, &parsed, error);
    if (st != PSC_OK || parsed == PSC_PARSE_EXIT)
        return st;
    if (words.n == 0)
        return psc_error_set(error, PSC_INVALID_ARGUMENT,
                             "nearest: no word given; see embps nearest --help");
    psw_vectors_t *vectors;
    st = psw_vectors_load(o.vectors, &vectors, error);
    if (st != PSC_OK)
        return st;
    psw_vectors_normalize(vectors);
    psw_hit_t *hits = psc_alloc_array((size_t)o.top, sizeof *hits);
    if (hits == NULL)
        st = psc_error_set(error, PSC_NO_MEMORY, "no memory for %llu neighbours",
                           (unsigned long long)o.top);
    else
        st = answer_all(vectors, &o, &words, hits, error);
    psc_free(hits);
    psw_vectors_destroy(vectors);
    return st;
}
