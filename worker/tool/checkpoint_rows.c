/*
 * What ps/checkpoint/rows_diff.h finds becomes JSON, and the text is made from that, as with the
 * rest of embps checkpoint diff. Ids are text in JSON, since not every reader has whole numbers of
 * 64 bits, and stand beside their words where a checkpoint has a vocabulary.
 *
 * Threads: none.
 */
#include "worker/tool/checkpoint_rows.h"

#include "ps/checkpoint/rows_diff.h"

#include "common/alloc.h"
#include "worker/programs/json_real.h"
#include "worker/tool/hit_output.h"
#include "worker/tool/word_list.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- words ---- */

static psc_status_t load_words(const char *folder, const psp_saved_manifest_t *manifest,
                               psw_vectors_t **words_out, psc_error_t *error)
{
    uint64_t size, checksum;
    char *path = psp_saved_path(folder, manifest->name, manifest->vocabulary->name);
    if (path == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "out of memory for checkpoints in %s", folder);
    psc_status_t st = psp_saved_sum(path, &size, &checksum, error);
    if (st == PSC_OK &&
        (size != manifest->vocabulary->size || checksum != manifest->vocabulary->checksum))
        st = psc_error_set(error, PSC_CORRUPT, "%s is damaged: its size or checksum is another",
                           path);
    if (st == PSC_OK)
        st = psw_word_list_load(path, words_out, error);
    psc_free(path);
    return st;
}

/* ---- JSON ---- */

static json_t *describe_row(const ps_rows_diff_row_t *row, const psw_vectors_t *words)
{
    char id[PSW_ID_TEXT_SIZE], text[PSW_ID_TEXT_SIZE];
    size_t size;
    const char *word = psw_word_list_word(words, row->id, text, &size);
    (void)snprintf(id, sizeof id, "%" PRIu64, row->id);
    return json_pack("{s:s, s:o, s:o}", "id", id, "word",
                     word == text ? json_null() : psw_json_text(word, size), "norm",
                     psw_json_real(row->norm));
}

static json_t *describe_table(const ps_rows_diff_table_t *table, const psw_vectors_t *words)
{
    json_t *largest = json_array();
    for (size_t i = 0; i < table->n_largest; i++)
        (void)json_array_append_new(largest, describe_row(&table->largest[i], words));
    return json_pack("{s:[I, I], s:I, s:I, s:I, s:o, s:I, s:o}", "rows",
                     (json_int_t)table->n_rows[0], (json_int_t)table->n_rows[1], "added",
                     (json_int_t)table->n_added, "removed", (json_int_t)table->n_removed, "changed",
                     (json_int_t)table->n_changed, "state_changed",
                     table->has[0] && table->has[1] && !table->states_compared
                         ? json_null()
                         : json_integer((json_int_t)table->n_state_changed),
                     "same", (json_int_t)table->n_same, "largest", largest);
}

psc_status_t psw_checkpoint_rows(const char *folder, const psp_saved_manifest_t *const manifests[2],
                                 const psw_checkpoint_options_t *options, json_t **rows_out,
                                 psc_error_t *error)
{
    const char *const names[] = {manifests[0]->name, manifests[1]->name};
    const ps_rows_diff_options_t how = {.n_largest = (size_t)options->top,
                                        .memory_bytes = options->memory_bytes};
    const psp_saved_manifest_t *with_words = manifests[manifests[1]->vocabulary != NULL];
    psw_vectors_t *words = NULL;
    ps_rows_diff_t *diff = NULL;
    psc_status_t st = ps_rows_diff(folder, names, &how, &diff, error);
    if (st == PSC_OK && with_words->vocabulary != NULL)
        st = load_words(folder, with_words, &words, error);
    if (st == PSC_OK) {
        json_t *all = json_object();
        for (size_t i = 0; i < diff->n_tables; i++) {
            const char *name = diff->tables[i].name;
            json_t *key = psw_json_text(name, strlen(name));
            (void)json_object_set_new(all, json_string_value(key),
                                      describe_table(&diff->tables[i], words));
            json_decref(key);
        }
        *rows_out = all;
    }
    psw_vectors_destroy(words);
    ps_rows_diff_destroy(diff);
    return st;
}

/* ---- text ---- */

static json_int_t number(const json_t *table, const char *key)
{
    return json_integer_value(json_object_get(table, key));
}

bool psw_checkpoint_rows_differ(const json_t *table)
{
    return number(table, "added") != 0 || number(table, "removed") != 0 ||
           number(table, "changed") != 0 || number(table, "state_changed") != 0;
}

void psw_checkpoint_rows_print(const json_t *table)
{
    const json_t *rows = json_object_get(table, "rows"), *largest, *row;
    const json_t *state = json_object_get(table, "state_changed");
    psw_shown_t shown;
    if (table == NULL)
        return;
    (void)printf(
        "  rows: %" JSON_INTEGER_FORMAT " -> %" JSON_INTEGER_FORMAT "; %" JSON_INTEGER_FORMAT
        " added, %" JSON_INTEGER_FORMAT " removed, %" JSON_INTEGER_FORMAT " changed",
        json_integer_value(json_array_get(rows, 0)), json_integer_value(json_array_get(rows, 1)),
        number(table, "added"), number(table, "removed"), number(table, "changed"));
    if (json_is_integer(state))
        (void)printf(", %" JSON_INTEGER_FORMAT " with another state alone",
                     json_integer_value(state));
    (void)printf(", %" JSON_INTEGER_FORMAT " the same%s\n", number(table, "same"),
                 json_is_integer(state) ? "" : " (states of two optimizers are not compared)");
    largest = json_object_get(table, "largest");
    if (json_array_size(largest) != 0)
        (void)printf("  %-22s%14s\n", "row", "L2 of change");
    for (size_t i = 0; i < json_array_size(largest); i++) {
        row = json_array_get(largest, i);
        const json_t *norm = json_object_get(row, "norm");
        const char *word = json_string_value(json_object_get(row, "word"));
        (void)printf("  %-22s%14.6g%s%s\n", json_string_value(json_object_get(row, "id")),
                     json_is_null(norm) ? (double)INFINITY : json_number_value(norm),
                     word != NULL ? "  " : "", word != NULL ? psw_show(word, &shown) : "");
    }
}
