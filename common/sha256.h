/*
 * SHA-256, for what is told apart by a digest: tokens, of which a file may hold the digest alone.
 */
#ifndef COMMON_SHA256_H
#define COMMON_SHA256_H

#include <stddef.h>
#include <stdint.h>

#define PSC_SHA256_BYTES 32u

/* The digest of size bytes. Any thread. Source: FIPS 180-4, sections 5 and 6.2. */
void psc_sha256(const void *bytes, size_t size, uint8_t digest_out[PSC_SHA256_BYTES]);

#endif
