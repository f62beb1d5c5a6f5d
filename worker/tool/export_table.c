/*
 * embps export: a table of running servers to a file.
 *
 * Rows come and are written in blocks, so memory is the same for any table; the file appears under
 * its name when it is whole. Rows are in the servers' order. A row with a value that is not finite
 * is written whole like any other, but is no vector: files of these are for other tools, and our
 * own reader takes such a value for damage. One thread.
 *
 * Signals: one that ends the program removes the temporary file first, in a handler, and ends it as
 * ever: at once, also while a server is silent. A handler knows nothing but what is static.
 */
#include "common/file.h"
#include "common/output.h"
#include "common/vectors.h"
#include "worker/programs/client_error.h"
#include "worker/tool/address_options.h"
#include "worker/tool/commands.h"
#include "worker/tool/hit_output.h"
#include "worker/tool/row_file.h"
#include "worker/tool/table_text.h"
#include "worker/tool/word_list.h"
#include "worker/vectors/word2vec.h"

#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

typedef struct export_options {
    psw_address_options_t address; /* first */
    const char *output, *format, *vocab;
} export_options_t;

static const char *const formats[] = {"rows", "text", "binary", NULL};

static const psc_option_t options[] = {
    {.name = "output",
     .argument = "FILE",
     .type = PSC_OPTION_TEXT,
     .offset = offsetof(export_options_t, output),
     .required = true,
     .help = "Where to write. What was there stays until the new file is whole."},
    {.name = "format",
     .argument = "FORMAT",
     .type = PSC_OPTION_TEXT,
     .offset = offsetof(export_options_t, format),
     .default_value = "rows",
     .choices = formats,
     .help = "rows: whole rows with the optimizer's state, which embps import reads back to the "
             "last bit. text, binary: vectors in word2vec's text or binary form."},
    {.name = "vocab",
     .argument = "FILE",
     .type = PSC_OPTION_TEXT,
     .offset = offsetof(export_options_t, vocab),
     .help = "With text and binary: a vocabulary as embps-train writes it (line i, from 0, is id "
             "i); rows of other ids are left out. Without one an id stands for its word."},
};

static const psc_command_t command = {
    .name = "embps export",
    .synopsis = "ADDRESS TABLE --output FILE [options]",
    .summary = "Writes a table of running servers to a file.",
    .description =
        "ADDRESS is that of one of the servers (embps-server --listen). All rows that were ever "
        "pushed are written, those that expired or were not admitted excepted, each as it is when "
        "it is read; training may go on meanwhile. Vectors are written in no particular order, and "
        "rows with a value that is not finite are none: whole rows alone carry them.",
    .options = options,
    .n_options = sizeof options / sizeof options[0],
    .operands = "ADDRESS TABLE",
    .min_operands = 2,
    .max_operands = 2,
    .examples = "embps export 127.0.0.1:50051 words --output words.rows\n"
                "embps export 127.0.0.1:50051 words --output words.txt --format text --vocab v.txt",
};

typedef struct exporter {
    const export_options_t *options;
    embps_table_t *table;
    psw_vectors_t *words; /* NULL: ids */
    psw_row_writer_t *rows;
    psw_vectors_writer_t *vectors;
    uint64_t n_written, n_left_out;
    uint64_t n_not_finite; /* rows with such values: written whole, no vectors */
} exporter_t;

/* Rows, and no vectors. */
static bool is_whole(const exporter_t *e)
{
    return strcmp(e->options->format, "rows") == 0;
}

static psc_status_t add_vectors(exporter_t *e, const embps_block_t *block, psc_error_t *error)
{
    psc_status_t st = PSC_OK;
    for (size_t i = 0; st == PSC_OK && i < block->n; i++) {
        char text[PSW_ID_TEXT_SIZE];
        size_t size;
        if (e->words != NULL && block->ids[i] >= psw_vectors_count(e->words)) {
            e->n_left_out++;
            continue;
        }
        if (!psc_vector_all_finite(block->rows + i * block->dim, block->dim)) {
            e->n_not_finite++;
            continue;
        }
        const char *word = psw_word_list_word(e->words, block->ids[i], text, &size);
        st = psw_vectors_writer_row(e->vectors, word, size, block->rows + i * block->dim, error);
        e->n_written++;
    }
    return st;
}

static psc_status_t add(exporter_t *e, const embps_block_t *block, psc_error_t *error)
{
    if (!is_whole(e))
        return add_vectors(e, block, error);
    for (size_t i = 0; i < block->n; i++)
        e->n_not_finite += !psc_vector_all_finite(block->rows + i * block->dim, block->dim);
    e->n_written += block->n;
    return psw_row_writer_add(e->rows, block, error);
}

static psc_status_t walk(exporter_t *e, psc_error_t *error)
{
    embps_error_t what;
    embps_export_t *export;
    embps_block_t block;
    psc_status_t st = PSC_OK;
    const uint32_t flags = is_whole(e) ? EMBPS_EXPORT_STATE : 0;
    if (embps_export_start(e->table, flags, &export, &what) != 0)
        return psw_error_import(&what, error);
    do {
        if (embps_export_next(export, &block, &what) != 0)
            st = psw_error_import(&what, error);
        else
            st = add(e, &block, error);
    } while (st == PSC_OK && block.n != 0);
    embps_export_end(export);
    return st;
}

static psc_status_t write_rows(exporter_t *e, const psw_visit_t *visit, FILE *stream,
                               psc_error_t *error)
{
    json_t *table_options;
    psc_status_t st =
        psw_table_text_find(visit->client, visit->words.items[1], &table_options, error);
    if (st != PSC_OK)
        return st;
    st = psw_row_writer_open(stream, table_options, &e->rows, error);
    json_decref(table_options);
    if (st != PSC_OK)
        return st;
    st = walk(e, error);
    if (st == PSC_OK)
        return psw_row_writer_close(e->rows, error);
    psw_row_writer_abort(e->rows);
    return st;
}

static psc_status_t write_vectors(exporter_t *e, FILE *stream, psc_error_t *error)
{
    psc_status_t st = PSC_OK;
    if (e->options->vocab != NULL)
        st = psw_word_list_load(e->options->vocab, &e->words, error);
    if (st == PSC_OK)
        st = psw_vectors_writer_open(stream, strcmp(e->options->format, "binary") == 0,
                                     PSW_VECTORS_UNCOUNTED, embps_table_dim(e->table), &e->vectors,
                                     error);
    if (st != PSC_OK)
        return st;
    st = walk(e, error);
    const psc_status_t closed = psw_vectors_writer_close(e->vectors, st == PSC_OK ? error : NULL);
    return st != PSC_OK ? st : closed;
}

static psc_status_t report(const exporter_t *e, bool as_json, psc_error_t *error)
{
    const char *output = e->options->output;
    if (psc_file_is_stdout(output))
        return PSC_OK; /* the rows alone are what belongs there */
    if (as_json)
        return psw_json_print(json_pack("{s:I, s:I, s:I, s:o}", "rows", (json_int_t)e->n_written,
                                        "left_out", (json_int_t)e->n_left_out, "not_finite",
                                        (json_int_t)e->n_not_finite, "file",
                                        psw_json_text(output, strlen(output))),
                              error);
    (void)printf("%" PRIu64 " rows written to %s\n", e->n_written, output);
    if (e->n_left_out != 0)
        (void)printf("%" PRIu64 " rows left out: their ids are not in %s\n", e->n_left_out,
                     e->options->vocab);
    if (e->n_not_finite != 0)
        (void)printf("%" PRIu64 "%s\n", e->n_not_finite,
                     is_whole(e) ? " of them have values that are not finite"
                                 : " rows left out: they have values that are not finite");
    return psc_output_flush(error);
}

/* Set before the handler is there. A copy: once the file has its own name, nothing is called so. */
static char to_remove[PATH_MAX];

/* The signal comes again when this returns, and does what it does by default. */
static void remove_and_end(int number)
{
    (void)unlink(to_remove);
    (void)raise(number);
}

/* At SIGINT, SIGTERM and SIGHUP, where they are not ignored (nohup, "&" in a script). */
static void remove_at_signals(const char *path)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction before, action = {.sa_flags = (int)SA_RESETHAND};
    if (path == NULL || strlen(path) >= sizeof to_remove)
        return;
    memcpy(to_remove, path, strlen(path) + 1);
    action.sa_handler = remove_and_end;
    (void)sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        if (sigaction(numbers[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN)
            (void)sigaction(numbers[i], &action, NULL);
    }
}

static psc_status_t export_table(const psw_visit_t *visit, psc_error_t *error)
{
    exporter_t e = {.options = visit->own};
    psc_outfile_t *file;
    psc_status_t st = psw_visit_table(visit, visit->words.items[1], &e.table, error);
    if (st == PSC_OK)
        st = psc_outfile_open(e.options->output, &file, error);
    if (st != PSC_OK)
        return st;
    remove_at_signals(psc_outfile_temporary(file));
    if (is_whole(&e))
        st = write_rows(&e, visit, psc_outfile_stream(file), error);
    else
        st = write_vectors(&e, psc_outfile_stream(file), error);
    psw_vectors_destroy(e.words);
    if (st == PSC_OK)
        st = psc_outfile_commit(file, error);
    else
        st = psc_outfile_give_up(file, st, error);
    return st == PSC_OK ? report(&e, visit->options.json, error) : st;
}

psc_status_t psw_tool_export(int argc, char *const argv[], psc_error_t *error)
{
    export_options_t values;
    psw_visit_t visit;
    bool go_on;
    psc_status_t st = psw_visit_parse(&command, &values, argc, argv, &visit, &go_on, error);
    if (st != PSC_OK || !go_on)
        return st;
    if (values.vocab != NULL && strcmp(values.format, "rows") == 0)
        return psc_error_set(error, PSC_INVALID_ARGUMENT,
                             "--vocab: whole rows hold ids and no words; it goes with --format "
                             "text or binary");
    return psw_visit_address(&visit, visit.words.items[0], export_table, error);
}
