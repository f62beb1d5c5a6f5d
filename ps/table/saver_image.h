/*
 * What a shard is at one moment, but for its rows: tables, sessions, clocks, sightings, counters,
 * as bytes (proto/checkpoint.proto: Part).
 *
 * Threads: the owner's.
 */
#ifndef PS_TABLE_SAVER_IMAGE_H
#define PS_TABLE_SAVER_IMAGE_H

#include "ps/table/saver.h"

/* About what an image takes: sightings and ages, which may be much. */
uint64_t ps_saver_image_bytes(const struct ps_shard *shard);

/* Errors: NO_MEMORY; INVALID_ARGUMENT (a table that cannot be described). Gives: psc_free of both
 * parts. */
PSC_MUST_CHECK psc_status_t ps_saver_image_make(struct ps_shard *shard, ps_save_image_t *image_out,
                                                psc_error_t *error);

#endif
