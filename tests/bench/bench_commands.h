/* The sub-commands of embps-bench. argv[0] is the sub-command's own name; main prints errors. */
#ifndef TESTS_BENCH_BENCH_COMMANDS_H
#define TESTS_BENCH_BENCH_COMMANDS_H

#include "common/status.h"

PSC_MUST_CHECK psc_status_t bench_kernel(int argc, char *const argv[], psc_error_t *error);
PSC_MUST_CHECK psc_status_t bench_store(int argc, char *const argv[], psc_error_t *error);
PSC_MUST_CHECK psc_status_t bench_batch(int argc, char *const argv[], psc_error_t *error);
PSC_MUST_CHECK psc_status_t bench_cache(int argc, char *const argv[], psc_error_t *error);
PSC_MUST_CHECK psc_status_t bench_wire(int argc, char *const argv[], psc_error_t *error);
PSC_MUST_CHECK psc_status_t bench_door(int argc, char *const argv[], psc_error_t *error);
PSC_MUST_CHECK psc_status_t bench_watch(int argc, char *const argv[], psc_error_t *error);
PSC_MUST_CHECK psc_status_t bench_pulls(int argc, char *const argv[], psc_error_t *error);
PSC_MUST_CHECK psc_status_t bench_pages(int argc, char *const argv[], psc_error_t *error);
PSC_MUST_CHECK psc_status_t bench_grow(int argc, char *const argv[], psc_error_t *error);

#endif
