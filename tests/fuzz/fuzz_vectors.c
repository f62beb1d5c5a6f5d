/*
 * Fuzzing of the reader of vector files: any bytes are read or refused with a message, and what was
 * read survives being written and read again, as text and as binary. The file lies in memory
 * (memfd).
 */
#include "worker/vectors/vector_set.h"
#include "worker/vectors/word2vec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static psc_status_t load(const void *bytes, size_t size, psw_vectors_t **vectors_out,
                         psc_error_t *error)
{
    int fd = memfd_create("vectors", MFD_CLOEXEC);
    if (fd < 0 || write(fd, bytes, size) != (ssize_t)size)
        abort();
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    psc_status_t st = psw_vectors_load(path, vectors_out, error);
    (void)close(fd);
    return st;
}

/* Words that the writer refuses (text may hold a blank inside a word) end the comparison. */
static void write_and_read(const psw_vectors_t *vectors, bool binary)
{
    char *bytes = NULL;
    size_t size = 0;
    FILE *stream = open_memstream(&bytes, &size);
    psw_vectors_writer_t *writer;
    size_t count = psw_vectors_count(vectors);
    uint32_t dim = (uint32_t)psw_vectors_dim(vectors);
    if (stream == NULL ||
        psw_vectors_writer_open(stream, binary, count, dim, &writer, NULL) != PSC_OK)
        abort();
    bool written = true;
    for (size_t i = 0; written && i < count; i++) {
        size_t word_size;
        const char *word = psw_vectors_word(vectors, i, &word_size);
        written = psw_vectors_writer_row(writer, word, word_size, psw_vectors_row(vectors, i),
                                         NULL) == PSC_OK;
    }
    written = psw_vectors_writer_close(writer, NULL) == PSC_OK && written;
    (void)fclose(stream);
    psw_vectors_t *again;
    psc_error_t error = PSC_ERROR_INIT;
    /* Whether text or binary is told by the first row's bytes; with few floats it may be wrong. */
    if (written && count > 0 && dim >= 8 && load(bytes, size, &again, &error) == PSC_OK) {
        if (psw_vectors_count(again) != count || psw_vectors_dim(again) != dim)
            abort();
        for (size_t i = 0; i < count; i++)
            if (memcmp(psw_vectors_row(again, i), psw_vectors_row(vectors, i),
                       dim * sizeof(float)) != 0)
                abort();
        psw_vectors_destroy(again);
    }
    free(bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    psw_vectors_t *vectors;
    psc_error_t error = PSC_ERROR_INIT;
    if (load(data, size, &vectors, &error) != PSC_OK) {
        if (error.code == PSC_OK || error.message[0] == '\0')
            abort();
        return 0;
    }
    write_and_read(vectors, false);
    write_and_read(vectors, true);
    psw_vectors_normalize(vectors);
    psw_vectors_destroy(vectors);
    return 0;
}
