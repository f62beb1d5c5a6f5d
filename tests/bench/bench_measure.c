/*
 * Alternating measurements.
 *
 * The clock is read once a batch, which is some 25 ns in at least several microseconds. The spread
 * is that of the ratios of the rounds, (highest - lowest) / median: when it is larger than the
 * difference that one looks for, the machine was not quiet enough.
 */
#include "tests/bench/bench_measure.h"

#include "common/clock.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SETTLE_STEP_US 20000
#define SETTLE_STEPS 1500
#define QUIET_SHARE 0.05 /* of a step */

static double process_seconds(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static psc_status_t run(bench_side_t *side, size_t n, double seconds, double *rate_out,
                        psc_error_t *error)
{
    double cpu_start = process_seconds();
    uint64_t start = psc_clock_us(), now = start;
    uint64_t end = start + (uint64_t)(seconds * 1e6);
    size_t done = 0;
    while (n != 0 ? done < n : done == 0 || now < end) {
        psc_status_t st = side->batch(side->context, side->next, error);
        if (st != PSC_OK)
            return st;
        side->next = side->next + 1 < side->n_batches ? side->next + 1 : 0;
        done++;
        side->n_done++;
        now = psc_clock_us();
    }
    if (side->finish != NULL) {
        psc_status_t st = side->finish(side->context, error);
        if (st != PSC_OK)
            return st;
        now = psc_clock_us();
    }
    double took = (double)(now - start) * 1e-6;
    if (side->cpu_time)
        took = process_seconds() - cpu_start;
    *rate_out = (double)(done * side->rows) / fmax(took, 1e-6);
    return PSC_OK;
}

psc_status_t bench_run_for(bench_side_t *side, double seconds, double *rate_out, psc_error_t *error)
{
    return run(side, 0, seconds, rate_out, error);
}

psc_status_t bench_run_batches(bench_side_t *side, size_t n, double *rate_out, psc_error_t *error)
{
    *rate_out = 0;
    return n == 0 ? PSC_OK : run(side, n, 0, rate_out, error);
}

void bench_settle(void)
{
    unsigned quiet = 0;
    for (unsigned step = 0; step < SETTLE_STEPS && quiet < 3; step++) {
        double before = process_seconds();
        psc_clock_sleep_us(SETTLE_STEP_US);
        bool idle = process_seconds() - before < QUIET_SHARE * SETTLE_STEP_US * 1e-6;
        quiet = idle ? quiet + 1 : 0;
    }
}

static int compare(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

double bench_median(const double *values, size_t n)
{
    double sorted[BENCH_MAX_REPEATS];
    if (n == 0)
        return NAN;
    memcpy(sorted, values, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, compare);
    return n % 2 == 1 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
}

void bench_result_rates(bench_result_t *result, const bench_rounds_t *rounds)
{
    double ratios[BENCH_MAX_REPEATS] = {0}, lowest = INFINITY, highest = 0;
    for (size_t r = 0; r < rounds->n; r++) {
        ratios[r] = rounds->ours[r] / rounds->other[r];
        lowest = fmin(lowest, ratios[r]);
        highest = fmax(highest, ratios[r]);
    }
    result->rows_per_s = bench_median(rounds->ours, rounds->n);
    result->against_rows_per_s = bench_median(rounds->other, rounds->n);
    result->ratio = bench_median(ratios, rounds->n);
    result->spread = (highest - lowest) / result->ratio;
}

void bench_result_print_heading(void)
{
    (void)printf("%-20s %5s %6s %-8s %9s  %-8s %9s %6s %7s %7s %7s\n", "bench", "dim", "batch",
                 "ids", "Mrows/s", "against", "Mrows/s", "ratio", "wanted", "spread", "hits");
    (void)fflush(stdout);
}

void bench_result_print_wire_heading(void)
{
    (void)printf("%-20s %5s %6s %-8s %4s %9s  %-13s %9s %6s %7s %7s\n", "bench", "dim", "batch",
                 "ids", "fly", "Mrows/s", "against", "Mrows/s", "ratio", "wanted", "spread");
    (void)fflush(stdout);
}

static void print_number(const char *name, double value, unsigned digits)
{
    if (isfinite(value))
        (void)printf(", \"%s\": %.*f", name, (int)digits, value);
}

static void print_json(const bench_result_t *result)
{
    (void)printf("{\"bench\": \"%s\", \"dim\": %zu, \"batch\": %zu, \"dist\": \"%s\"",
                 result->bench, result->dim, result->batch, result->dist);
    if (result->in_flight != 0)
        (void)printf(", \"in_flight\": %zu", result->in_flight);
    print_number("rows_per_s", result->rows_per_s, 0);
    (void)printf(", \"against\": \"%s\"", result->against);
    print_number("ratio", result->ratio, 4);
    print_number("against_rows_per_s", result->against_rows_per_s, 0);
    print_number("spread", result->spread, 4);
    print_number("wanted", result->wanted, 2);
    print_number("hit_rate", result->hit_rate, 4);
    print_number("belady_hit_rate", result->belady_hit_rate, 4);
    if (strcmp(result->against, "bound") == 0)
        print_number("bound", result->against_rows_per_s, 0);
    print_number("bound_full", result->bound_full, 0);
    (void)printf("}\n");
}

static void print_row(const bench_result_t *result)
{
    (void)printf("%-20s %5zu %6zu %-8s ", result->bench, result->dim, result->batch, result->dist);
    if (result->in_flight != 0)
        (void)printf("%4zu ", result->in_flight);
    (void)printf("%9.3f  %-*s", result->rows_per_s * 1e-6, result->in_flight != 0 ? 13 : 8,
                 result->against);
    if (isfinite(result->ratio))
        (void)printf(" %9.3f %6.2f", result->against_rows_per_s * 1e-6, result->ratio);
    if (isfinite(result->wanted))
        (void)printf(" %4.2f %-2s", result->wanted, result->ratio < result->wanted ? "<<" : "");
    if (isfinite(result->ratio))
        (void)printf(" %s%5.0f%%", isfinite(result->wanted) ? "" : "       ", 100 * result->spread);
    if (isfinite(result->hit_rate))
        (void)printf("  %5.1f%%", 100 * result->hit_rate);
    if (isfinite(result->belady_hit_rate))
        (void)printf(" of %.1f%% at best; bound_full %.3f", 100 * result->belady_hit_rate,
                     result->bound_full * 1e-6);
    (void)printf("\n");
}

void bench_result_print(const bench_result_t *result, bool json)
{
    if (json)
        print_json(result);
    else
        print_row(result);
    (void)fflush(stdout);
}
