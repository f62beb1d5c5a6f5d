/*
 * What a program prints to stdout: that it was written, which printf does not tell.
 *
 *     int main(...) { ... return psc_output_end(status); }
 */
#ifndef COMMON_OUTPUT_H
#define COMMON_OUTPUT_H

#include "common/status.h"

/* Writes what was printed so far. Errors: those of writing (DISK_FULL, IO); of any earlier print,
 * too. */
PSC_MUST_CHECK psc_status_t psc_output_flush(psc_error_t *error);

/* The exit status of a program that ends with `status`: the same, but if it is 0 and what was
 * printed cannot be written, that error's code, and it is logged. */
PSC_MUST_CHECK int psc_output_end(int status);

#endif
