/* From tables to files of vectors. */
#ifndef WORKER_TRAIN_EXPORT_H
#define WORKER_TRAIN_EXPORT_H

#include "embps.h"
#include "worker/train/stop.h"
#include "worker/train/vocab.h"

/*
 * Pulls the row of every word and writes them in the order of ids as word2vec text or binary, whole
 * or not at all. stop ends it early. Errors: those of embps_pull, psc_outfile_open and
 * psc_outfile_commit; INTERRUPTED; NO_MEMORY.
 */
PSC_MUST_CHECK psc_status_t psw_export(embps_table_t *table, const psw_vocab_t *vocab, bool binary,
                                       const char *path, psw_stop_t *stop, psc_error_t *error);

#endif
