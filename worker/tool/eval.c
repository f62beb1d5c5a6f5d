/*
 * embps eval: the usual tests of word vectors, on similarity and analogy files.
 *
 * Every file is tried before anything is printed, so a damaged one never leaves half a report.
 */
#include "common/alloc.h"
#include "common/options.h"
#include "common/output.h"
#include "worker/programs/json_real.h"
#include "worker/tool/commands.h"
#include "worker/tool/hit_output.h"
#include "worker/tool/questions.h"
#include "worker/tool/similarity.h"

#include <string.h>

typedef struct eval_options {
    const char *vectors;
    psc_option_list_t similarity;
    psc_option_list_t analogy;
    uint64_t restrict_rows;
    bool json;
} eval_options_t;

static const psc_option_t options[] = {
    {.name = "vectors",
     .argument = "FILE",
     .type = PSC_OPTION_TEXT,
     .offset = offsetof(eval_options_t, vectors),
     .required = true,
     .help = "Vectors in word2vec's text or binary form, GloVe's or fastText's text form."},
    {.name = "similarity",
     .argument = "FILE",
     .type = PSC_OPTION_LIST,
     .offset = offsetof(eval_options_t, similarity),
     .help = "Files of word pairs with human scores: two words and a number a line, with tabs, "
             "commas or blanks between. Reported: Spearman's rank correlation with the cosines."},
    {.name = "analogy",
     .argument = "FILE",
     .type = PSC_OPTION_LIST,
     .offset = offsetof(eval_options_t, analogy),
     .help = "Files of analogies as Google's questions-words.txt: four words a line, sections "
             "after ':'. Reported: how often the fourth word is the nearest to the second - the "
             "first + the third, those three left out."},
    {.name = "restrict",
     .argument = "N",
     .type = PSC_OPTION_U64,
     .offset = offsetof(eval_options_t, restrict_rows),
     .min = 0,
     .max = 0x1p53,
     .default_value = "0",
     .help = "Use only the first N rows of the vectors, which are the most frequent words in files "
             "of most tools; 0: all."},
    {.name = "json",
     .type = PSC_OPTION_FLAG,
     .offset = offsetof(eval_options_t, json),
     .help = "Print JSON instead of text."},
};

static const psc_command_t command = {
    .name = "embps eval",
    .synopsis = "--vectors FILE [--similarity FILE...] [--analogy FILE...] [options]",
    .summary = "Tests word vectors on similarity and analogy files.",
    .description =
        "Pairs and questions with a word that has no vector are skipped and counted. Words "
        "are looked up as they stand, then in lower case; how many needed that is "
        "reported.",
    .options = options,
    .n_options = sizeof options / sizeof options[0],
    .examples = "embps eval --vectors vectors.txt --similarity ws353.txt men.txt --analogy "
                "questions-words.txt",
};

typedef struct report {
    size_t n_rows; /* used */
    psw_similarity_t *similarity;
    psw_questions_t *analogy;
} report_t;

static double percent(size_t part, size_t whole)
{
    return whole == 0 ? 0.0 : 100.0 * (double)part / (double)whole;
}

static const char *file_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

static void print_section(const psw_section_t *section)
{
    psw_shown_t shown;
    const char *name = section->name[0] != '\0' ? psw_show(section->name, &shown) : "(no section)";
    if (section->n_known == 0)
        (void)printf("  %-28s      -  none of %zu known\n", name, section->n_questions);
    else
        (void)printf("  %-28s %5.1f%%  %zu of %zu, %zu skipped\n", name,
                     percent(section->n_right, section->n_known), section->n_right,
                     section->n_known, section->n_questions - section->n_known);
}

static psc_status_t print_text(const eval_options_t *o, const psw_vectors_t *vectors,
                               const report_t *report, psc_error_t *error)
{
    (void)printf("%s: %zu words of %zu dimensions (%s)", o->vectors, psw_vectors_count(vectors),
                 psw_vectors_dim(vectors), psw_vectors_format(vectors));
    if (report->n_rows < psw_vectors_count(vectors))
        (void)printf(", the first %zu used", report->n_rows);
    (void)printf("\n");
    for (size_t k = 0; k < o->similarity.n; k++) {
        const psw_similarity_t *s = &report->similarity[k];
        (void)printf("%-30s ", file_name(o->similarity.items[k]));
        if (s->defined)
            (void)printf("spearman %6.3f", s->spearman);
        else
            (void)printf("spearman undefined");
        (void)printf("  %zu of %zu pairs known (%.1f%%)", s->n_used, s->n_pairs,
                     percent(s->n_used, s->n_pairs));
        if (s->n_lowered > 0)
            (void)printf(", %zu in lower case", s->n_lowered);
        (void)printf("\n");
    }
    for (size_t k = 0; k < o->analogy.n; k++) {
        const psw_questions_t *q = &report->analogy[k];
        (void)printf("%-30s accuracy %.1f%%  %zu of %zu questions known (%.1f%%)",
                     file_name(o->analogy.items[k]), percent(q->total.n_right, q->total.n_known),
                     q->total.n_known, q->total.n_questions,
                     percent(q->total.n_known, q->total.n_questions));
        if (q->n_lowered > 0)
            (void)printf(", %zu in lower case", q->n_lowered);
        (void)printf("\n");
        for (size_t s = 0; s < q->n_sections; s++)
            print_section(&q->sections[s]);
        print_section(&q->total);
    }
    return psc_output_flush(error);
}

static json_t *json_size(size_t n)
{
    return json_integer((json_int_t)n);
}

static json_t *section_json(const psw_section_t *section)
{
    json_t *accuracy = section->n_known > 0
                           ? psw_json_real((double)section->n_right / (double)section->n_known)
                           : json_null();
    return json_pack("{s:o, s:o, s:o, s:o, s:o}", "name",
                     psw_json_text(section->name, strlen(section->name)), "questions",
                     json_size(section->n_questions), "known", json_size(section->n_known), "right",
                     json_size(section->n_right), "accuracy", accuracy);
}

/* Appends to array; false, and value freed, when memory is short. */
static bool append(json_t *array, json_t *value)
{
    return value != NULL && json_array_append_new(array, value) == 0;
}

static json_t *analogy_json(const char *path, const psw_questions_t *q)
{
    json_t *sections = json_array();
    bool ok = sections != NULL;
    for (size_t s = 0; ok && s < q->n_sections; s++)
        ok = append(sections, section_json(&q->sections[s]));
    if (!ok) {
        json_decref(sections);
        return NULL;
    }
    return json_pack("{s:o, s:o, s:o, s:o}", "file", psw_json_text(path, strlen(path)), "total",
                     section_json(&q->total), "lowered", json_size(q->n_lowered), "sections",
                     sections);
}

static json_t *similarity_json(const char *path, const psw_similarity_t *s)
{
    return json_pack("{s:o, s:o, s:o, s:o, s:o}", "file", psw_json_text(path, strlen(path)),
                     "spearman", s->defined ? psw_json_real(s->spearman) : json_null(), "pairs",
                     json_size(s->n_pairs), "known", json_size(s->n_used), "lowered",
                     json_size(s->n_lowered));
}

static psc_status_t print_json(const eval_options_t *o, const psw_vectors_t *vectors,
                               const report_t *report, psc_error_t *error)
{
    json_t *similarity = json_array();
    json_t *analogy = json_array();
    bool ok = similarity != NULL && analogy != NULL;
    for (size_t k = 0; ok && k < o->similarity.n; k++)
        ok = append(similarity, similarity_json(o->similarity.items[k], &report->similarity[k]));
    for (size_t k = 0; ok && k < o->analogy.n; k++)
        ok = append(analogy, analogy_json(o->analogy.items[k], &report->analogy[k]));
    if (!ok) {
        json_decref(similarity);
        json_decref(analogy);
        return psw_json_print(NULL, error);
    }
    return psw_json_print(
        json_pack("{s:o, s:o, s:o, s:o, s:s, s:o, s:o}", "vectors",
                  psw_json_text(o->vectors, strlen(o->vectors)), "words",
                  json_size(psw_vectors_count(vectors)), "used", json_size(report->n_rows), "dim",
                  json_size(psw_vectors_dim(vectors)), "format", psw_vectors_format(vectors),
                  "similarity", similarity, "analogy", analogy),
        error);
}

static psc_status_t evaluate(const eval_options_t *o, const psw_vectors_t *vectors,
                             report_t *report, psc_error_t *error)
{
    report->n_rows = psw_vectors_count(vectors);
    if (o->restrict_rows > 0 && o->restrict_rows < report->n_rows)
        report->n_rows = (size_t)o->restrict_rows;
    report->similarity = psc_alloc_zeroed(o->similarity.n, sizeof *report->similarity);
    report->analogy = psc_alloc_zeroed(o->analogy.n, sizeof *report->analogy);
    if (report->similarity == NULL || report->analogy == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "no memory for the results");
    psc_status_t st = PSC_OK;
    for (size_t k = 0; st == PSC_OK && k < o->similarity.n; k++)
        st = psw_similarity_run(vectors, report->n_rows, o->similarity.items[k],
                                &report->similarity[k], error);
    for (size_t k = 0; st == PSC_OK && k < o->analogy.n; k++)
        st = psw_questions_run(vectors, report->n_rows, o->analogy.items[k], &report->analogy[k],
                               error);
    if (st != PSC_OK)
        return st;
    return o->json ? print_json(o, vectors, report, error) : print_text(o, vectors, report, error);
}

psc_status_t psw_tool_eval(int argc, char *const argv[], psc_error_t *error)
{
    eval_options_t o = {0};
    psc_parse_result_t parsed;
    psc_status_t st = psc_options_parse(&command, argc, argv, &o, NULL, NULL, &parsed, error);
    if (st != PSC_OK || parsed == PSC_PARSE_EXIT)
        return st;
    if (o.similarity.n == 0 && o.analogy.n == 0)
        return psc_error_set(error, PSC_INVALID_ARGUMENT,
                             "eval: neither --similarity nor --analogy is given; see embps "
                             "eval --help");
    psw_vectors_t *vectors;
    st = psw_vectors_load(o.vectors, &vectors, error);
    if (st != PSC_OK)
        return st;
    psw_vectors_normalize(vectors);
    report_t report = {0};
    st = evaluate(&o, vectors, &report, error);
    for (size_t k = 0; report.analogy != NULL && k < o.analogy.n; k++)
        psw_questions_free(&report.analogy[k]);
    psc_free(report.analogy);
    psc_free(report.similarity);
    psw_vectors_destroy(vectors);
    return st;
}
