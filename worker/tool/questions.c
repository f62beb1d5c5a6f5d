/*
 * Analogy files. Parsed as a whole into rows first, then asked in groups of GROUP through the
 * blocked search, which is where the time goes. Threads: none here.
 */
#include "worker/tool/questions.h"

#include "common/alloc.h"
#include "common/file.h"
#include "worker/tool/vector_search.h"
#include "worker/tool/word_lookup.h"

#include <stdio.h>
#include <string.h>

enum { MOST_FILE_BYTES = 256 << 20, GROUP = 512 };

typedef struct question {
    size_t rows[4];
    size_t section;
} question_t;

typedef struct parser {
    const psw_vectors_t *vectors;
    size_t n_rows;
    const char *path;
    psw_questions_t result;
    size_t sections_room;
    question_t *questions; /* the known ones */
    size_t n;
    size_t room;
    psc_error_t *error;
} parser_t;

static psc_status_t no_memory(parser_t *p)
{
    return psc_error_set(p->error, PSC_NO_MEMORY, "no memory for the questions of %s", p->path);
}

static psc_status_t begin_section(parser_t *p, const char *name, size_t size)
{
    psw_questions_t *result = &p->result;
    if (result->n_sections == p->sections_room) {
        size_t room = p->sections_room * 2 + 16;
        psw_section_t *sections =
            psc_realloc_array(result->sections, room, sizeof *result->sections);
        if (sections == NULL)
            return no_memory(p);
        result->sections = sections;
        p->sections_room = room;
    }
    psw_section_t *section = &result->sections[result->n_sections++];
    *section = (psw_section_t){0};
    (void)snprintf(section->name, sizeof section->name, "%.*s", (int)(size < 64 ? size : 64), name);
    return PSC_OK;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

/* Four words; false when there are fewer or more. */
static bool split(const char *line, size_t size, const char *words[4], size_t sizes[4])
{
    size_t at = 0;
    for (size_t n = 0;; n++) {
        while (at < size && is_blank(line[at]))
            at++;
        if (at == size || n == 4)
            return at == size && n == 4;
        words[n] = line + at;
        while (at < size && !is_blank(line[at]))
            at++;
        sizes[n] = (size_t)(line + at - words[n]);
    }
}

static psc_status_t take_question(parser_t *p, const char *const words[4], const size_t sizes[4])
{
    psc_status_t st = p->result.n_sections == 0 ? begin_section(p, "", 0) : PSC_OK;
    if (st != PSC_OK)
        return st;
    psw_section_t *section = &p->result.sections[p->result.n_sections - 1];
    section->n_questions++;
    question_t question = {.section = p->result.n_sections - 1};
    bool lowered = false;
    for (int k = 0; k < 4; k++) {
        psw_lookup_t found =
            psw_word_lookup(p->vectors, p->n_rows, words[k], sizes[k], &question.rows[k]);
        if (found == PSW_LOOKUP_NONE)
            return PSC_OK;
        lowered = lowered || found == PSW_LOOKUP_LOWERED;
    }
    if (p->n == p->room) {
        size_t room = p->room * 2 + 1024;
        question_t *questions = psc_realloc_array(p->questions, room, sizeof *questions);
        if (questions == NULL)
            return no_memory(p);
        p->questions = questions;
        p->room = room;
    }
    p->questions[p->n++] = question;
    section->n_known++;
    p->result.n_lowered += lowered ? 1 : 0;
    return PSC_OK;
}

static psc_status_t parse(parser_t *p, const char *text, size_t size)
{
    size_t number = 0;
    size_t start = size >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
    psc_status_t st = PSC_OK;
    while (st == PSC_OK && start < size) {
        const char *line = text + start;
        const char *end = memchr(line, '\n', size - start);
        size_t line_size = end != NULL ? (size_t)(end - line) : size - start;
        start += line_size + 1;
        number++;
        while (line_size > 0 && is_blank(line[line_size - 1]))
            line_size--;
        const char *words[4];
        size_t sizes[4];
        if (line_size == 0 || line[0] == '#' || (line_size > 1 && memcmp(line, "//", 2) == 0))
            continue;
        if (line[0] == ':') {
            size_t skip = 1;
            while (skip < line_size && is_blank(line[skip]))
                skip++;
            st = begin_section(p, line + skip, line_size - skip);
        } else if (split(line, line_size, words, sizes)) {
            st = take_question(p, words, sizes);
        } else {
            st = psc_error_set(p->error, PSC_CORRUPT, "%s, line %zu: not four words", p->path,
                               number);
        }
    }
    return st;
}

/* Asks questions first .. first + n - 1, n <= GROUP. */
static psc_status_t ask_group(parser_t *p, size_t first, size_t n, float *queries,
                              psw_excluded_t *inputs)
{
    size_t stride = psw_vectors_stride(p->vectors);
    psw_hit_t hits[GROUP];
    size_t found[GROUP];
    for (size_t k = 0; k < n; k++) {
        const size_t *rows = p->questions[first + k].rows;
        psw_analogy_query(p->vectors, rows[0], rows[1], rows[2], queries + k * stride);
        inputs[k] = (psw_excluded_t){.rows = {rows[0], rows[1], rows[2]}, .n = 3};
    }
    psc_status_t st =
        psw_search(p->vectors, p->n_rows, queries, n, inputs, 1, hits, found, p->error);
    for (size_t k = 0; st == PSC_OK && k < n; k++) {
        const question_t *question = &p->questions[first + k];
        if (found[k] == 1 && hits[k].row == question->rows[3])
            p->result.sections[question->section].n_right++;
    }
    return st;
}

static psc_status_t ask(parser_t *p)
{
    float *queries = psc_alloc_array(GROUP * psw_vectors_stride(p->vectors), sizeof *queries);
    psw_excluded_t *inputs = psc_alloc_array(GROUP, sizeof *inputs);
    psc_status_t st = queries != NULL && inputs != NULL ? PSC_OK : no_memory(p);
    for (size_t first = 0; st == PSC_OK && first < p->n; first += GROUP)
        st = ask_group(p, first, p->n - first < GROUP ? p->n - first : GROUP, queries, inputs);
    psc_free(queries);
    psc_free(inputs);
    return st;
}

static void add_up(psw_questions_t *result)
{
    psw_section_t *total = &result->total;
    (void)snprintf(total->name, sizeof total->name, "total");
    for (size_t k = 0; k < result->n_sections; k++) {
        total->n_questions += result->sections[k].n_questions;
        total->n_known += result->sections[k].n_known;
        total->n_right += result->sections[k].n_right;
    }
}

psc_status_t psw_questions_run(const psw_vectors_t *vectors, size_t n_rows, const char *path,
                               psw_questions_t *result_out, psc_error_t *error)
{
    char *text;
    size_t size;
    psc_status_t st = psc_file_read(path, MOST_FILE_BYTES, &text, &size, error);
    if (st != PSC_OK)
        return st;
    parser_t p = {.vectors = vectors, .n_rows = n_rows, .path = path, .error = error};
    st = parse(&p, text, size);
    psc_free(text);
    if (st == PSC_OK)
        st = ask(&p);
    if (st == PSC_OK) {
        add_up(&p.result);
        if (p.result.total.n_questions == 0)
            st = psc_error_set(error, PSC_CORRUPT, "%s holds no question", path);
    }
    psc_free(p.questions);
    if (st == PSC_OK)
        *result_out = p.result;
    else
        psw_questions_free(&p.result);
    return st;
}

void psw_questions_free(psw_questions_t *questions)
{
    psc_free(questions->sections);
    *questions = (psw_questions_t){0};
}
