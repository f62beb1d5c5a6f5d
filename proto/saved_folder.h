/*
 * A folder of checkpoints: which there are, and whether one is whole.
 *
 *     DIR/lineage                 a number that says which runs continue each other here
 *     DIR/lock                    held by the first server of the run that writes here
 *     DIR/log/                    what came after the newest one, where servers keep that (ps/log)
 *     DIR/NAME/manifest           written last: a folder without it is no checkpoint
 *     DIR/NAME/state              bytes of the client that asked for it
 *     DIR/NAME/vocabulary         of that client too: "word count", line i (from 0) for id i
 *     DIR/NAME/server-N/part      what server N was, and its files:
 *     DIR/NAME/server-N/rocksdb/  rows, as the cold tier had them
 *     DIR/NAME/server-N/rows      rows that count more than those: images, one behind the other
 *     DIR/NAME/server-N/rows-K    the same of checkpoints before, which "rows" rests on
 *     DIR/NAME/server-N/growth    sightings and ages of rows that are admitted late or expire
 *     DIR/NAME.partial            one that is being made; DIR/NAME.removed: one that goes
 *
 * Threads: none.
 */
#ifndef PROTO_SAVED_FOLDER_H
#define PROTO_SAVED_FOLDER_H

#include "proto/saved.h"

#define PSP_SAVED_PARTIAL ".partial"
#define PSP_SAVED_REMOVED ".removed"

/* Names of checkpoints, oldest first. */
typedef struct psp_saved_names {
    size_t n;
    char (*all)[PSP_SAVED_NAME_MAX + 1];
} psp_saved_names_t;

/* Those in the folder; none when it does not exist. Errors: IO, NO_MEMORY. Gives (names_clear). */
PSC_MUST_CHECK psc_status_t psp_saved_list(const char *folder, psp_saved_names_t *names_out,
                                           psc_error_t *error);
void psp_saved_names_clear(psp_saved_names_t *names);

/* "<folder>/<name>/<file>", for file NULL without it. Gives; NULL: out of memory. */
char *psp_saved_path(const char *folder, const char *name, const char *file);
/* The same of a file of server N. */
char *psp_saved_server_path(const char *folder, const char *name, uint32_t server,
                            const char *file);

/* The manifest of a checkpoint. Errors: as psp_saved_read; INVALID_ARGUMENT (no checkpoint has such
 * a name). Gives. */
PSC_MUST_CHECK psc_status_t psp_saved_open(const char *folder, const char *name,
                                           psp_saved_t **saved_out, psc_error_t *error);

/* Part N of a checkpoint whose manifest was read: there, and what the manifest says. Errors: as
 * psp_saved_read, naming file and host. Gives. */
PSC_MUST_CHECK psc_status_t psp_saved_open_part(const char *folder,
                                                const psp_saved_manifest_t *manifest,
                                                uint32_t server, psp_saved_t **saved_out,
                                                psc_error_t *error);

/* Is told each fault. */
typedef void (*psp_saved_fault_fn)(void *context, const psc_error_t *fault);

/*
 * Compares files of part N with what it says of them: all there, with their sizes and, if deep,
 * their checksums. Each fault goes to fn (NULL: to nobody). Returns OK, or the first fault.
 */
PSC_MUST_CHECK psc_status_t psp_saved_check_files(const char *folder,
                                                  const psp_saved_manifest_t *manifest,
                                                  const psp_saved_part_t *part, bool deep,
                                                  psp_saved_fault_fn fn, void *context,
                                                  psc_error_t *error);

/* The same of what the client that asked for it left there: state and vocabulary. */
PSC_MUST_CHECK psc_status_t psp_saved_check_client(const char *folder,
                                                   const psp_saved_manifest_t *manifest, bool deep,
                                                   psp_saved_fault_fn fn, void *context,
                                                   psc_error_t *error);

/* The same of the whole checkpoint: manifest, parts, files, state, vocabulary. */
PSC_MUST_CHECK psc_status_t psp_saved_verify(const char *folder, const char *name, bool deep,
                                             psp_saved_fault_fn fn, void *context,
                                             psc_error_t *error);

#endif
