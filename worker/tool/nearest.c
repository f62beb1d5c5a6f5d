/*
 * embps nearest: the words whose vectors have the greatest cosine with that of a word, in a file or
 * in a table of running servers (nearest_live.c).
 *
 * Each word is looked up as typed, then in lower case. Of a file, known words are answered even if
 * others are unknown; those are reported after, and the exit status says so. A table is looked
 * through once for all words, so with one that is unknown it is not begun.
 */
#include "common/alloc.h"
#include "common/log.h"
#include "worker/tool/commands.h"
#include "worker/tool/hit_output.h"
#include "worker/tool/nearest_live.h"
#include "worker/tool/vector_search.h"
#include "worker/tool/word_lookup.h"

#include <string.h>

typedef struct nearest_options {
    psw_address_options_t address; /* first */
    const char *vectors, *server;
    const char *table, *vocab;
    uint64_t top;
} nearest_options_t;

static const psc_option_t options[] = {
    {.name = "vectors",
     .argument = "FILE",
     .type = PSC_OPTION_TEXT,
     .offset = offsetof(nearest_options_t, vectors),
     .help = "Vectors in word2vec's text or binary form, GloVe's or fastText's text form."},
    {.name = "server",
     .argument = "ADDRESS",
     .type = PSC_OPTION_TEXT,
     .offset = offsetof(nearest_options_t, server),
     .help = "Instead of a file: one of the servers (embps-server --listen) of a live table."},
    {.name = "table",
     .argument = "TABLE",
     .type = PSC_OPTION_TEXT,
     .offset = offsetof(nearest_options_t, table),
     .help = "With --server: the table."},
    {.name = "vocab",
     .argument = "FILE",
     .type = PSC_OPTION_TEXT,
     .offset = offsetof(nearest_options_t, vocab),
     .help = "With --server: a vocabulary as embps-train writes it (line i, from 0, is id i). "
             "Without one words are ids."},
    {.name = "top",
     .argument = "N",
     .type = PSC_OPTION_U64,
     .offset = offsetof(nearest_options_t, top),
     .min = 1,
     .max = 1000,
     .default_value = "10",
     .help = "How many words to show."},
};

static const psc_command_t command = {
    .name = "embps nearest",
    .synopsis = "(--vectors FILE, or --server ADDRESS --table TABLE) [options] WORD...",
    .summary = "Shows the nearest words of words.",
    .description =
        "For each WORD, the words whose vectors have the greatest cosine with its own. A "
        "word that the file does not hold is tried in lower case.\n\nOf a live table every row "
        "is looked at, once, while pushes go on; memory does not grow with the table. Rows with a "
        "value that is not finite are left out, and how many is said.",
    .options = options,
    .n_options = sizeof options / sizeof options[0],
    .operands = "WORD...",
    .examples = "embps nearest --vectors vectors.txt king physics\n"
                "embps nearest --server 127.0.0.1:50051 --table words --vocab vocab.txt king",
};

static psc_status_t answer(const psw_vectors_t *vectors, const nearest_options_t *o, size_t row,
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

static psc_status_t answer_all(const psw_vectors_t *vectors, const nearest_options_t *o,
                               const psc_option_list_t *words, psw_hit_t *hits, psc_error_t *error)
{
    psw_hit_output_t output;
    psc_status_t st = psw_hit_output_start(&output, o->address.json, error);
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

static psc_status_t search_file(const nearest_options_t *o, const psc_option_list_t *words,
                                psc_error_t *error)
{
    psw_vectors_t *vectors;
    psc_status_t st = psw_vectors_load(o->vectors, &vectors, error);
    if (st != PSC_OK)
        return st;
    psw_vectors_normalize(vectors);
    psw_hit_t *hits = psc_alloc_array((size_t)o->top, sizeof *hits);
    if (hits == NULL)
        st = psc_error_set(error, PSC_NO_MEMORY, "no memory for %llu neighbours",
                           (unsigned long long)o->top);
    else
        st = answer_all(vectors, o, words, hits, error);
    psc_free(hits);
    psw_vectors_destroy(vectors);
    return st;
}

static psc_status_t search_table(const psw_visit_t *visit, psc_error_t *error)
{
    const nearest_options_t *o = visit->own;
    const psw_nearest_live_t asked = {.table = o->table, .vocab = o->vocab, .top = (size_t)o->top};
    return psw_nearest_live(visit, &asked, error);
}

psc_status_t psw_tool_nearest(int argc, char *const argv[], psc_error_t *error)
{
    nearest_options_t o = {.top = 0};
    psw_visit_t visit;
    bool go_on;
    psc_status_t st = psw_visit_parse(&command, &o, argc, argv, &visit, &go_on, error);
    if (st != PSC_OK || !go_on)
        return st;
    if ((o.vectors != NULL) == (o.server != NULL) || (o.server != NULL) != (o.table != NULL))
        return psc_error_set(error, PSC_INVALID_ARGUMENT,
                             "nearest: wants --vectors FILE, or --server ADDRESS and --table "
                             "TABLE; see embps nearest --help");
    if (o.vectors != NULL && o.vocab != NULL)
        return psc_error_set(error, PSC_INVALID_ARGUMENT,
                             "--vocab: goes with --table; a file of vectors has words");
    if (visit.words.n == 0)
        return psc_error_set(error, PSC_INVALID_ARGUMENT,
                             "nearest: no word given; see embps nearest --help");
    return o.server != NULL ? psw_visit_address(&visit, o.server, search_table, error)
                            : search_file(&o, &visit.words, error);
}
