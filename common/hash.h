/*
 * 64-bit mixing, and the hash of a row. Fixed for ever: it decides where a row lives on disk.
 */
#ifndef COMMON_HASH_H
#define COMMON_HASH_H

#include <stdint.h>

/* Bijective finaliser of SplitMix64 (Steele, Lea, Flood 2014, "Fast splittable pseudorandom
 * number generators"). */
static inline uint64_t psc_mix64(uint64_t x)
{
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

/*
 * Hash of a row. The low 14 bits choose the slot (common/slots.h); inside a server the bits above
 * are used, since all rows of a server share few slots.
 */
static inline uint64_t psc_row_hash(uint32_t table, uint64_t id)
{
    uint64_t table_key = ((uint64_t)table + 1) * UINT64_C(0x9e3779b97f4a7c15);
    return psc_mix64(psc_mix64(id + UINT64_C(0x9e3779b97f4a7c15)) ^ table_key);
}

/* The x of psc_mix64(x) = y: products by the inverse constants modulo 2^64, shifts undone. */
static inline uint64_t psc_unmix64(uint64_t y)
{
    y = (y ^ (y >> 31) ^ (y >> 62)) * UINT64_C(0x319642b2d24d8ec3);
    y = (y ^ (y >> 27) ^ (y >> 54)) * UINT64_C(0x96de1b173f119089);
    return y ^ (y >> 30) ^ (y >> 60);
}

/* The one id that has this psc_row_hash in the table: so a row can be placed in a slot. */
static inline uint64_t psc_row_id_of_hash(uint32_t table, uint64_t hash)
{
    uint64_t table_key = ((uint64_t)table + 1) * UINT64_C(0x9e3779b97f4a7c15);
    return psc_unmix64(psc_unmix64(hash) ^ table_key) - UINT64_C(0x9e3779b97f4a7c15);
}

#endif
