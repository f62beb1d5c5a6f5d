/*
 * embps import: a file into a table of running servers.
 *
 * A file of whole rows says itself how its table was made, so the table is made where there is
 * none of the name; vectors go into one that exists, whose optimizer keeps what it knows of rows
 * that are there. A file that is damaged is refused where the damage is: what came before is in the
 * table then, and the same import again, with a good file, sets all of it. One thread.
 */
#include "common/alloc.h"
#include "worker/programs/client_error.h"
#include "worker/tool/address_options.h"
#include "worker/tool/commands.h"
#include "worker/tool/hit_output.h"
#include "worker/tool/row_file.h"
#include "worker/tool/word_list.h"

#include <inttypes.h>
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
        "which is made if there is none. Vectors are set in a table that exists; what its "
        "optimizer knows of them stays.",
    .options = options,
    .n_options = sizeof options / sizeof options[0],
    .operands = "ADDRESS TABLE",
    .examples = "embps import 127.0.0.1:50051 words --input words.rows",
};

typedef struct importer {
    const psw_visit_t *visit;
    const import_options_t *options;
    embps_table_t *table;
    uint64_t n_rows, n_created;
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

static psc_status_t import_rows(importer_t *importer, psc_error_t *error)
{
    psw_row_reader_t *reader;
    embps_block_t block = EMBPS_BLOCK_DEFAULT;
    psc_status_t st = psw_row_reader_open(importer->options->input, &reader, error);
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

/* Rows first .. first + n - 1 of the file. rows: [VECTORS_AT_A_TIME, dim]. */
static psc_status_t set_vectors(importer_t *importer, const psw_vectors_t *vectors,
                                const psw_vectors_t *words, size_t first, size_t n, float *rows,
                                psc_error_t *error)
{
    uint64_t ids[VECTORS_AT_A_TIME];
    const size_t dim = psw_vectors_dim(vectors);
    psc_status_t st = PSC_OK;
    for (size_t i = 0; st == PSC_OK && i < n; i++) {
        size_t size;
        const char *word = psw_vectors_word(vectors, first + i, &size);
        st = psw_word_list_id(words, importer->options->vocab, word, &ids[i], error);
        memcpy(rows + i * dim, psw_vectors_row(vectors, first + i), dim * sizeof *rows);
    }
    embps_block_t block = EMBPS_BLOCK_DEFAULT;
    block.n = n;
    block.dim = (uint32_t)dim;
    block.ids = ids;
    block.rows = rows;
    return st == PSC_OK ? set(importer, &block, error) : st;
}

static psc_status_t import_vectors(importer_t *importer, psc_error_t *error)
{
    psw_vectors_t *vectors = NULL, *words = NULL;
    float *rows = NULL;
    psc_status_t st =
        psw_visit_table(importer->visit, importer->visit->words.items[1], &importer->table, error);
    if (st == PSC_OK)
        st = psw_vectors_load(importer->options->input, &vectors, error);
    if (st == PSC_OK && importer->options->vocab != NULL)
        st = psw_word_list_load(importer->options->vocab, &words, error);
    if (st == PSC_OK) {
        rows = psc_alloc_array(VECTORS_AT_A_TIME, psw_vectors_dim(vectors) * sizeof *rows);
        if (rows == NULL)
            st = psc_error_set(error, PSC_NO_MEMORY, "no memory for %d rows", VECTORS_AT_A_TIME);
    }
    for (size_t at = 0; st == PSC_OK && at < psw_vectors_count(vectors);) {
        const size_t left = psw_vectors_count(vectors) - at;
        const size_t n = left < VECTORS_AT_A_TIME ? left : VECTORS_AT_A_TIME;
        st = set_vectors(importer, vectors, words, at, n, rows, error);
        at += n;
    }
    psc_free(rows);
    psw_vectors_destroy(words);
    psw_vectors_destroy(vectors);
    return st;
}

static psc_status_t import_table(const psw_visit_t *visit, psc_error_t *error)
{
    importer_t importer = {.visit = visit, .options = visit->own};
    psc_status_t st = psw_row_file_is(importer.options->input) ? import_rows(&importer, error)
                                                               : import_vectors(&importer, error);
    if (st != PSC_OK)
        return st;
    if (visit->options.json)
        return psw_json_print(json_pack("{s:I, s:I}", "rows", (json_int_t)importer.n_rows,
                                        "created", (json_int_t)importer.n_created),
                              error);
    (void)printf("%" PRIu64 " rows set, %" PRIu64 " of them new\n", importer.n_rows,
                 importer.n_created);
    return psw_output_flush(error);
}

psc_status_t psw_tool_import(int argc, char *const argv[], psc_error_t *error)
{
    import_options_t values;
    return psw_visit_with(&command, &values, argc, argv, 2, import_table, error);
}
