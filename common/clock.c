/* Monotonic time from the system. */
#include "common/clock.h"

#define NS_PER_S 1000000000L

uint64_t psc_clock_us(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000u + (uint64_t)now.tv_nsec / 1000u;
}

struct timespec psc_clock_after(uint64_t us)
{
    struct timespec time;
    (void)clock_gettime(CLOCK_MONOTONIC, &time);
    time.tv_sec += (time_t)(us / 1000000u);
    time.tv_nsec += (long)(us % 1000000u) * 1000;
    if (time.tv_nsec >= NS_PER_S) {
        time.tv_sec++;
        time.tv_nsec -= NS_PER_S;
    }
    return time;
}

void psc_clock_sleep_us(uint64_t us)
{
    struct timespec t = {.tv_sec = (time_t)(us / 1000000u),
                         .tv_nsec = (long)(us % 1000000u) * 1000};
    (void)nanosleep(&t, NULL);
}
