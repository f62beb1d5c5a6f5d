/*
 * embps checkpoint diff --rows: which rows are other ones, as JSON and as text.
 *
 *     st = psw_checkpoint_rows(folder, manifests, options, &rows, error);
 *     json_object_get(rows, "items");
 *     psw_checkpoint_rows_print(...);
 *     json_decref(rows);
 *
 * Threads: none.
 */
#ifndef WORKER_TOOL_CHECKPOINT_ROWS_H
#define WORKER_TOOL_CHECKPOINT_ROWS_H

#include "worker/tool/checkpoint_files.h"

/*
 * Of each table, by its name: {"rows": [n, n], "added": n, "removed": n, "changed": n,
 * "state_changed": n or null, "same": n, "largest": [{"id": "...", "word": "..." or null, "norm": x
 * or null}]}. Words are those of the second checkpoint's vocabulary, or else of the first's.
 * Errors: those of ps_rows_diff; CORRUPT, NOT_FOUND (the vocabulary, by name). Gives.
 */
PSC_MUST_CHECK psc_status_t psw_checkpoint_rows(const char *folder,
                                                const psp_saved_manifest_t *const manifests[2],
                                                const psw_checkpoint_options_t *options,
                                                json_t **rows_out, psc_error_t *error);

/* Whether any row of one table is another one. */
bool psw_checkpoint_rows_differ(const json_t *table);

/* The rows of one table, of what psw_checkpoint_rows gave, as lines. NULL is a no-op. */
void psw_checkpoint_rows_print(const json_t *table);

#endif
