/*
 * Files of whole rows. They may be hostile: nothing is taken on the word of a length beyond what a
 * block may have, BLOCK_BYTES, and what is damaged or cut off is found by a check before it is
 * used. Reading copies once, into one buffer of the largest block so far. Threads: none here.
 */
#include "worker/tool/row_file.h"

#include "common/alloc.h"
#include "worker/tool/table_text.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

#define MAGIC "embpsrow"
#define VERSION 1u
#define WITH_COUNTS 1u
#define OPTIONS_BYTES ((size_t)64 << 10)
#define BLOCK_BYTES ((size_t)64 << 20)
#define DIM_MAX 65536u
#define STATE_MAX (16u * DIM_MAX)

typedef struct header {
    char magic[8];
    uint32_t version, dim, state_floats, flags, options_bytes;
} header_t;
#define HEADER_BYTES 28u

_Static_assert(offsetof(header_t, options_bytes) == HEADER_BYTES - 4, "as it lies in the file");

/* Bytes of a row in a block. */
static size_t row_bytes(uint32_t dim, uint32_t state_floats, bool counted)
{
    return sizeof(uint64_t) + (counted ? 2 * sizeof(uint32_t) : 0) +
           ((size_t)dim + state_floats) * sizeof(float);
}

/* ---- writing ---- */

struct psw_row_writer {
    FILE *stream;
    json_t *options;
    bool begun; /* the header, which needs the shape of a block, is written */
    uint32_t dim, state_floats;
    bool counted;
    uint64_t n_rows;
    XXH3_state_t *check;
};

static psc_status_t put(psw_row_writer_t *writer, const void *bytes, size_t size,
                        psc_error_t *error)
{
    if (size == 0)
        return PSC_OK;
    (void)XXH3_64bits_update(writer->check, bytes, size);
    errno = 0;
    if (fwrite(bytes, 1, size, writer->stream) != size)
        return psc_error_set_errno(error, errno != 0 ? errno : EIO, "cannot write rows");
    return PSC_OK;
}

static psc_status_t put_check(psw_row_writer_t *writer, psc_error_t *error)
{
    const uint64_t check = XXH3_64bits_digest(writer->check);
    psc_status_t st = put(writer, &check, sizeof check, error);
    (void)XXH3_64bits_reset(writer->check);
    return st;
}

psc_status_t psw_row_writer_open(FILE *stream, const json_t *options, psw_row_writer_t **writer_out,
                                 psc_error_t *error)
{
    psw_row_writer_t *writer = psc_alloc_zeroed(1, sizeof *writer);
    if (writer == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "no memory for a writer of rows");
    writer->stream = stream;
    writer->options = json_deep_copy(options);
    writer->check = XXH3_createState();
    writer->dim = (uint32_t)json_integer_value(json_object_get(options, "dim"));
    if (writer->options == NULL || writer->check == NULL) {
        psw_row_writer_abort(writer);
        return psc_error_set(error, PSC_NO_MEMORY, "no memory for a writer of rows");
    }
    (void)XXH3_64bits_reset(writer->check);
    *writer_out = writer;
    return PSC_OK;
}

void psw_row_writer_abort(psw_row_writer_t *writer)
{
    if (writer == NULL)
        return;
    json_decref(writer->options);
    (void)XXH3_freeState(writer->check);
    psc_free(writer);
}

static psc_status_t begin(psw_row_writer_t *writer, psc_error_t *error)
{
    const size_t size = json_dumpb(writer->options, NULL, 0, JSON_COMPACT);
    char *text = psc_alloc(size + 1);
    if (text == NULL || json_dumpb(writer->options, text, size, JSON_COMPACT) != size) {
        psc_free(text);
        return psc_error_set(error, PSC_NO_MEMORY, "no memory for JSON");
    }
    header_t header = {.version = VERSION,
                       .dim = writer->dim,
                       .state_floats = writer->state_floats,
                       .flags = writer->counted ? WITH_COUNTS : 0,
                       .options_bytes = (uint32_t)size};
    memcpy(header.magic, MAGIC, sizeof header.magic);
    psc_status_t st = put(writer, &header, HEADER_BYTES, error);
    if (st == PSC_OK)
        st = put(writer, text, header.options_bytes, error);
    if (st == PSC_OK)
        st = put_check(writer, error);
    psc_free(text);
    writer->begun = st == PSC_OK;
    return st;
}

psc_status_t psw_row_writer_add(psw_row_writer_t *writer, const embps_block_t *block,
                                psc_error_t *error)
{
    const uint32_t n = (uint32_t)block->n;
    psc_status_t st = PSC_OK;
    if (n == 0)
        return PSC_OK;
    if (!writer->begun) {
        writer->state_floats = block->state_floats;
        writer->counted = block->counts != NULL;
        st = begin(writer, error);
    }
    if (st == PSC_OK &&
        (block->dim != writer->dim || block->state_floats != writer->state_floats ||
         (block->counts != NULL) != writer->counted ||
         n > BLOCK_BYTES / row_bytes(writer->dim, writer->state_floats, writer->counted)))
        st = psc_error_set(error, PSC_INVALID_ARGUMENT, "a block of another shape");
    if (st == PSC_OK)
        st = put(writer, &n, sizeof n, error);
    if (st == PSC_OK)
        st = put(writer, block->ids, n * sizeof *block->ids, error);
    if (st == PSC_OK && writer->counted)
        st = put(writer, block->counts, n * 2 * sizeof *block->counts, error);
    if (st == PSC_OK)
        st = put(writer, block->state, (size_t)n * writer->state_floats * sizeof *block->state,
                 error);
    if (st == PSC_OK)
        st = put(writer, block->rows, (size_t)n * writer->dim * sizeof *block->rows, error);
    if (st == PSC_OK)
        st = put_check(writer, error);
    writer->n_rows += st == PSC_OK ? n : 0;
    return st;
}

psc_status_t psw_row_writer_close(psw_row_writer_t *writer, psc_error_t *error)
{
    const uint32_t zero = 0;
    psc_status_t st = writer->begun ? PSC_OK : begin(writer, error);
    if (st == PSC_OK)
        st = put(writer, &zero, sizeof zero, error);
    if (st == PSC_OK)
        st = put(writer, &writer->n_rows, sizeof writer->n_rows, error);
    if (st == PSC_OK)
        st = put_check(writer, error);
    psw_row_writer_abort(writer);
    return st;
}

/* ---- reading ---- */

struct psw_row_reader {
    FILE *stream;
    char *path;
    json_t *object;
    embps_table_options_t options;
    uint32_t dim, state_floats;
    bool counted;
    uint64_t n_rows;
    uint64_t offset; /* in the file, of what comes next */
    XXH3_state_t *check;
    uint8_t *bytes; /* of a block */
    size_t capacity;
};

static psc_status_t damaged(const psw_row_reader_t *reader, const char *what, psc_error_t *error)
{
    return psc_error_set(error, PSC_CORRUPT, "%s: %s (after %" PRIu64 " rows)", reader->path, what,
                         reader->n_rows);
}

static psc_status_t get(psw_row_reader_t *reader, void *bytes, size_t size, psc_error_t *error)
{
    errno = 0;
    if (size != 0 && fread(bytes, 1, size, reader->stream) != size) {
        if (ferror(reader->stream))
            return psc_error_set_errno(error, errno != 0 ? errno : EIO, "cannot read %s",
                                       reader->path);
        return damaged(reader, "the file is cut off", error);
    }
    (void)XXH3_64bits_update(reader->check, bytes, size);
    reader->offset += size;
    return PSC_OK;
}

static psc_status_t get_check(psw_row_reader_t *reader, psc_error_t *error)
{
    const uint64_t want = XXH3_64bits_digest(reader->check);
    uint64_t got;
    psc_status_t st = get(reader, &got, sizeof got, error);
    (void)XXH3_64bits_reset(reader->check);
    if (st == PSC_OK && got != want)
        return damaged(reader, "the file is damaged", error);
    return st;
}

static psc_status_t reserve(psw_row_reader_t *reader, size_t size, psc_error_t *error)
{
    if (size <= reader->capacity)
        return PSC_OK;
    uint8_t *bytes = psc_alloc_aligned(size);
    if (bytes == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "no memory for a block of %zu bytes", size);
    psc_free(reader->bytes);
    reader->bytes = bytes;
    reader->capacity = size;
    return PSC_OK;
}

static psc_status_t read_options(psw_row_reader_t *reader, uint32_t size, psc_error_t *error)
{
    json_error_t fault;
    if (size > OPTIONS_BYTES)
        return damaged(reader, "options of over 64 KiB", error);
    psc_status_t st = reserve(reader, size + 1, error);
    if (st == PSC_OK)
        st = get(reader, reader->bytes, size, error);
    if (st == PSC_OK)
        st = get_check(reader, error);
    if (st != PSC_OK)
        return st;
    reader->object = json_loadb((const char *)reader->bytes, size, 0, &fault);
    if (reader->object == NULL)
        return damaged(reader, "options that are no JSON", error);
    st = psw_table_text_read(reader->object, &reader->options, error);
    if (st == PSC_OK && reader->options.dim != reader->dim)
        st = damaged(reader, "options of another dim", error);
    return st;
}

static psc_status_t read_header(psw_row_reader_t *reader, psc_error_t *error)
{
    header_t header;
    psc_status_t st = get(reader, &header, HEADER_BYTES, error);
    if (st != PSC_OK)
        return st;
    if (memcmp(header.magic, MAGIC, sizeof header.magic) != 0)
        return damaged(reader, "no file of rows", error);
    if (header.version != VERSION || (header.flags & ~WITH_COUNTS) != 0)
        return psc_error_set(error, PSC_UNSUPPORTED,
                             "%s is of version %" PRIu32 " with flags %" PRIu32
                             ", which this release does not know",
                             reader->path, header.version, header.flags);
    if (header.dim == 0 || header.dim > DIM_MAX || header.state_floats > STATE_MAX)
        return damaged(reader, "rows of a width that cannot be", error);
    reader->dim = header.dim;
    reader->state_floats = header.state_floats;
    reader->counted = (header.flags & WITH_COUNTS) != 0;
    return read_options(reader, header.options_bytes, error);
}

bool psw_row_file_is(const char *path)
{
    char magic[sizeof MAGIC - 1];
    struct stat about;
    if (stat(path, &about) != 0 || !S_ISREG(about.st_mode))
        return false;
    FILE *stream = fopen(path, "rb");
    if (stream == NULL)
        return false;
    const bool is = fread(magic, 1, sizeof magic, stream) == sizeof magic &&
                    memcmp(magic, MAGIC, sizeof magic) == 0;
    (void)fclose(stream); /* only read from */
    return is;
}

psc_status_t psw_row_reader_open(const char *path, psw_row_reader_t **reader_out,
                                 psc_error_t *error)
{
    psw_row_reader_t *reader = psc_alloc_zeroed(1, sizeof *reader);
    if (reader == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "no memory for a reader of rows");
    reader->path = psc_strdup(path);
    reader->check = XXH3_createState();
    psc_status_t st = PSC_OK;
    if (reader->path == NULL || reader->check == NULL)
        st = psc_error_set(error, PSC_NO_MEMORY, "no memory for a reader of rows");
    else if ((reader->stream = fopen(path, "rb")) == NULL)
        st = psc_error_set_errno(error, errno, "cannot open %s", path);
    if (st == PSC_OK) {
        (void)XXH3_64bits_reset(reader->check);
        st = read_header(reader, error);
    }
    if (st != PSC_OK) {
        psw_row_reader_close(reader);
        return st;
    }
    *reader_out = reader;
    return PSC_OK;
}

const embps_table_options_t *psw_row_reader_options(const psw_row_reader_t *reader)
{
    return &reader->options;
}

static psc_status_t read_end(psw_row_reader_t *reader, psc_error_t *error)
{
    uint64_t n;
    psc_status_t st = get(reader, &n, sizeof n, error);
    if (st == PSC_OK)
        st = get_check(reader, error);
    if (st == PSC_OK && n != reader->n_rows)
        st = damaged(reader, "rows are missing", error);
    if (st == PSC_OK && fgetc(reader->stream) != EOF)
        st = psc_error_set(error, PSC_CORRUPT,
                           "%s: something follows the end of its rows, at offset %" PRIu64,
                           reader->path, reader->offset);
    return st;
}

psc_status_t psw_row_reader_next(psw_row_reader_t *reader, embps_block_t *block_out,
                                 psc_error_t *error)
{
    uint32_t n;
    const size_t a_row = row_bytes(reader->dim, reader->state_floats, reader->counted);
    embps_block_t block = EMBPS_BLOCK_DEFAULT;
    block.dim = reader->dim;
    block.state_floats = reader->state_floats;
    psc_status_t st = get(reader, &n, sizeof n, error);
    if (st == PSC_OK && n == 0)
        st = read_end(reader, error);
    if (st == PSC_OK && n > BLOCK_BYTES / a_row)
        st = damaged(reader, "a block longer than any", error);
    if (st == PSC_OK && n != 0) {
        st = reserve(reader, n * a_row, error);
        if (st == PSC_OK)
            st = get(reader, reader->bytes, n * a_row, error);
        if (st == PSC_OK)
            st = get_check(reader, error);
    }
    if (st != PSC_OK)
        return st;
    if (n != 0) {
        block.n = n;
        block.ids = (const uint64_t *)(void *)reader->bytes;
        const uint8_t *at = reader->bytes + n * sizeof *block.ids;
        if (reader->counted)
            block.counts = (const uint32_t *)(const void *)at;
        at += reader->counted ? n * 2 * sizeof *block.counts : 0;
        if (reader->state_floats != 0)
            block.state = (const float *)(const void *)at;
        at += (size_t)n * reader->state_floats * sizeof *block.state;
        block.rows = (const float *)(const void *)at;
    }
    reader->n_rows += n;
    *block_out = block;
    return PSC_OK;
}

void psw_row_reader_close(psw_row_reader_t *reader)
{
    if (reader == NULL)
        return;
    if (reader->stream != NULL)
        (void)fclose(reader->stream); /* only read from */
    json_decref(reader->object);
    (void)XXH3_freeState(reader->check);
    psc_free(reader->bytes);
    psc_free(reader->path);
    psc_free(reader);
}
