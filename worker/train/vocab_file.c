/*
 * Vocabulary files: "word count\n" a line, by falling count, the format of the original tool's
 * -save-vocab.
 *
 * A word is any bytes without separators, so the last blank of a line parts it from its count and
 * no quoting is needed. Reading trusts nothing: every line is checked and named when it is wrong,
 * since a vocabulary that was read half would train other vectors without a word.
 */
#include "worker/train/vocab.h"

#include "common/alloc.h"
#include "common/file.h"
#include "worker/train/corpus.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT_BYTES ((size_t)22) /* a blank, 20 digits at most, a newline */

psc_status_t psw_vocab_save(const psw_vocab_t *vocab, const char *path, psc_error_t *error)
{
    psc_outfile_t *out = NULL;
    psc_status_t st = psc_outfile_open(path, &out, error);
    if (st != PSC_OK)
        return st;
    FILE *stream = psc_outfile_stream(out);
    for (uint32_t id = 0; id < psw_vocab_size(vocab); id++) {
        size_t size;
        const char *bytes = psw_vocab_word(vocab, id, &size);
        (void)fwrite(bytes, 1, size, stream);
        (void)fprintf(stream, " %" PRIu64 "\n", psw_vocab_count(vocab, id));
    }
    return psc_outfile_commit(out, error); /* reports what the stream met */
}

psc_status_t psw_vocab_write(const psw_vocab_t *vocab, char **bytes_out, size_t *n_out,
                             psc_error_t *error)
{
    const uint32_t n_words = psw_vocab_size(vocab);
    size_t room = 1, n = 0, size;
    for (uint32_t id = 0; id < n_words; id++) {
        (void)psw_vocab_word(vocab, id, &size);
        room += size + COUNT_BYTES;
    }
    char *bytes = psc_alloc(room);
    if (bytes == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "out of memory for a vocabulary of %u words",
                             n_words);
    for (uint32_t id = 0; id < n_words; id++) {
        const char *word = psw_vocab_word(vocab, id, &size);
        memcpy(bytes + n, word, size);
        n += size;
        n += (size_t)snprintf(bytes + n, room - n, " %" PRIu64 "\n", psw_vocab_count(vocab, id));
    }
    *bytes_out = bytes;
    *n_out = n;
    return PSC_OK;
}

/* Decimal digits and nothing else, 1 to 2^63. */
static bool parse_count(const char *digits, size_t n, uint64_t *count_out)
{
    uint64_t count = 0;
    if (n == 0 || n > 19)
        return false;
    for (size_t i = 0; i < n; i++) {
        if (digits[i] < '0' || digits[i] > '9')
            return false;
        count = count * 10 + (uint64_t)(digits[i] - '0');
    }
    *count_out = count;
    return count <= UINT64_C(1) << 63;
}

static psc_status_t add_line(const char *path, uint64_t number, const char *line, size_t size,
                             psw_counter_t *counter, psc_error_t *error)
{
    size_t word_size = 0;
    uint64_t count;
    while (word_size < size && !psw_is_separator((unsigned char)line[word_size]))
        word_size++;
    if (word_size == 0)
        return psc_error_set(error, PSC_CORRUPT,
                             "%s:%" PRIu64 ": the line does not begin with a word", path, number);
    if (word_size > PSW_WORD_MAX_BYTES)
        return psc_error_set(error, PSC_CORRUPT,
                             "%s:%" PRIu64 ": a word of %zu bytes; the longest possible is %u",
                             path, number, word_size, PSW_WORD_MAX_BYTES);
    if (word_size == size || line[word_size] != ' ' ||
        !parse_count(line + word_size + 1, size - word_size - 1, &count))
        return psc_error_set(
            error, PSC_CORRUPT,
            "%s:%" PRIu64 ": expected a word, one blank and a count of at most 2^63", path, number);
    if (count == 0 && word_size == 4 && memcmp(line, "</s>", 4) == 0)
        return PSC_OK;
    if (count == 0)
        return psc_error_set(error, PSC_CORRUPT, "%s:%" PRIu64 ": a count of 0", path, number);
    if (psw_counter_get(counter, line, word_size) != 0)
        return psc_error_set(error, PSC_CORRUPT, "%s:%" PRIu64 ": the word \"%.*s\" comes twice",
                             path, number, (int)(word_size < 64 ? word_size : 64), line);
    return psw_counter_add(counter, line, word_size, count, error);
}

static psc_status_t read_lines(const char *path, FILE *stream, psw_counter_t *counter,
                               psc_error_t *error)
{
    /* The longest possible line, and room to see that one is longer. */
    size_t capacity = PSW_WORD_MAX_BYTES + 64, used = 0;
    uint64_t number = 1;
    char *line = psc_alloc(capacity);
    if (line == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "out of memory reading %s", path);
    psc_status_t st = PSC_OK;
    int byte;
    while (st == PSC_OK && (byte = getc_unlocked(stream)) != EOF) {
        if (byte != '\n') {
            if (used == capacity)
                st = psc_error_set(error, PSC_CORRUPT,
                                   "%s:%" PRIu64 ": a line of more than %zu bytes", path, number,
                                   capacity);
            else
                line[used++] = (char)byte;
            continue;
        }
        st = add_line(path, number, line, used, counter, error);
        used = 0;
        number++;
    }
    if (st == PSC_OK && ferror(stream))
        st = psc_error_set_errno(error, errno, "vocabulary %s cannot be read", path);
    if (st == PSC_OK && used > 0)
        st = psc_error_set(error, PSC_CORRUPT,
                           "%s:%" PRIu64 ": the last line has no newline; the file was cut off",
                           path, number);
    psc_free(line);
    return st;
}

psc_status_t psw_vocab_read(const char *path, psw_counter_t *counter, psc_error_t *error)
{
    FILE *stream = fopen(path, "re");
    if (stream == NULL)
        return psc_error_set_errno(error, errno, "vocabulary %s cannot be read", path);
    psc_status_t st = read_lines(path, stream, counter, error);
    (void)fclose(stream);
    return st;
}
