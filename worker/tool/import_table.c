/*
 * embps import: a file into a table of running servers.
 *
 * A file of whole rows says itself how its table was made, so the table is made where there is none
 * of the name; vectors go into one that exists, whose optimizer keeps what it knows of rows that
 * are there. A file is read twice: whole, before a table is made or a row set, so that one that is
 * damaged changes nothing; then block by block. What fails after that, a server that is gone,
 * leaves the rows that were set, and the same import again sets all.
 *
 * Of vectors with the same id, by the same word or by another spelling of it, the first counts: so
 * it is with everything else that reads such files, here (psw_vectors_load) and in gensim, and what
 * embps nearest finds in the file it then finds in the table. embps_import alone would take the
 * last, as embps_push does of a batch. One thread.
 */
#include "common/alloc.h"
#include "common/output.h"
#include "worker/programs/client_error.h"
#include "worker/tool/address_options.h"
#include "worker/tool/commands.h"
#include "worker/tool/hit_output.h"
#include "worker/tool/row_file.h"
#include "worker/tool/word_list.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { VECTORS_AT_A_TIME = 1024 };

typedef struct import_options {
    psw_address_options_t address; /* first */
    const char *input, *vocab;
} import_options_t;

static const psc_option_t options[] = {
    {.name = "input",
     .argument = "FILE",
     .type = PSC_OPTION_TEXT,
     .offset = offsetof(import_options_t, input),
     .required = true,
     .help = "What embps export wrote, or vectors in word2vec's text or binary form, GloVe's or "
             "fastText's text form."},
    {.name = "vocab",
     .argument = "FILE",
     .type = PSC_OPTION_TEXT,
     .offset = offsetof(import_options_t, vocab),
     .help = "With vectors: a vocabulary as embps-train writes it (line i, from 0, is id i). "
             "Without one the words of the file must be ids."},
};

static const psc_command_t command = {
    .name = "embps import",
    .synopsis = "ADDRESS TABLE --input FILE [options]",
    .summary = "Sets rows of a table of running servers from a file.",
    .description =
        "ADDRESS is that of one of the servers (embps-server --listen). What embps export wrote as "
        "whole rows is set as it was, with the optimizer's state, in a table of the same options, "
        "which is made if there is none. Vectors are set in a table that exists, since a file of "
        "them does not say how it is trained; what its optimizer knows of them stays. Of vectors "
        "of "
        "the same word or id the first counts, as it does to embps nearest --vectors, and it is "
        "said how many others there are.\n\nA file is "
        "read and checked whole before a table is made or a row is set. An import that fails after "
        "that, because a server is gone, leaves the rows that were set; the same import again sets "
        "all of them.",
    .options = options,
    .n_options = sizeof options / sizeof options[0],
    .operands = "ADDRESS TABLE",
    .min_operands = 2,
    .max_operands = 2,
    .examples = "embps import 127.0.0.1:50051 words --input words.rows",
};

typedef struct importer {
    const psw_visit_t *visit;
    const import_options_t *options;
    embps_table_t *table;
    uint64_t n_rows, n_created;
    uint64_t n_repeated; /* vectors that did not count, since one before had the same id */
} importer_t;

static psc_status_t set(importer_t *importer, const embps_block_t *block, psc_error_t *error)
{
    embps_error_t what;
    uint64_t created;
    if (embps_import(importer->table, block, &created, &what) != 0)
        return psw_error_import(&what, error);
    importer->n_rows += block->n;
    importer->n_created += created;
    return PSC_OK;
}

/* One that is there must be as the file says; servers compare. */
static psc_status_t open_table(importer_t *importer, const embps_table_options_t *table_options,
                               psc_error_t *error)
{
    embps_error_t what;
    const char *name = importer->visit->words.items[1];
    return embps_table_open(importer->visit->client, name, table_options, &importer->table,
                            &what) == 0
               ? PSC_OK
               : psw_error_import(&what, error);
}

static psc_status_t check_whole(const char *path, psc_error_t *error)
{
    psw_row_reader_t *reader;
    embps_block_t block = EMBPS_BLOCK_DEFAULT;
    psc_status_t st = psw_row_reader_open(path, &reader, error);
    if (st != PSC_OK)
        return st;
    do
        st = psw_row_reader_next(reader, &block, error);
    while (st == PSC_OK && block.n != 0);
    psw_row_reader_close(reader);
    return st;
}

static psc_status_t import_rows(importer_t *importer, psc_error_t *error)
{
    psw_row_reader_t *reader;
    embps_block_t block = EMBPS_BLOCK_DEFAULT;
    psc_status_t st = check_whole(importer->options->input, error);
    if (st == PSC_OK)
        st = psw_row_reader_open(importer->options->input, &reader, error);
    if (st != PSC_OK)
        return st;
    st = open_table(importer, psw_row_reader_options(reader), error);
    do {
        if (st == PSC_OK)
            st = psw_row_reader_next(reader, &block, error);
        if (st == PSC_OK)
            st = set(importer, &block, error);
    } while (st == PSC_OK && block.n != 0);
    psw_row_reader_close(reader);
    return st;
}

typedef struct numbered {
    uint64_t id;
    size_t row; /* of the set */
} numbered_t;

/* Vectors that are read, and those that count, by their ids. */
typedef struct vectors {
    psw_vectors_t *set, *words; /* words NULL: ids */
    numbered_t *numbered;
    size_t n;
} vectors_t;

static int by_id_and_row(const void *a, const void *b)
{
    const numbered_t *x = a, *y = b;
    if (x->id != y->id)
        return x->id < y->id ? -1 : 1;
    return x->row < y->row ? -1 : x->row > y->row;
}

/* The first of each id stays. */
static void drop_repeated(vectors_t *vectors)
{
    size_t n = 0;
    if (vectors->n == 0)
        return;
    qsort(vectors->numbered, vectors->n, sizeof *vectors->numbered, by_id_and_row);
    for (size_t i = 0; i < vectors->n; i++) {
        if (n == 0 || vectors->numbered[i].id != vectors->numbered[n - 1].id)
            vectors->numbered[n++] = vectors->numbered[i];
    }
    vectors->n = n;
}

static psc_status_t load_vectors(const import_options_t *o, vectors_t *vectors, psc_error_t *error)
{
    psc_status_t st = psw_vectors_load(o->input, &vectors->set, error);
    if (st == PSC_OK && o->vocab != NULL)
        st = psw_word_list_load(o->vocab, &vectors->words, error);
    if (st != PSC_OK)
        return st;
    vectors->n = psw_vectors_count(vectors->set);
    vectors->numbered = psc_alloc_array(vectors->n, sizeof *vectors->numbered);
    if (vectors->numbered == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "no memory for %zu ids", vectors->n);
    for (size_t i = 0; st == PSC_OK && i < vectors->n; i++) {
        size_t size;
        vectors->numbered[i].row = i;
        st = psw_word_list_id(vectors->words, o->vocab, psw_vectors_word(vectors->set, i, &size),
                              &vectors->numbered[i].id, error);
    }
    if (st == PSC_OK)
        drop_repeated(vectors);
    return st;
}

/* The table, which a file of vectors does not say how to make. */
static psc_status_t find_table(importer_t *importer, const vectors_t *vectors, psc_error_t *error)
{
    const char *name = importer->visit->words.items[1];
    psc_status_t st = psw_visit_table(importer->visit, name, &importer->table, error);
    if (st != PSC_NOT_FOUND)
        return st;
    return psc_error_set(error, st,
                         "there is no table %.80s, and vectors do not say how to make one: make it "
                         "first, of dim %zu, with embps_table_open (Client.table in Python)",
                         name, psw_vectors_dim(vectors->set));
}

static psc_status_t set_vectors(importer_t *importer, const vectors_t *vectors, psc_error_t *error)
{
    const size_t dim = psw_vectors_dim(vectors->set), n = vectors->n;
    uint64_t ids[VECTORS_AT_A_TIME];
    psc_status_t st = PSC_OK;
    float *rows = psc_alloc_array(VECTORS_AT_A_TIME, dim * sizeof *rows);
    if (rows == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "no memory for %d rows", VECTORS_AT_A_TIME);
    for (size_t at = 0; st == PSC_OK && at < n; at += VECTORS_AT_A_TIME) {
        embps_block_t block = EMBPS_BLOCK_DEFAULT;
        block.n = n - at < VECTORS_AT_A_TIME ? n - at : VECTORS_AT_A_TIME;
        block.dim = (uint32_t)dim;
        block.ids = ids;
        block.rows = rows;
        for (size_t i = 0; i < block.n; i++) {
            const numbered_t *from = &vectors->numbered[at + i];
            ids[i] = from->id;
            memcpy(rows + i * dim, psw_vectors_row(vectors->set, from->row), dim * sizeof *rows);
        }
        st = set(importer, &block, error);
    }
    psc_free(rows);
    return st;
}

static psc_status_t import_vectors(importer_t *importer, psc_error_t *error)
{
    vectors_t vectors = {0};
    psc_status_t st = load_vectors(importer->options, &vectors, error);
    if (st == PSC_OK)
        st = find_table(importer, &vectors, error);
    if (st == PSC_OK)
        st = set_vectors(importer, &vectors, error);
    if (st == PSC_OK)
        importer->n_repeated =
            psw_vectors_repeated(vectors.set) + (psw_vectors_count(vectors.set) - vectors.n);
    psc_free(vectors.numbered);
    psw_vectors_destroy(vectors.words);
    psw_vectors_destroy(vectors.set);
    return st;
}

static psc_status_t import_table(const psw_visit_t *visit, psc_error_t *error)
{
    importer_t importer = {.visit = visit, .options = visit->own};
    const bool whole = psw_row_file_is(importer.options->input);
    if (whole && importer.options->vocab != NULL)
        return psc_error_set(error, PSC_INVALID_ARGUMENT,
                             "--vocab: %s holds whole rows, which have ids and no words",
                             importer.options->input);
    psc_status_t st = whole ? import_rows(&importer, error) : import_vectors(&importer, error);
    if (st != PSC_OK)
        return st;
    if (visit->options.json)
        return psw_json_print(json_pack("{s:I, s:I, s:I}", "rows", (json_int_t)importer.n_rows,
                                        "created", (json_int_t)importer.n_created, "repeated",
                                        (json_int_t)importer.n_repeated),
                              error);
    (void)printf("%" PRIu64 " rows set, %" PRIu64 " of them new\n", importer.n_rows,
                 importer.n_created);
    if (importer.n_repeated != 0)
        (void)printf("%" PRIu64 " vectors of words or ids that were there before are left out\n",
                     importer.n_repeated);
    return psc_output_flush(error);
}

psc_status_t psw_tool_import(int argc, char *const argv[], psc_error_t *error)
{
    import_options_t values;
    return psw_visit_with(&command, &values, argc, argv, import_table, error);
}
