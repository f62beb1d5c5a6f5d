/*
 * Prints questions and the words found for them to standard output: as text, or as one JSON array
 * of
 * {"query": ..., "hits": [{"word": ..., "cosine": ...}, ...]}.
 */
#ifndef WORKER_TOOL_HIT_OUTPUT_H
#define WORKER_TOOL_HIT_OUTPUT_H

#include "worker/tool/vector_search.h"

#include <jansson.h>
#include <stdbool.h>

/* Plain data; fields are the module's own. */
typedef struct psw_hit_output {
    bool as_json;
    json_t *array;
} psw_hit_output_t;

/* Errors: NO_MEMORY. */
PSC_MUST_CHECK psc_status_t psw_hit_output_start(psw_hit_output_t *output, bool as_json,
                                                 psc_error_t *error);

/* A word that was found. Borrowed. */
typedef struct psw_named_hit {
    const char *word;
    size_t size;
    float score;
} psw_named_hit_t;

/* One question and its n hits, by name or as rows of a set. Errors: NO_MEMORY. */
PSC_MUST_CHECK psc_status_t psw_hit_output_add_named(psw_hit_output_t *output, const char *query,
                                                     const psw_named_hit_t *hits, size_t n,
                                                     psc_error_t *error);
PSC_MUST_CHECK psc_status_t psw_hit_output_add(psw_hit_output_t *output, const char *query,
                                               const psw_vectors_t *vectors, const psw_hit_t *hits,
                                               size_t n, psc_error_t *error);

/* Prints what is left unless st is an error, and frees. Returns st, or IO, DISK_FULL. */
PSC_MUST_CHECK psc_status_t psw_hit_output_finish(psw_hit_output_t *output, psc_status_t st,
                                                  psc_error_t *error);

/* A name or a message from elsewhere, for a line of text: as common/text.h shows it, cut where it
 * is longer than any of them. Returns the text in room. */
typedef struct psw_shown {
    char text[2048];
} psw_shown_t;
const char *psw_show(const char *text, psw_shown_t *room);

/* For printf's "%-*s", which counts bytes: the width in bytes that makes a shown text, in UTF-8, so
 * many characters wide. Those that a terminal makes two columns wide still count as one. */
int psw_shown_width(const char *shown, int characters);

/* A JSON string of any bytes: those that are not UTF-8 become U+FFFD, one each. Gives; NULL when
 * memory is short. */
json_t *psw_json_text(const char *bytes, size_t size);

/* Prints a JSON value and a newline to standard output, flushed. Takes value. Errors: NO_MEMORY
 * when it is NULL; IO, DISK_FULL. */
PSC_MUST_CHECK psc_status_t psw_json_print(json_t *value, psc_error_t *error);

#endif
