/*
 * embps analogy: A is to B as C is to what? 3CosAdd (Mikolov, Yih, Zweig 2013): the words nearest
 * to B - A + C by cosine, the three themselves excluded.
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
    .name = "embps analogy",
    .synopsis = "--vectors FILE [options] A B C",
    .summary = "Answers: A is to B as C is to what?",
    .description =
        "The words nearest to B - A + C by cosine, with A, B and C themselves left out. A "
        "word that the file does not hold is tried in lower case.",
    .options = psw_search_option_table,
    .n_options = PSW_SEARCH_OPTION_COUNT,
    .operands = "A B C",
    .examples = "embps analogy --vectors vectors.txt man king woman",
};

/* The rows of three words; every unknown one is said. */
static psc_status_t find_words(const psw_vectors_t *vectors, const char *path,
                               const psc_option_list_t *words, size_t rows[3], psc_error_t *error)
{
    psc_status_t st = PSC_OK;
    for (size_t k = 0; k < 3; k++) {
        if (psw_word_lookup(vectors, psw_vectors_count(vectors), words->items[k],
                            strlen(words->items[k]), &rows[k]) != PSW_LOOKUP_NONE)
            continue;
        psc_error_t unknown = PSC_ERROR_INIT;
        if (st != PSC_OK)
            psc_log(PSC_LOG_ERROR, "%s", error->message);
        st = psw_unknown_word(vectors, path, words->items[k], &unknown);
        *error = unknown;
    }
    return st;
}

static psc_status_t answer(const psw_vectors_t *vectors, const psw_search_options_t *o,
                           const psc_option_list_t *words, float *query, psw_hit_t *hits,
                           psc_error_t *error)
{
    psw_excluded_t inputs = {.n = 3};
    psc_status_t st = find_words(vectors, o->vectors, words, inputs.rows, error);
    if (st != PSC_OK)
        return st;
    psw_analogy_query(vectors, inputs.rows[0], inputs.rows[1], inputs.rows[2], query);
    size_t n;
    st = psw_search(vectors, psw_vectors_count(vectors), query, 1, &inputs, (size_t)o->top, hits,
                    &n, error);
    if (st != PSC_OK)
        return st;
    char title[512];
    (void)snprintf(title, sizeof title, "%.120s is to %.120s as %.120s is to", words->items[0],
                   words->items[1], words->items[2]);
    psw_hit_output_t output;
    st = psw_hit_output_start(&output, o->json, error);
    if (st != PSC_OK)
        return st;
    st = psw_hit_output_add(&output, title, vectors, hits, n, error);
    return psw_hit_output_finish(&output, st, error);
}

psc_status_t psw_tool_analogy(int argc, char *const argv[], psc_error_t *error)
{
    psw_search_options_t o = {0};
    psc_option_list_t words = {0};
    psc_parse_result_t parsed;
    psc_status_t st = psc_options_parse(&command, argc, argv, &o, &words, NULL, &parsed, error);
    if (st != PSC_OK || parsed == PSC_PARSE_EXIT)
        return st;
    if (words.n != 3)
        return psc_error_set(error, PSC_INVALID_ARGUMENT,
                             "analogy: three words are needed, %zu are given; see embps "
                             "analogy --help",
                             words.n);
    psw_vectors_t *vectors;
    st = psw_vectors_load(o.vectors, &vectors, error);
    if (st != PSC_OK)
        return st;
    psw_vectors_normalize(vectors);
    psw_hit_t *hits = psc_alloc_array((size_t)o.top, sizeof *hits);
    float *query = psc_alloc_array(psw_vectors_stride(vectors), sizeof *query);
    if (hits == NULL || query == NULL)
        st = psc_error_set(error, PSC_NO_MEMORY, "no memory for %llu neighbours",
                           (unsigned long long)o.top);
    else
        st = answer(vectors, &o, &words, query, hits, error);
    psc_free(query);
    psc_free(hits);
    psw_vectors_destroy(vectors);
    return st;
}
