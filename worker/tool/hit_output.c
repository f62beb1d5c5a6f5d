/*
 * Output of the tool. Text is printed at once, JSON as one value at the end. Words and names are
 * bytes of any kind; text shows those that are not for a terminal as \xNN, JSON must be UTF-8.
 */
#include "worker/tool/hit_output.h"

#include "common/alloc.h"
#include "common/output.h"
#include "common/text.h"
#include "worker/programs/json_real.h"

#include <errno.h>
#include <string.h>

const char *psw_show(const char *text, psw_shown_t *room)
{
    return psc_text_show(text, strlen(text), room->text, sizeof room->text);
}

int psw_shown_width(const char *shown, int characters)
{
    for (; *shown != '\0'; shown++)
        characters += ((unsigned char)*shown & 0xC0u) == 0x80u; /* goes on with a character */
    return characters;
}

json_t *psw_json_text(const char *bytes, size_t size)
{
    json_t *text = json_stringn(bytes, size);
    if (text != NULL)
        return text;
    /* Not UTF-8 (or no memory, which then shows below). */
    char *clean = psc_alloc_array(size + 1, 3);
    if (clean == NULL)
        return NULL;
    size_t n = 0;
    for (size_t i = 0; i < size; i++) {
        if ((unsigned char)bytes[i] < 0x80) {
            clean[n++] = bytes[i];
        } else {
            clean[n++] = '\xef'; /* U+FFFD */
            clean[n++] = '\xbf';
            clean[n++] = '\xbd';
        }
    }
    text = json_stringn(clean, n);
    psc_free(clean);
    return text;
}

psc_status_t psw_json_print(json_t *value, psc_error_t *error)
{
    if (value == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "no memory for JSON");
    bool written = json_dumpf(value, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9)) == 0;
    json_decref(value);
    if (written)
        written = fputc('\n', stdout) != EOF;
    psc_status_t st = psc_output_flush(error);
    if (st == PSC_OK && !written)
        st = psc_error_set(error, PSC_IO, "cannot write the output");
    return st;
}

psc_status_t psw_hit_output_start(psw_hit_output_t *output, bool as_json, psc_error_t *error)
{
    output->as_json = as_json;
    output->array = as_json ? json_array() : NULL;
    if (as_json && output->array == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "no memory for JSON");
    return PSC_OK;
}

/* A word of any length. */
static void print_word(const char *word, size_t size)
{
    for (size_t at = 0; at < size;) {
        const size_t n = psc_text_letter(word + at, size - at);
        if (n != 0)
            (void)fwrite(word + at, 1, n, stdout);
        else
            (void)printf("\\x%02x", (unsigned)(unsigned char)word[at]);
        at += n != 0 ? n : 1;
    }
    (void)putchar('\n');
}

static void print_text(const char *query, const psw_named_hit_t *hits, size_t n)
{
    print_word(query, strlen(query));
    for (size_t k = 0; k < n; k++) {
        (void)printf("  %7.4f  ", (double)hits[k].score);
        print_word(hits[k].word, hits[k].size);
    }
}

psc_status_t psw_hit_output_add_named(psw_hit_output_t *output, const char *query,
                                      const psw_named_hit_t *hits, size_t n, psc_error_t *error)
{
    if (!output->as_json) {
        print_text(query, hits, n);
        return PSC_OK;
    }
    json_t *list = json_array();
    bool ok = list != NULL;
    for (size_t k = 0; ok && k < n; k++) {
        json_t *hit = json_pack("{s:o, s:o}", "word", psw_json_text(hits[k].word, hits[k].size),
                                "cosine", psw_json_real((double)hits[k].score));
        ok = hit != NULL && json_array_append_new(list, hit) == 0;
    }
    if (ok) {
        json_t *entry =
            json_pack("{s:o, s:O}", "query", psw_json_text(query, strlen(query)), "hits", list);
        ok = entry != NULL && json_array_append_new(output->array, entry) == 0;
    }
    json_decref(list);
    return ok ? PSC_OK : psc_error_set(error, PSC_NO_MEMORY, "no memory for JSON");
}

psc_status_t psw_hit_output_add(psw_hit_output_t *output, const char *query,
                                const psw_vectors_t *vectors, const psw_hit_t *hits, size_t n,
                                psc_error_t *error)
{
    psw_named_hit_t *named = psc_alloc_array(n != 0 ? n : 1, sizeof *named);
    if (named == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "no memory for %zu hits", n);
    for (size_t k = 0; k < n; k++) {
        named[k].score = hits[k].score;
        named[k].word = psw_vectors_word(vectors, hits[k].row, &named[k].size);
    }
    psc_status_t st = psw_hit_output_add_named(output, query, named, n, error);
    psc_free(named);
    return st;
}

psc_status_t psw_hit_output_finish(psw_hit_output_t *output, psc_status_t st, psc_error_t *error)
{
    if (st != PSC_OK) {
        json_decref(output->array);
        return st;
    }
    return output->as_json ? psw_json_print(output->array, error) : psc_output_flush(error);
}
