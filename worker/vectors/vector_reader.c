/*
 * Reads files of vectors.
 *
 * What a file is, is decided on its first 64 KiB: a magic number of a known other format; a first
 * line of two whole numbers, after which the bytes behind the first word say text or binary; or
 * else text without such a line, whose first line gives the dimension.
 *
 * Files may be hostile, or have no end. Nothing is taken on the word of a first line: lines, words
 * and rows grow with the bytes that came, up to a bound, and each byte costs constant time.
 * Text is split at blanks and tabs into a word and dim numbers, from the right, since some words of
 * GloVe hold blanks; a line with more numbers than the dimension is an error and not such a word.
 *
 * Numbers go through strtof, correctly rounded: 0.1 us each, so 35,000 rows of 100 take 0.4 s.
 * Threads: none; the locale's decimal point must be a point, as it is in programs that do not set
 * one.
 */
#include "common/alloc.h"
#include "common/vectors.h"
#include "worker/vectors/vector_set_inside.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PEEK_BYTES 65536u
#define MOST_WORD_BYTES 65536u
#define MOST_LINE_BYTES ((size_t)16 << 20) /* 65,536 numbers, a table's most, of 250 digits */

typedef struct reader {
    const char *path;
    FILE *file;
    char peek[PEEK_BYTES]; /* the file from its start on, until it is used up */
    size_t at;
    size_t end;
    uint64_t line; /* text: number of the present line, from 1 */
    bool stopped;  /* read_until met its stop, not the end of the file */
    char *text;    /* a line or a word, NUL-terminated */
    size_t text_size;
    size_t text_room;
    float *row;
    size_t row_room;
    size_t dim;
    bool has_header;
    uint64_t promised; /* rows, with a header */
    psw_vectors_t *vectors;
    psc_error_t *error;
} reader_t;

static psc_status_t fill(reader_t *r)
{
    r->at = 0;
    r->end = fread(r->peek, 1, PEEK_BYTES, r->file);
    if (r->end == 0 && ferror(r->file))
        return psc_error_set_errno(r->error, errno, "cannot read %s", r->path);
    return PSC_OK;
}

static psc_status_t no_memory(reader_t *r)
{
    return psc_error_set(r->error, PSC_NO_MEMORY, "no memory to read %s", r->path);
}

/* Appends bytes to r->text and keeps a NUL behind. */
static psc_status_t text_append(reader_t *r, const char *bytes, size_t size)
{
    size_t need = r->text_size + size + 1;
    if (need > r->text_room) {
        size_t room = need + need / 2 + 256;
        char *text = psc_realloc_array(r->text, room, 1);
        if (text == NULL)
            return no_memory(r);
        r->text = text;
        r->text_room = room;
    }
    memcpy(r->text + r->text_size, bytes, size);
    r->text_size += size;
    r->text[r->text_size] = '\0';
    return PSC_OK;
}

/* The bytes up to stop, or the end of the file, into r->text; stop is skipped. *any_out: was there
 * anything, the stop included? More than most bytes are CORRUPT in the words of what. */
static psc_status_t read_until(reader_t *r, char stop, size_t most, bool *any_out)
{
    r->text_size = 0;
    r->stopped = false;
    *any_out = false;
    psc_status_t st = text_append(r, "", 0);
    while (st == PSC_OK) {
        if (r->at == r->end) {
            st = fill(r);
            if (st != PSC_OK || r->end == 0)
                break;
        }
        *any_out = true;
        char *from = r->peek + r->at;
        char *found = memchr(from, stop, r->end - r->at);
        size_t size = found != NULL ? (size_t)(found - from) : r->end - r->at;
        st = text_append(r, from, size);
        r->at += size + (found != NULL ? 1 : 0);
        r->stopped = found != NULL;
        if (found != NULL || r->text_size > most)
            break;
    }
    return st;
}

/* ---- what is it? ---- */

/* Names a format that is not ours by its first bytes; NULL when it may be ours. */
static const char *foreign_format(const char *bytes, size_t size)
{
    static const struct {
        const char *magic;
        size_t size;
        const char *name;
    } known[] = {
        {"\xba\x16\x4f\x2f", 4, "a fastText model (use its .vec file)"},
        {"embpsrow", 8,
         "what embps export wrote as whole rows: embps import reads these twice, so give it the "
         "file's name and no pipe"},
        {"FiFu", 4, "finalfusion embeddings (export them as word2vec)"},
        {"\x1f\x8b", 2, "compressed by gzip (unpack it first)"},
        {"\xfd"
         "7zXZ",
         5, "compressed by xz (unpack it first)"},
        {"BZh", 3, "compressed by bzip2 (unpack it first)"},
        {"\x28\xb5\x2f\xfd", 4, "compressed by zstd (unpack it first)"},
        {"PK\x03\x04", 4, "a zip archive (unpack it first)"},
        {"\x93NUMPY", 6, "a NumPy array, which holds no words"},
        {"\x89HDF", 4, "an HDF5 file"},
        {"\x80\x02", 2, "a Python pickle (save it in word2vec's format)"},
        {"\x80\x03", 2, "a Python pickle (save it in word2vec's format)"},
        {"\x80\x04", 2, "a Python pickle (save it in word2vec's format)"},
        {"\x80\x05", 2, "a Python pickle (save it in word2vec's format)"},
        {"\x7f"
         "ELF",
         4, "a program"},
    };
    for (size_t k = 0; k < sizeof known / sizeof known[0]; k++)
        if (size >= known[k].size && memcmp(bytes, known[k].magic, known[k].size) == 0)
            return known[k].name;
    /* fastText before its magic number: twelve arguments as int32, then the sampling rate. */
    int32_t arguments[12];
    double rate;
    if (size >= sizeof arguments + sizeof rate) {
        memcpy(arguments, bytes, sizeof arguments);
        memcpy(&rate, bytes + sizeof arguments, sizeof rate);
        bool small = true;
        for (int k = 0; k < 6; k++)
            small = small && arguments[k] >= 0 && arguments[k] < 65536;
        if (small && arguments[6] >= 1 && arguments[6] <= 4 && arguments[7] >= 1 &&
            arguments[7] <= 3 && rate >= 0.0 && rate < 1.0)
            return "a fastText model of an old version, without magic number (use its .vec file)";
    }
    return NULL;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

/* "n dim" and nothing else in a line? */
static bool parse_header(const char *line, size_t size, uint64_t *n_out, uint64_t *dim_out)
{
    uint64_t numbers[2];
    size_t at = 0;
    for (int k = 0; k < 2; k++) {
        while (at < size && is_blank(line[at]))
            at++;
        size_t start = at;
        uint64_t value = 0;
        for (; at < size && line[at] >= '0' && line[at] <= '9' && at - start < 19; at++)
            value = value * 10 + (uint64_t)(line[at] - '0');
        if (at == start || (at < size && !is_blank(line[at])))
            return false;
        numbers[k] = value;
    }
    while (at < size && is_blank(line[at]))
        at++;
    *n_out = numbers[0];
    *dim_out = numbers[1];
    return at == size;
}

/* Control characters and high bytes, which do not occur in numbers. */
static bool is_foreign_to_numbers(unsigned char c)
{
    return (c < 0x20 || c >= 0x7f) && c != '\t' && c != '\r' && c != '\n';
}

/*
 * After the first line: is the first row text? The bytes behind the first word are looked at, as
 * many as dim floats have: control characters or high bytes do not occur in numbers, and almost
 * surely do in floats; when none do, the fields up to the line's end must be dim numbers. A line
 * that is too short may be a float with the byte of a line end in it: then the bytes behind it
 * count as well.
 */
static bool first_row_is_text(const char *bytes, size_t size, uint64_t dim)
{
    size_t at = 0;
    while (at < size && bytes[at] == '\n')
        at++;
    while (at < size && !is_blank(bytes[at]) && bytes[at] != '\n')
        at++;
    if (at == size || bytes[at] == '\n')
        return true; /* a line without numbers: reading it as text says so */
    uint64_t n_fields = 0;
    size_t k = at;
    for (; k < size && bytes[k] != '\n'; k++) {
        if (is_foreign_to_numbers((unsigned char)bytes[k]) && (k - at) / 4 <= dim)
            return false;
        bool starts = !is_blank(bytes[k]) && is_blank(bytes[k - 1]);
        n_fields += starts ? 1 : 0;
    }
    if (n_fields >= dim)
        return true;
    for (; k < size && k > at && (k - at - 1) / 4 < dim; k++) {
        if (is_foreign_to_numbers((unsigned char)bytes[k]))
            return false;
    }
    bool only_numbers = true;
    for (k = at; k < size && bytes[k] != '\n' && (k - at) / 4 <= dim; k++)
        only_numbers = only_numbers && strchr("0123456789+-.eEnaif \t\r", bytes[k]) != NULL;
    return only_numbers;
}

/* ---- text ---- */

static psc_status_t text_error(reader_t *r, const char *what)
{
    return psc_error_set(r->error, PSC_CORRUPT, "%s, line %llu: %s", r->path,
                         (unsigned long long)r->line, what);
}

/* A field as float. */
static bool parse_float(const char *field, size_t size, float *value_out)
{
    char *end;
    float value = strtof(field, &end);
    *value_out = value;
    return size > 0 && end == field + size;
}

static psc_status_t row_room(reader_t *r, size_t need)
{
    if (need <= r->row_room)
        return PSC_OK;
    size_t room = need + need / 2 + 64;
    float *row = psc_realloc_array(r->row, room, sizeof *row);
    if (row == NULL)
        return no_memory(r);
    r->row = row;
    r->row_room = room;
    return PSC_OK;
}

/* First line of a file without header: the numbers behind the first field are the dimension. */
static psc_status_t dim_of_line(reader_t *r)
{
    size_t n_fields = 0;
    for (size_t k = 0; k < r->text_size; k++)
        if (!is_blank(r->text[k]) && (k == 0 || is_blank(r->text[k - 1])))
            n_fields++;
    size_t at = 0;
    while (at < r->text_size && !is_blank(r->text[at]))
        at++;
    bool numbers = n_fields >= 2;
    if (numbers) {
        char *end;
        float first = strtof(r->text + at, &end);
        (void)first;
        numbers = end > r->text + at && (is_blank(*end) || *end == '\0');
    }
    if (!numbers)
        return psc_error_set(r->error, PSC_UNSUPPORTED,
                             "%s is no file of vectors that we know: its first line is neither "
                             "\"n dim\" nor a word and numbers",
                             r->path);
    r->dim = n_fields - 1;
    return psw_vectors_create(r->dim, &r->vectors, r->error);
}

static psc_status_t count_error(reader_t *r, size_t n)
{
    return psc_error_set(r->error, PSC_CORRUPT, "%s, line %llu: %zu numbers where %zu belong",
                         r->path, (unsigned long long)r->line, n, r->dim);
}

/* Splits r->text from the right into dim numbers and a word. */
static psc_status_t parse_line(reader_t *r, size_t *word_size_out)
{
    psc_status_t st = PSC_OK;
    size_t n = 0; /* numbers found, the last first */
    size_t at = r->text_size;
    st = row_room(r, r->text_size / 2 + 1 < r->dim ? r->text_size / 2 + 1 : r->dim);
    for (; st == PSC_OK; n++) {
        while (at > 0 && is_blank(r->text[at - 1]))
            r->text[--at] = '\0';
        if (n == r->dim)
            break;
        size_t end = at;
        while (at > 0 && !is_blank(r->text[at - 1]))
            at--;
        if (at == 0)
            return count_error(r, n);
        float *value = &r->row[r->dim - 1 - n < r->row_room ? r->dim - 1 - n : 0];
        if (!parse_float(r->text + at, end - at, value))
            return psc_error_set(r->error, PSC_CORRUPT, "%s, line %llu: \"%.40s\" is not a number",
                                 r->path, (unsigned long long)r->line, r->text + at);
        if (!isfinite(*value))
            return psc_error_set(r->error, PSC_CORRUPT, "%s, line %llu: \"%.40s\" is not finite",
                                 r->path, (unsigned long long)r->line, r->text + at);
    }
    if (st == PSC_OK && at == 0)
        return text_error(r, "no word before the numbers");
    /* A word may hold blanks, but not look like one number too many. */
    size_t last = at;
    while (last > 0 && !is_blank(r->text[last - 1]))
        last--;
    float extra;
    if (st == PSC_OK && last > 0 && parse_float(r->text + last, at - last, &extra))
        return count_error(r, r->dim + 1);
    *word_size_out = at;
    return st;
}

static psc_status_t add_row(reader_t *r, size_t word_size)
{
    bool added;
    return psw_vectors_add(r->vectors, r->text, word_size, r->row, &added, r->error);
}

static bool line_is_empty(const reader_t *r)
{
    for (size_t k = 0; k < r->text_size; k++)
        if (!is_blank(r->text[k]))
            return false;
    return true;
}

static psc_status_t missing_rows(reader_t *r, uint64_t n_rows)
{
    return psc_error_set(r->error, PSC_CORRUPT,
                         "%s promises %llu rows in its first line, but ends after %llu", r->path,
                         (unsigned long long)r->promised, (unsigned long long)n_rows);
}

static psc_status_t read_text(reader_t *r)
{
    uint64_t n_rows = 0;
    bool ended = false; /* an empty line was met: only such may follow */
    bool whole = true;  /* the last row has a line end */
    for (;;) {
        bool any;
        psc_status_t st = read_until(r, '\n', MOST_LINE_BYTES, &any);
        if (st != PSC_OK)
            return st;
        if (!any)
            break;
        r->line++;
        if (r->text_size > MOST_LINE_BYTES)
            return text_error(r, "longer than 16 MiB, which no line of vectors is");
        if (line_is_empty(r)) {
            ended = true;
            continue;
        }
        if (ended)
            return text_error(r, "a row after an empty line");
        if (r->has_header && n_rows == r->promised)
            return text_error(r, "more rows than the first line promises");
        if (r->vectors == NULL)
            st = dim_of_line(r);
        size_t word_size = 0;
        if (st == PSC_OK)
            st = parse_line(r, &word_size);
        if (st == PSC_OK)
            st = add_row(r, word_size);
        if (st != PSC_OK)
            return st;
        n_rows++;
        whole = r->stopped;
    }
    if (r->has_header && n_rows < r->promised)
        return missing_rows(r, n_rows);
    /* What writes a first line ends its last one; a number that was cut would read as another. */
    if (r->has_header && !whole)
        return text_error(r, "the last line has no newline; the file was cut off");
    if (r->vectors == NULL)
        return psc_error_set(r->error, PSC_CORRUPT, "%s holds nothing but empty lines", r->path);
    return PSC_OK;
}

/* ---- binary ---- */

/* dim floats into r->row, which grows as they come. *n_out: bytes that were there. */
static psc_status_t read_floats(reader_t *r, size_t *n_out)
{
    size_t want = r->dim * sizeof(float);
    size_t have = 0;
    while (have < want) {
        if (r->at == r->end) {
            psc_status_t st = fill(r);
            if (st != PSC_OK)
                return st;
            if (r->end == 0)
                break;
        }
        size_t part = r->end - r->at < want - have ? r->end - r->at : want - have;
        psc_status_t st = row_room(r, (have + part + sizeof(float) - 1) / sizeof(float));
        if (st != PSC_OK)
            return st;
        memcpy((char *)r->row + have, r->peek + r->at, part);
        r->at += part;
        have += part;
    }
    *n_out = have;
    return PSC_OK;
}

/* Skips newlines; false at the end of the file. */
static psc_status_t skip_newlines(reader_t *r, bool *more_out)
{
    for (;;) {
        while (r->at < r->end && r->peek[r->at] == '\n')
            r->at++;
        *more_out = r->at < r->end;
        if (*more_out)
            return PSC_OK;
        psc_status_t st = fill(r);
        if (st != PSC_OK || r->end == 0)
            return st;
    }
}

static psc_status_t row_error(reader_t *r, uint64_t row, const char *what)
{
    return psc_error_set(r->error, PSC_CORRUPT, "%s, row %llu: %s", r->path,
                         (unsigned long long)row, what);
}

static psc_status_t read_binary(reader_t *r)
{
    uint64_t row = 0;
    for (;; row++) {
        bool more;
        psc_status_t st = skip_newlines(r, &more);
        if (st != PSC_OK)
            return st;
        if (!more)
            break;
        if (row == r->promised)
            return row_error(r, row + 1, "more rows than the first line promises");
        bool any;
        st = read_until(r, ' ', MOST_WORD_BYTES, &any);
        if (st != PSC_OK)
            return st;
        size_t word_size = r->text_size;
        if (word_size == 0)
            return row_error(r, row + 1, "an empty word");
        if (word_size > MOST_WORD_BYTES)
            return row_error(r, row + 1, "a word of more than 65,536 bytes");
        size_t n_bytes;
        st = read_floats(r, &n_bytes);
        if (st != PSC_OK)
            return st;
        if (n_bytes < r->dim * sizeof(float))
            return psc_error_set(
                r->error, PSC_CORRUPT,
                "%s ends in the middle of row %llu of the %llu that its first line "
                "promises",
                r->path, (unsigned long long)(row + 1), (unsigned long long)r->promised);
        if (!psc_vector_all_finite(r->row, r->dim))
            return row_error(r, row + 1, "holds a value that is not finite");
        st = add_row(r, word_size);
        if (st != PSC_OK)
            return st;
    }
    return row < r->promised ? missing_rows(r, row) : PSC_OK;
}

/* ---- */

/* Looks at the first bytes and reads the rest by what they say. */
static psc_status_t read_any(reader_t *r)
{
    psc_status_t st = fill(r);
    if (st != PSC_OK)
        return st;
    if (r->end == 0)
        return psc_error_set(r->error, PSC_CORRUPT, "%s is empty", r->path);
    const char *foreign = foreign_format(r->peek, r->end);
    if (foreign != NULL)
        return psc_error_set(r->error, PSC_UNSUPPORTED, "%s is %s", r->path, foreign);
    const char *line_end = memchr(r->peek, '\n', r->end);
    size_t line_size = line_end != NULL ? (size_t)(line_end - r->peek) : r->end;
    uint64_t dim;
    r->has_header = parse_header(r->peek, line_size, &r->promised, &dim);
    if (!r->has_header) {
        st = read_text(r);
        if (st == PSC_OK)
            psw_vectors_set_format(r->vectors, "word2vec text without first line");
        return st;
    }
    if (dim == 0 || dim > UINT32_MAX)
        return psc_error_set(r->error, PSC_CORRUPT, "%s, line 1: %llu dimensions", r->path,
                             (unsigned long long)dim);
    r->dim = (size_t)dim;
    st = psw_vectors_create(r->dim, &r->vectors, r->error);
    if (st != PSC_OK)
        return st;
    r->line = 1;
    r->at = line_end != NULL ? line_size + 1 : r->end;
    bool text = first_row_is_text(r->peek + r->at, r->end - r->at, dim);
    psw_vectors_set_format(r->vectors, text ? "word2vec text" : "word2vec binary");
    return text ? read_text(r) : read_binary(r);
}

psc_status_t psw_vectors_load(const char *path, psw_vectors_t **vectors_out, psc_error_t *error)
{
    reader_t *r = psc_alloc_zeroed(1, sizeof *r);
    if (r == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "no memory to read %s", path);
    r->path = path;
    r->error = error;
    psc_status_t st;
    r->file = fopen(path, "rbe");
    if (r->file == NULL)
        st = psc_error_set_errno(error, errno, "cannot open %s", path);
    else
        st = read_any(r);
    if (r->file != NULL)
        (void)fclose(r->file);
    if (st == PSC_OK)
        *vectors_out = r->vectors;
    else
        psw_vectors_destroy(r->vectors);
    psc_free(r->text);
    psc_free(r->row);
    psc_free(r);
    return st;
}
