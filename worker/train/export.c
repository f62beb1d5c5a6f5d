/*
 * Export: rows come in chunks of about 1 MiB, the next chunk while this one is written, so memory
 * is the same for any vocabulary; pulls are scans, so that the rows of a training that goes on stay
 * in memory, and exact, so that files hold what the servers keep. The file appears under its name
 * when it is whole. Threads: that of the client.
 */
#include "worker/train/export.h"

#include "common/alloc.h"
#include "common/file.h"
#include "worker/programs/client_error.h"
#include "worker/vectors/word2vec.h"

#define CHUNK_FLOATS ((size_t)1 << 18)

typedef struct chunk {
    uint64_t *ids;
    float *rows;
    size_t n;
    embps_request_t *pull;
} chunk_t;

typedef struct exporter {
    embps_table_t *table;
    const psw_vocab_t *vocab;
    psw_stop_t *stop;
    const char *path;
    size_t dim, chunk_rows;
    chunk_t chunks[2];
} exporter_t;

/* The writer knows a stream alone: puts the path before its error. */
static psc_status_t name_file(const exporter_t *exporter, psc_status_t st, psc_error_t *error)
{
    if (st == PSC_OK || error == NULL)
        return st;
    const psc_error_t what = *error;
    return psc_error_set(error, st, "%s: %s", exporter->path, what.message);
}

static psc_status_t start(const exporter_t *exporter, chunk_t *chunk, size_t first,
                          psc_error_t *error)
{
    embps_error_t what;
    size_t left = psw_vocab_size(exporter->vocab) - first;
    chunk->n = left < exporter->chunk_rows ? left : exporter->chunk_rows;
    if (chunk->n == 0)
        return PSC_OK;
    for (size_t i = 0; i < chunk->n; i++)
        chunk->ids[i] = first + i;
    if (embps_pull_states_start(exporter->table, chunk->ids, chunk->n, chunk->rows, NULL,
                                EMBPS_PULL_SCAN | EMBPS_PULL_EXACT, &chunk->pull, &what) != 0)
        return psw_error_import(&what, error);
    return PSC_OK;
}

static psc_status_t finish(chunk_t *chunk, psc_error_t *error)
{
    embps_error_t what;
    embps_request_t *pull = chunk->pull;
    chunk->pull = NULL;
    return embps_wait(pull, &what) == 0 ? PSC_OK : psw_error_import(&what, error);
}

static psc_status_t write_rows(exporter_t *exporter, psw_vectors_writer_t *writer,
                               psc_error_t *error)
{
    uint32_t n = psw_vocab_size(exporter->vocab), id = 0;
    psc_status_t st = start(exporter, &exporter->chunks[0], 0, error);
    for (size_t c = 0; st == PSC_OK && id < n; c++) {
        chunk_t *chunk = &exporter->chunks[c & 1];
        psw_stop_poll(exporter->stop);
        if (psw_stop_requested(exporter->stop))
            return psc_error_set(error, PSC_INTERRUPTED, "stopped by a signal");
        st = finish(chunk, error);
        if (st == PSC_OK)
            st = start(exporter, &exporter->chunks[(c + 1) & 1], id + chunk->n, error);
        for (size_t i = 0; st == PSC_OK && i < chunk->n; i++, id++) {
            size_t size;
            const char *word = psw_vocab_word(exporter->vocab, id, &size);
            const float *row = chunk->rows + i * exporter->dim;
            st = name_file(exporter, psw_vectors_writer_row(writer, word, size, row, error), error);
        }
    }
    return st;
}

static psc_status_t write_file(exporter_t *exporter, bool binary, psc_error_t *error)
{
    psc_outfile_t *file;
    psw_vectors_writer_t *writer;
    psc_status_t st = psc_outfile_open(exporter->path, &file, error);
    if (st != PSC_OK)
        return st;
    st = psw_vectors_writer_open(psc_outfile_stream(file), binary, psw_vocab_size(exporter->vocab),
                                 (uint32_t)exporter->dim, &writer, error);
    st = name_file(exporter, st, error);
    if (st == PSC_OK) {
        st = write_rows(exporter, writer, error);
        psc_error_t *closing = st == PSC_OK ? error : NULL;
        psc_status_t closed = psw_vectors_writer_close(writer, closing);
        st = st != PSC_OK ? st : name_file(exporter, closed, closing);
    }
    if (st == PSC_OK)
        return psc_outfile_commit(file, error);
    psc_outfile_abort(file);
    return st;
}

psc_status_t psw_export(embps_table_t *table, const psw_vocab_t *vocab, bool binary,
                        const char *path, psw_stop_t *stop, psc_error_t *error)
{
    exporter_t exporter = {
        .table = table, .vocab = vocab, .stop = stop, .path = path, .dim = embps_table_dim(table)};
    exporter.chunk_rows = exporter.dim < CHUNK_FLOATS ? CHUNK_FLOATS / exporter.dim : 1;
    psc_status_t st = PSC_OK;
    for (size_t i = 0; i < 2; i++) {
        chunk_t *chunk = &exporter.chunks[i];
        chunk->ids = psc_alloc_array(exporter.chunk_rows, sizeof *chunk->ids);
        chunk->rows = psc_alloc_array(exporter.chunk_rows * exporter.dim, sizeof *chunk->rows);
        if (chunk->ids == NULL || chunk->rows == NULL)
            st = psc_error_set(error, PSC_NO_MEMORY, "out of memory writing %s", path);
    }
    if (st == PSC_OK)
        st = write_file(&exporter, binary, error);
    for (size_t i = 0; i < 2; i++) {
        (void)!finish(&exporter.chunks[i], NULL);
        psc_free(exporter.chunks[i].ids);
        psc_free(exporter.chunks[i].rows);
    }
    return st;
}
