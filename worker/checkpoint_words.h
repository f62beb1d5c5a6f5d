/*
 * The vocabulary that a checkpoint has as a part of its own. Internal to worker/.
 */
#ifndef WORKER_CHECKPOINT_WORDS_H
#define WORKER_CHECKPOINT_WORDS_H

#include <stddef.h>
#include <stdint.h>

/* The words that a client's ids stand for, as "word count\n", line i for id i, with their XXH3. A
 * checkpoint has them as a part of its own, and shares it with the one before. Borrows. */
typedef struct psw_words {
    const uint8_t *bytes; /* [n] */
    size_t n;             /* 0: none */
    uint64_t checksum;
} psw_words_t;

#endif
