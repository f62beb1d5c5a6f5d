/* Lists of numbers and names that the benchmarks' options take. */
#ifndef TESTS_BENCH_BENCH_CHOICES_H
#define TESTS_BENCH_BENCH_CHOICES_H

#include "common/options.h"

#define BENCH_MAX_CHOICES 16

/*
 * The whole numbers of an option's list, 1 to max each, into out [BENCH_MAX_CHOICES]; an empty list
 * gives the defaults. Errors: INVALID_ARGUMENT, naming the option.
 */
PSC_MUST_CHECK psc_status_t bench_choices_numbers(const char *option, const psc_option_list_t *list,
                                                  uint64_t max, const size_t *defaults,
                                                  size_t n_defaults, size_t *out, size_t *n_out,
                                                  psc_error_t *error);

/* Whether name is in the list, or the list is empty. */
bool bench_choices_wants(const psc_option_list_t *list, const char *name);

#endif
