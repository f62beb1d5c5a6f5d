/*
 * Lists of options as numbers and names.
 *
 * What is wrong with a list is told with the option's name and the word; defaults stand in for a
 * list that was not given. Nothing is allocated.
 */
#include "tests/bench/bench_choices.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

psc_status_t bench_choices_numbers(const char *option, const psc_option_list_t *list, uint64_t max,
                                   const size_t *defaults, size_t n_defaults, size_t *out,
                                   size_t *n_out, psc_error_t *error)
{
    memcpy(out, defaults, n_defaults * sizeof *out);
    *n_out = n_defaults;
    if (list->n == 0)
        return PSC_OK;
    if (list->n > BENCH_MAX_CHOICES)
        return psc_error_set(error, PSC_INVALID_ARGUMENT, "--%s: at most %d numbers", option,
                             BENCH_MAX_CHOICES);
    for (size_t i = 0; i < list->n; i++) {
        char *end;
        errno = 0;
        unsigned long long value = strtoull(list->items[i], &end, 10);
        if (errno != 0 || *end != '\0' || value == 0 || value > max)
            return psc_error_set(error, PSC_INVALID_ARGUMENT,
                                 "--%s: \"%.40s\" is no whole number from 1 to %" PRIu64, option,
                                 list->items[i], max);
        out[i] = (size_t)value;
    }
    *n_out = list->n;
    return PSC_OK;
}

bool bench_choices_wants(const psc_option_list_t *list, const char *name)
{
    for (size_t i = 0; i < list->n; i++)
        if (strcmp(list->items[i], name) == 0)
            return true;
    return list->n == 0;
}
