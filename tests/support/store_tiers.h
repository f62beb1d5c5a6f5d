/* For tests of the store: a cold tier in front of another one that the test can watch and hold. */
#ifndef TESTS_SUPPORT_STORE_TIERS_H
#define TESTS_SUPPORT_STORE_TIERS_H

#include "ps/store/cold.h"

/*
 * Passes calls on to a tier that outlives it: a store that closes it leaves the inner one for the
 * next store. It can hold calls back.
 */
typedef struct test_tier test_tier_t;
test_tier_t *test_tier_create(ps_cold_t *inner, bool was_empty);
ps_cold_t *test_tier_cold(test_tier_t *tier);
/* From now on calls wait, or go on. */
void test_tier_hold(test_tier_t *tier, bool hold);
/* From now on writes are refused with BUSY, or done. */
void test_tier_stall(test_tier_t *tier, bool stall);
/* Text of the calls so far, one letter each: r, w, s, h (heads are scanned); none
   for a write that was refused. */
const char *test_tier_calls(const test_tier_t *tier);
/* After the store that used it was closed. */
void test_tier_destroy(test_tier_t *tier);

#endif
