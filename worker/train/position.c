/*
 * Facts are compared as texts, one by one in their order, so that the message names the first that
 * differs. One that only the checkpoint has, or only this training, differs too. The bytes may come
 * from anywhere: they are a client's, and the folder of checkpoints is open to many.
 */
#include "worker/train/position.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define PROGRAM "embps-train"
#define VERSION 1

void psw_facts_add(psw_facts_t *facts, const char *name, const char *format, ...)
{
    va_list arguments;
    PSC_BUG_ON(facts->n == PSW_FACTS_MAX);
    psw_fact_t *fact = &facts->all[facts->n++];
    fact->name = name;
    va_start(arguments, format);
    (void)vsnprintf(fact->value, sizeof fact->value, format, arguments);
    va_end(arguments);
}

psc_status_t psw_position_pack(const psw_position_t *position, const psw_facts_t *facts,
                               char *bytes_out, size_t *n_out, psc_error_t *error)
{
    json_t *training = json_object();
    int failed = training == NULL;
    for (size_t i = 0; !failed && i < facts->n; i++)
        failed = json_object_set_new(training, facts->all[i].name,
                                     json_string(facts->all[i].value)) != 0;
    json_t *root = failed ? NULL
                          : json_pack("{s:s, s:i, s:I, s:I, s:I, s:O}", "program", PROGRAM,
                                      "version", VERSION, "batches", (json_int_t)position->batches,
                                      "words", (json_int_t)position->words, "lost",
                                      (json_int_t)position->lost, "training", training);
    size_t n = root == NULL ? 0 : json_dumpb(root, bytes_out, PSW_POSITION_BYTES, JSON_INDENT(1));
    json_decref(root);
    json_decref(training);
    if (n == 0 || n > PSW_POSITION_BYTES)
        return psc_error_set(error, PSC_NO_MEMORY, "out of memory for the position of a training");
    *n_out = n;
    return PSC_OK;
}

static psc_status_t compare(const json_t *training, const char *checkpoint,
                            const psw_facts_t *facts, psc_error_t *error)
{
    for (size_t i = 0; i < facts->n; i++) {
        const psw_fact_t *fact = &facts->all[i];
        const char *there = json_string_value(json_object_get(training, fact->name));
        if (there == NULL || strcmp(there, fact->value) != 0)
            return psc_error_set(error, PSC_MISMATCH,
                                 "checkpoint %s is of a training with %s %.96s, and this one has "
                                 "%s %s: go on with the same, or begin anew "
                                 "(embps-server --resume none)",
                                 checkpoint, fact->name, there != NULL ? there : "not given",
                                 fact->name, fact->value);
    }
    const char *name;
    const json_t *value;
    json_object_foreach((json_t *)(uintptr_t)training, name, value)
    {
        bool known = false;
        for (size_t i = 0; i < facts->n && !known; i++)
            known = strcmp(facts->all[i].name, name) == 0;
        if (!known)
            return psc_error_set(error, PSC_MISMATCH,
                                 "checkpoint %s is of a training with %.96s %.96s, which this one "
                                 "has not",
                                 checkpoint, name,
                                 json_is_string(value) ? json_string_value(value) : "");
    }
    return PSC_OK;
}

static psc_status_t read_root(const json_t *root, const char *checkpoint, const psw_facts_t *facts,
                              psw_position_t *position_out, psc_error_t *error)
{
    const char *program = json_string_value(json_object_get(root, "program"));
    const json_t *version = json_object_get(root, "version");
    if (program == NULL || strcmp(program, PROGRAM) != 0 || !json_is_integer(version))
        return psc_error_set(error, PSC_CORRUPT,
                             "what checkpoint %s has beside the tables is no position of "
                             "embps-train: another program made it",
                             checkpoint);
    if (json_integer_value(version) != VERSION)
        return psc_error_set(error, PSC_UNSUPPORTED,
                             "checkpoint %s has a position of version %" PRId64
                             ", this is embps-train for version %d",
                             checkpoint, (int64_t)json_integer_value(version), VERSION);
    const json_t *batches = json_object_get(root, "batches");
    const json_t *words = json_object_get(root, "words");
    const json_t *lost = json_object_get(root, "lost"); /* older ones have none */
    const json_t *training = json_object_get(root, "training");
    if ((lost != NULL && (!json_is_integer(lost) || json_integer_value(lost) < 0)) ||
        !json_is_integer(batches) || json_integer_value(batches) < 0 || !json_is_integer(words) ||
        json_integer_value(words) < 0 || !json_is_object(training))
        return psc_error_set(error, PSC_CORRUPT,
                             "the position of a training in checkpoint %s is damaged", checkpoint);
    psc_status_t st = compare(training, checkpoint, facts, error);
    if (st == PSC_OK)
        *position_out = (psw_position_t){.batches = (uint64_t)json_integer_value(batches),
                                         .words = (uint64_t)json_integer_value(words),
                                         .lost = (uint64_t)json_integer_value(lost)};
    return st;
}

psc_status_t psw_position_read(const char *bytes, size_t n, const char *checkpoint,
                               const psw_facts_t *facts, psw_position_t *position_out,
                               psc_error_t *error)
{
    json_t *root =
        n <= PSW_POSITION_BYTES ? json_loadb(bytes, n, JSON_REJECT_DUPLICATES, NULL) : NULL;
    const psc_status_t st = read_root(root, checkpoint, facts, position_out, error);
    json_decref(root);
    return st;
}
