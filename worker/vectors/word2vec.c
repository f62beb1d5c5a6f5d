/*
 * word2vec text and binary, written through a buffer of our own.
 *
 * Numbers: printf's %.9g always reads back as the same float but costs a third of a microsecond and
 * prints digits that say nothing (0.100000001). psw_float_print looks for the fewest digits d in 6
 * to 9: m = round(x * 10^k) with k chosen so that m has d digits, accepted when m / 10^k reads back
 * as x. Both m and 10^k are exact in double, so their quotient is the decimal rounded once to
 * double; the reader rounds it once to float. Rounding twice gives the same float unless the double
 * lies exactly between two floats; such a candidate is not trusted, and %.9g is the way out, as it
 * is for very large and very small values. About 30 ns a number.
 */
#include "worker/vectors/word2vec.h"

#include "common/alloc.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#define BUFFER_BYTES 65536u
#define FIRST_LINE_BYTES 64u

struct psw_vectors_writer {
    FILE *stream;
    bool binary;
    uint64_t n;
    uint64_t n_written;
    uint32_t dim;
    size_t used; /* bytes in buffer */
    char buffer[BUFFER_BYTES];
};

/* 10^k is exact in double up to k = 22. */
static const double powers[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

/* Does the decimal m / 10^k read back as x for sure? */
static bool reads_back(double m, int k, float x)
{
    double value = m / powers[k];
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    bool between_two_floats = (bits & UINT64_C(0x1fffffff)) == UINT64_C(0x10000000);
    return (float)value == x && !between_two_floats;
}

/* Prints m / 10^k, 0 <= k <= 13, without trailing zeros. */
static size_t print_decimal(uint64_t m, int k, char *text)
{
    while (k > 0 && m % 10 == 0) {
        m /= 10;
        k--;
    }
    char digits[24];
    int n = 0;
    while (m > 0 || n <= k) {
        digits[n++] = (char)('0' + m % 10);
        m /= 10;
    }
    size_t size = 0;
    while (n > 0) {
        if (n == k)
            text[size++] = '.';
        text[size++] = digits[--n];
    }
    text[size] = '\0';
    return size;
}

size_t psw_float_print(float value, char text[PSW_FLOAT_TEXT_SIZE])
{
    float x = fabsf(value);
    if (x >= 1e-4f && x < 1e6f) {
        int before_point =
            1; /* digits of the whole part; below 1: minus the zeros after the point */
        if (x >= 1.0f)
            while ((double)x >= powers[before_point])
                before_point++;
        else
            for (before_point = 0; (double)x * powers[-before_point + 1] < 1.0;)
                before_point--;
        for (int digits = 6; digits <= 9; digits++) {
            int k = digits - before_point;
            double m = floor((double)x * powers[k] + 0.5);
            if (reads_back(m, k, x)) {
                size_t sign = signbit(value) ? 1 : 0;
                text[0] = '-';
                return sign + print_decimal((uint64_t)m, k, text + sign);
            }
        }
    }
    return (size_t)snprintf(text, PSW_FLOAT_TEXT_SIZE, "%.9g", (double)value);
}

static psc_status_t flush(psw_vectors_writer_t *writer, psc_error_t *error)
{
    size_t size = writer->used;
    writer->used = 0;
    errno = 0;
    if (fwrite(writer->buffer, 1, size, writer->stream) != size)
        return psc_error_set_errno(error, errno != 0 ? errno : EIO, "cannot write vectors");
    return PSC_OK;
}

static psc_status_t put(psw_vectors_writer_t *writer, const void *bytes, size_t size,
                        psc_error_t *error)
{
    const char *from = bytes;
    while (size > 0) {
        if (writer->used == BUFFER_BYTES) {
            psc_status_t st = flush(writer, error);
            if (st != PSC_OK)
                return st;
        }
        size_t part = BUFFER_BYTES - writer->used < size ? BUFFER_BYTES - writer->used : size;
        memcpy(writer->buffer + writer->used, from, part);
        writer->used += part;
        from += part;
        size -= part;
    }
    return PSC_OK;
}

/* Of a number that is filled in later: blanks up to the longest that readers take. Returns its
 * length, the same for any n of such a file. */
static size_t print_first_line(const psw_vectors_writer_t *writer, uint64_t n,
                               char text[FIRST_LINE_BYTES])
{
    const int width = writer->n == PSW_VECTORS_UNCOUNTED ? 19 : 0;
    return (size_t)snprintf(text, FIRST_LINE_BYTES, "%-*llu %lu\n", width, (unsigned long long)n,
                            (unsigned long)writer->dim);
}

/* The first line once more, now that the number of rows is known. */
static psc_status_t complete(const psw_vectors_writer_t *writer, psc_error_t *error)
{
    char text[FIRST_LINE_BYTES];
    const size_t size = print_first_line(writer, writer->n_written, text);
    errno = 0;
    if (fseek(writer->stream, 0, SEEK_SET) != 0 || fwrite(text, 1, size, writer->stream) != size ||
        fseek(writer->stream, 0, SEEK_END) != 0)
        return psc_error_set_errno(error, errno != 0 ? errno : EIO, "cannot write vectors");
    return PSC_OK;
}

psc_status_t psw_vectors_writer_open(FILE *stream, bool binary, uint64_t n, uint32_t dim,
                                     psw_vectors_writer_t **writer_out, psc_error_t *error)
{
    if (dim == 0)
        return psc_error_set(error, PSC_INVALID_ARGUMENT, "vectors of 0 dimensions");
    if (n == PSW_VECTORS_UNCOUNTED && fseek(stream, 0, SEEK_CUR) != 0)
        return psc_error_set(error, PSC_INVALID_ARGUMENT,
                             "vectors cannot be written to a pipe: how many they are stands in the "
                             "first line, which is completed last");
    psw_vectors_writer_t *writer = psc_alloc(sizeof *writer);
    if (writer == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "no memory for a writer of vectors");
    writer->stream = stream;
    writer->binary = binary;
    writer->n = n;
    writer->n_written = 0;
    writer->dim = dim;
    writer->used = print_first_line(writer, n == PSW_VECTORS_UNCOUNTED ? 0 : n, writer->buffer);
    *writer_out = writer;
    return PSC_OK;
}

static psc_status_t put_text_row(psw_vectors_writer_t *writer, const float *row, psc_error_t *error)
{
    for (uint32_t i = 0; i < writer->dim; i++) {
        if (BUFFER_BYTES - writer->used < PSW_FLOAT_TEXT_SIZE + 2) {
            psc_status_t st = flush(writer, error);
            if (st != PSC_OK)
                return st;
        }
        writer->buffer[writer->used++] = ' ';
        writer->used += psw_float_print(row[i], writer->buffer + writer->used);
    }
    return put(writer, "\n", 1, error);
}

psc_status_t psw_vectors_writer_row(psw_vectors_writer_t *writer, const char *word,
                                    size_t word_size, const float *row, psc_error_t *error)
{
    if (writer->n_written == writer->n)
        return psc_error_set(error, PSC_INVALID_ARGUMENT,
                             "vectors: more than the %llu rows promised",
                             (unsigned long long)writer->n);
    if (word_size == 0)
        return psc_error_set(error, PSC_INVALID_ARGUMENT, "vectors: row %llu has an empty word",
                             (unsigned long long)writer->n_written);
    for (size_t i = 0; i < word_size; i++)
        if (word[i] == ' ' || word[i] == '\t' || word[i] == '\r' || word[i] == '\n')
            return psc_error_set(error, PSC_INVALID_ARGUMENT,
                                 "vectors: the word of row %llu holds a blank, tab, carriage "
                                 "return or line end",
                                 (unsigned long long)writer->n_written);
    psc_status_t st = put(writer, word, word_size, error);
    if (st == PSC_OK && writer->binary) {
        st = put(writer, " ", 1, error);
        if (st == PSC_OK)
            st = put(writer, row, writer->dim * sizeof *row, error);
        if (st == PSC_OK)
            st = put(writer, "\n", 1, error);
    } else if (st == PSC_OK) {
        st = put_text_row(writer, row, error);
    }
    if (st == PSC_OK)
        writer->n_written++;
    return st;
}

psc_status_t psw_vectors_writer_close(psw_vectors_writer_t *writer, psc_error_t *error)
{
    psc_status_t st = flush(writer, error);
    const bool uncounted = writer->n == PSW_VECTORS_UNCOUNTED;
    if (st == PSC_OK && uncounted)
        st = complete(writer, error);
    errno = 0;
    if (st == PSC_OK && fflush(writer->stream) != 0)
        st = psc_error_set_errno(error, errno != 0 ? errno : EIO, "cannot write vectors");
    if (st == PSC_OK && !uncounted && writer->n_written != writer->n)
        st = psc_error_set(error, PSC_INTERNAL, "vectors: %llu of %llu rows were written",
                           (unsigned long long)writer->n_written, (unsigned long long)writer->n);
    psc_free(writer);
    return st;
}
