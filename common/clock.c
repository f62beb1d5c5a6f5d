/* Monotonic time from the system. */
#include "common/clock.h"

#include <time.h>

uint64_t psc_clock_us(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000u + (uint64_t)now.tv_nsec / 1000u;
}

void psc_clock_sleep_us(uint64_t us)
{
    struct timespec t = {.tv_sec = (time_t)(us / 1000000u),
                         .tv_nsec = (long)(us % 1000000u) * 1000};
    (void)nanosleep(&t, NULL);
}
