/*
 * Fuzzing of the text reader: any bytes, cut anywhere into two shares, give each word once.
 *
 * The first two bytes choose the cut. The file lies in memory (memfd), so that nothing touches a
 * disk.
 */
#include "worker/train/corpus.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Bytes and number of all words in [begin, end). */
static void count(const psw_corpus_t *corpus, uint64_t begin, uint64_t end, uint64_t *words,
                  uint64_t *bytes)
{
    psw_reader_t *reader;
    psw_token_t token;
    if (psw_reader_create(corpus, begin, end, &reader, NULL) != PSC_OK)
        abort();
    for (;;) {
        if (psw_reader_next(reader, &token, NULL) != PSC_OK)
            abort();
        if (token.kind == PSW_TOKEN_END)
            break;
        if (token.kind != PSW_TOKEN_WORD)
            continue;
        if (token.size == 0 || token.size > PSW_WORD_MAX_BYTES)
            abort();
        for (size_t i = 0; i < token.size; i++) {
            if (psw_is_separator((unsigned char)token.bytes[i]))
                abort();
        }
        (*words)++;
        *bytes += token.size;
    }
    *words += psw_reader_long_words(reader);
    psw_reader_destroy(reader);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 3)
        return 0;
    uint64_t cut = ((uint64_t)data[0] << 8 | data[1]) % (size - 1);
    int fd = memfd_create("corpus", MFD_CLOEXEC);
    if (fd < 0 || write(fd, data + 2, size - 2) != (ssize_t)(size - 2))
        abort();
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    const char *paths[1] = {path};
    psw_corpus_t *corpus;
    if (psw_corpus_open(paths, 1, &corpus, NULL) != PSC_OK)
        abort();
    uint64_t words = 0, bytes = 0, cut_words = 0, cut_bytes = 0;
    count(corpus, 0, size - 2, &words, &bytes);
    count(corpus, 0, cut, &cut_words, &cut_bytes);
    count(corpus, cut, size - 2, &cut_words, &cut_bytes);
    if (words != cut_words || bytes != cut_bytes)
        abort();
    psw_corpus_close(corpus);
    close(fd);
    return 0;
}
