/*
 * Words of a vocabulary file. "</s> 0", which the original tool writes first, is no id to trainers
 * and is passed over here too. Threads: none here.
 */
#include "worker/tool/word_list.h"

#include "worker/tool/word_lookup.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORD_BYTES 1024u
#define LINE_BYTES (WORD_BYTES + 64u)

static psc_status_t add_line(const char *path, uint64_t number, const char *line, size_t size,
                             psw_vectors_t *words, psc_error_t *error)
{
    const float nothing = 0;
    const char *blank = memchr(line, ' ', size);
    const size_t word_size = blank != NULL ? (size_t)(blank - line) : size;
    bool added;
    if (size == 6 && memcmp(line, "</s> 0", 6) == 0)
        return PSC_OK;
    if (word_size == 0 || word_size > WORD_BYTES)
        return psc_error_set(error, PSC_CORRUPT,
                             "%s:%" PRIu64 ": a word of %zu bytes; 1 to %u are possible", path,
                             number, word_size, WORD_BYTES);
    psc_status_t st = psw_vectors_add(words, line, word_size, &nothing, &added, error);
    if (st == PSC_OK && !added)
        st = psc_error_set(error, PSC_CORRUPT, "%s:%" PRIu64 ": the word \"%.*s\" comes twice",
                           path, number, (int)(word_size < 64 ? word_size : 64), line);
    return st;
}

static psc_status_t read_lines(const char *path, FILE *stream, psw_vectors_t *words,
                               psc_error_t *error)
{
    char line[LINE_BYTES];
    psc_status_t st = PSC_OK;
    for (uint64_t number = 1; st == PSC_OK && fgets(line, sizeof line, stream) != NULL; number++) {
        size_t size = strlen(line);
        if (size == sizeof line - 1 && line[size - 1] != '\n')
            return psc_error_set(error, PSC_CORRUPT, "%s:%" PRIu64 ": a line of over %zu bytes",
                                 path, number, sizeof line - 2);
        size -= size != 0 && line[size - 1] == '\n';
        st = add_line(path, number, line, size, words, error);
    }
    if (st == PSC_OK && ferror(stream))
        st = psc_error_set(error, PSC_IO, "cannot read %s", path);
    return st;
}

psc_status_t psw_word_list_load(const char *path, psw_vectors_t **words_out, psc_error_t *error)
{
    psw_vectors_t *words;
    FILE *stream = fopen(path, "rb");
    if (stream == NULL)
        return psc_error_set_errno(error, errno, "cannot open %s", path);
    psc_status_t st = psw_vectors_create(1, &words, error);
    if (st == PSC_OK) {
        st = read_lines(path, stream, words, error);
        if (st == PSC_OK)
            *words_out = words;
        else
            psw_vectors_destroy(words);
    }
    (void)fclose(stream); /* only read from */
    return st;
}

psc_status_t psw_parse_id(const char *what, const char *word, uint64_t *id_out, psc_error_t *error)
{
    char *end;
    errno = 0;
    *id_out = strtoull(word, &end, 10);
    if (word[0] < '0' || word[0] > '9' || *end != '\0' || errno != 0)
        return psc_error_set(error, PSC_INVALID_ARGUMENT,
                             "%s: \"%.40s\" is no id: a whole number from 0 to 2^64 - 1", what,
                             word);
    return PSC_OK;
}

psc_status_t psw_word_list_id(const psw_vectors_t *words, const char *path, const char *word,
                              uint64_t *id_out, psc_error_t *error)
{
    size_t row;
    if (words == NULL)
        return psw_parse_id("without --vocab", word, id_out, error);
    if (psw_word_lookup(words, psw_vectors_count(words), word, strlen(word), &row) ==
        PSW_LOOKUP_NONE)
        return psw_unknown_word(words, path, word, error);
    *id_out = row;
    return PSC_OK;
}

const char *psw_word_list_word(const psw_vectors_t *words, uint64_t id, char text[PSW_ID_TEXT_SIZE],
                               size_t *size_out)
{
    if (words != NULL && id < psw_vectors_count(words))
        return psw_vectors_word(words, id, size_out);
    *size_out = (size_t)snprintf(text, PSW_ID_TEXT_SIZE, "%" PRIu64, id);
    return text;
}
