/* Monotonic time. Cores take time as a parameter; only drivers and programs call this. */
#ifndef COMMON_CLOCK_H
#define COMMON_CLOCK_H

#include <stdint.h>
#include <time.h>

/* Microseconds since some start; never goes back. Any thread. */
uint64_t psc_clock_us(void);

/* The time that is us microseconds from now, for waits by CLOCK_MONOTONIC. Any thread. */
struct timespec psc_clock_after(uint64_t us);

/* Sleeps about us microseconds; a signal may end it early. */
void psc_clock_sleep_us(uint64_t us);

#endif
