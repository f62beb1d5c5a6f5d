/*
 * What the looks at a folder of checkpoints have in common (embps checkpoint list, inspect, verify,
 * diff, prune).
 */
#ifndef WORKER_TOOL_CHECKPOINT_FILES_H
#define WORKER_TOOL_CHECKPOINT_FILES_H

#include "proto/saved_folder.h"
#include "worker/tool/address_options.h"

#include <jansson.h>

typedef struct psw_checkpoint_options {
    psw_address_options_t address;
    uint64_t keep; /* 0: not given */
    bool dry_run;
    bool rows;
    uint64_t top, memory_bytes; /* of rows */
} psw_checkpoint_options_t;

/* What is done to a folder, or to a checkpoint in it (name NULL: none was given). More words are in
 * visit, the options in visit->own. */
typedef psc_status_t (*psw_checkpoint_look_fn)(const psw_visit_t *visit, const char *folder,
                                               const char *name, psc_error_t *error);

PSC_MUST_CHECK psc_status_t psw_checkpoint_diff(const psw_visit_t *visit, const char *folder,
                                                const char *name, psc_error_t *error);
PSC_MUST_CHECK psc_status_t psw_checkpoint_prune(const psw_visit_t *visit, const char *folder,
                                                 const char *name, psc_error_t *error);

/* The names in a folder, which must be there: a server makes it, a typing error does not. Errors:
 * as psp_saved_list, NOT_FOUND (also: there is none in it). Gives. */
PSC_MUST_CHECK psc_status_t psw_checkpoint_names(const char *folder, psp_saved_names_t *names_out,
                                                 psc_error_t *error);

/* Where faults of a checkpoint go: into the array as texts, or one line of text each. */
typedef struct psw_checkpoint_faults {
    const char *name;
    json_t *all; /* NULL: they are printed */
} psw_checkpoint_faults_t;

/* A psp_saved_fault_fn; context is a psw_checkpoint_faults_t. */
void psw_checkpoint_take_fault(void *context, const psc_error_t *fault);

/* The faults themselves were shown, one by one: says how many, with the code of the first. */
PSC_MUST_CHECK psc_status_t psw_checkpoint_sum_up(const char *folder, psc_status_t first,
                                                  size_t n_faulty, size_t n, psc_error_t *error);

/* A checkpoint in general: an object (NULL: no memory; gives), or a line below the heading. */
json_t *psw_checkpoint_describe(const psp_saved_manifest_t *manifest);
void psw_checkpoint_print_heading(void);
void psw_checkpoint_print_line(const psp_saved_manifest_t *manifest);

#endif
