/*
 * How a training goes on, for people and for programs; worker 0 alone has one.
 *
 * On a terminal one line that is written over; otherwise a line every few seconds. With a JSON file
 * a line a second: {"event":"progress","time_s":..,"done":..,"words":..,"words_per_s":..,"rate":..,
 * "loss":..,"rows":..,"bytes_in":..,"bytes_out":..,"left_s":..}, and one with "event":"done" last,
 * or with "event":"stopped" and the last figures where a signal or an error ended the training. The
 * one with "done" also has "pushes", "pushes_applied", "rows_pushed" and "rows_applied".
 */
#ifndef WORKER_TRAIN_PROGRESS_H
#define WORKER_TRAIN_PROGRESS_H

#include "worker/train/trainer.h"

#include <stdio.h>

typedef struct psw_progress psw_progress_t;

typedef struct psw_progress_options {
    uint64_t words;        /* to be done by all workers in all epochs */
    const char *json_path; /* NULL: none */
    FILE *stream;          /* NULL: quiet. Borrowed */
    bool terminal;         /* stream is a terminal */
    uint64_t now_us;       /* psc_clock_us() at the start */
} psw_progress_options_t;

/* Errors: those of opening the JSON file; NO_MEMORY. Gives. */
PSC_MUST_CHECK psc_status_t psw_progress_create(const psw_progress_options_t *options,
                                                psw_progress_t **progress_out, psc_error_t *error);

/* Shows counts if it is time. */
void psw_progress_update(psw_progress_t *progress, const psw_train_counts_t *counts,
                         uint64_t now_us);

/* The last line. Errors: IO, DISK_FULL when the JSON file could not be written whole. */
PSC_MUST_CHECK psc_status_t psw_progress_finish(psw_progress_t *progress,
                                                const psw_train_counts_t *counts, uint64_t now_us,
                                                psc_error_t *error);

/* Ends a line that is being written over, so that a message can follow, and the JSON file of a run
 * that was not finished. NULL is a no-op. */
void psw_progress_destroy(psw_progress_t *progress);

/* A psw_report_fn over a psw_progress_t; takes the time itself. */
void psw_progress_report(void *progress, const psw_train_counts_t *counts);

#define PSW_FORMAT_SIZE 32

/* "12.3K", "4.56M": three digits and a unit of thousands. */
void psw_format_number(double value, char text[PSW_FORMAT_SIZE]);

/* "0:07", "1:02:03": minutes and seconds, hours where needed. */
void psw_format_duration(double seconds, char text[PSW_FORMAT_SIZE]);

#endif
