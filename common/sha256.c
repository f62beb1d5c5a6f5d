/*
 * SHA-256 as FIPS 180-4 writes it: blocks of 64 bytes, 64 rounds each, the last block padded with
 * one bit, zeros, and the length in bits. The names a to h, k and w are the standard's.
 *
 * Small and plain: it is asked for a few dozen bytes a call. Its time depends on the length alone.
 * What it holds of its input is wiped. Threads: any; no state.
 */
#include "common/sha256.h"

#include <string.h>

#define BLOCK_BYTES 64u
#define LENGTH_BYTES 8u
#define ROUNDS 64u

/* Fractional parts of the cube roots of the first 64 primes (section 4.2.2). */
static const uint32_t k[ROUNDS] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t rotate(uint32_t x, unsigned n)
{
    return x >> n | x << (32 - n);
}

static void put_big_endian(uint8_t *out, uint32_t x)
{
    for (unsigned i = 0; i < 4; i++)
        out[i] = (uint8_t)(x >> (24 - 8 * i));
}

static void add_block(uint32_t hash[8], const uint8_t block[BLOCK_BYTES])
{
    uint32_t w[ROUNDS], v[8]; /* v: a to h */
    for (size_t t = 0; t < 16; t++)
        w[t] = (uint32_t)block[4 * t] << 24 | (uint32_t)block[4 * t + 1] << 16 |
               (uint32_t)block[4 * t + 2] << 8 | block[4 * t + 3];
    for (size_t t = 16; t < ROUNDS; t++)
        w[t] = w[t - 16] + w[t - 7] +
               (rotate(w[t - 15], 7) ^ rotate(w[t - 15], 18) ^ w[t - 15] >> 3) +
               (rotate(w[t - 2], 17) ^ rotate(w[t - 2], 19) ^ w[t - 2] >> 10);
    memcpy(v, hash, sizeof v);
    for (size_t t = 0; t < ROUNDS; t++) {
        const uint32_t a = v[0], e = v[4];
        const uint32_t t1 = v[7] + (rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25)) +
                            ((e & v[5]) ^ (~e & v[6])) + k[t] + w[t];
        const uint32_t t2 = (rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22)) +
                            ((a & v[1]) ^ (a & v[2]) ^ (v[1] & v[2]));
        memmove(v + 1, v, 7 * sizeof v[0]);
        v[0] = t1 + t2;
        v[4] += t1;
    }
    for (size_t i = 0; i < 8; i++)
        hash[i] += v[i];
    explicit_bzero(w, sizeof w);
}

void psc_sha256(const void *bytes, size_t size, uint8_t digest_out[PSC_SHA256_BYTES])
{
    uint32_t hash[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                        0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    const uint8_t *next = bytes;
    uint8_t last[BLOCK_BYTES];
    size_t left = size;
    for (; left >= BLOCK_BYTES; left -= BLOCK_BYTES, next += BLOCK_BYTES)
        add_block(hash, next);
    memset(last, 0, sizeof last);
    if (left != 0)
        memcpy(last, next, left);
    last[left] = 0x80;
    if (left + 1 > BLOCK_BYTES - LENGTH_BYTES) {
        add_block(hash, last);
        memset(last, 0, sizeof last);
    }
    put_big_endian(last + BLOCK_BYTES - 8, (uint32_t)((uint64_t)size >> 29));
    put_big_endian(last + BLOCK_BYTES - 4, (uint32_t)((uint64_t)size << 3));
    add_block(hash, last);
    for (size_t i = 0; i < 8; i++)
        put_big_endian(digest_out + 4 * i, hash[i]);
    explicit_bzero(last, sizeof last);
}
