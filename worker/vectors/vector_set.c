/*
 * Words, matrix and hash index of a set of vectors.
 *
 * Three arrays grow by half: the matrix (stride floats a row), the words' bytes one after the other
 * with a NUL between, and the offset of each word. The index is open addressing with linear
 * probing, at most half full, and holds row + 1 (0: empty). Rows are limited to 2^32 - 2 by that,
 * far above any vocabulary.
 *
 * Threads: none here; a set that no longer changes may be read by many.
 */
#include "worker/vectors/vector_set.h"

#include "common/alloc.h"
#include "common/hash.h"
#include "common/lanes.h"
#include "common/vectors.h"
#include "worker/vectors/vector_set_inside.h"

#include <math.h>
#include <string.h>

struct psw_vectors {
    size_t dim;
    size_t stride;
    size_t count;
    size_t room; /* rows that matrix and starts can hold */
    float *matrix;
    size_t *starts; /* of each word in bytes */
    char *bytes;
    size_t n_bytes;
    size_t room_bytes;
    uint32_t *index;
    size_t index_size; /* power of two, or 0 */
    uint64_t repeated;
    const char *format;
};

static uint64_t hash_word(const char *word, size_t size)
{
    uint64_t hash = size;
    for (; size >= 8; word += 8, size -= 8) {
        uint64_t part;
        memcpy(&part, word, 8);
        hash = psc_mix64(hash ^ part);
    }
    uint64_t part = 0;
    memcpy(&part, word, size);
    return psc_mix64(hash ^ part);
}

psc_status_t psw_vectors_create(size_t dim, psw_vectors_t **vectors_out, psc_error_t *error)
{
    PSC_BUG_ON(dim == 0);
    psw_vectors_t *vectors = psc_alloc_zeroed(1, sizeof *vectors);
    if (vectors == NULL || dim > SIZE_MAX / 64) {
        psc_free(vectors);
        return psc_error_set(error, PSC_NO_MEMORY, "no memory for vectors");
    }
    vectors->dim = dim;
    vectors->stride = (dim + PSC_LANES - 1) / PSC_LANES * PSC_LANES;
    vectors->format = "";
    *vectors_out = vectors;
    return PSC_OK;
}

void psw_vectors_destroy(psw_vectors_t *vectors)
{
    if (vectors == NULL)
        return;
    psc_free(vectors->matrix);
    psc_free(vectors->starts);
    psc_free(vectors->bytes);
    psc_free(vectors->index);
    psc_free(vectors);
}

/* The place of a word in the index: of its row, or the empty one where it belongs. */
static size_t probe(const psw_vectors_t *vectors, const char *word, size_t size)
{
    size_t at = (size_t)hash_word(word, size) & (vectors->index_size - 1);
    for (; vectors->index[at] != 0; at = (at + 1) & (vectors->index_size - 1)) {
        size_t known_size;
        const char *known = psw_vectors_word(vectors, vectors->index[at] - 1, &known_size);
        if (known_size == size && memcmp(known, word, size) == 0)
            break;
    }
    return at;
}

static bool grow_index(psw_vectors_t *vectors)
{
    if (vectors->count >= UINT32_MAX - 1)
        return false;
    size_t size = vectors->index_size != 0 ? vectors->index_size * 2 : 1024;
    uint32_t *index = psc_alloc_zeroed(size, sizeof *index);
    if (index == NULL)
        return false;
    psc_free(vectors->index);
    vectors->index = index;
    vectors->index_size = size;
    for (size_t i = 0; i < vectors->count; i++) {
        size_t word_size;
        const char *word = psw_vectors_word(vectors, i, &word_size);
        index[probe(vectors, word, word_size)] = (uint32_t)(i + 1);
    }
    return true;
}

/* Room for one more row and word; on false nothing is lost. */
static bool make_room(psw_vectors_t *vectors, size_t word_size)
{
    if (vectors->count * 2 >= vectors->index_size && !grow_index(vectors))
        return false;
    if (vectors->count == vectors->room) {
        size_t room = vectors->room + vectors->room / 2 + 16;
        float *matrix = psc_realloc_array(vectors->matrix, room, vectors->stride * sizeof *matrix);
        if (matrix == NULL)
            return false;
        vectors->matrix = matrix;
        size_t *starts = psc_realloc_array(vectors->starts, room + 1, sizeof *starts);
        if (starts == NULL)
            return false;
        vectors->starts = starts;
        vectors->room = room;
    }
    size_t need = vectors->n_bytes + word_size + 1;
    if (need > vectors->room_bytes) {
        size_t room = need + need / 2 + 256;
        char *bytes = psc_realloc_array(vectors->bytes, room, 1);
        if (bytes == NULL)
            return false;
        vectors->bytes = bytes;
        vectors->room_bytes = room;
    }
    return true;
}

psc_status_t psw_vectors_add(psw_vectors_t *vectors, const char *word, size_t word_size,
                             const float *row, bool *added_out, psc_error_t *error)
{
    if (!make_room(vectors, word_size))
        return psc_error_set(error, PSC_NO_MEMORY, "no memory for more than %zu vectors",
                             vectors->count);
    size_t at = probe(vectors, word, word_size);
    if (vectors->index[at] != 0) {
        vectors->repeated++;
        *added_out = false;
        return PSC_OK;
    }
    float *to = vectors->matrix + vectors->count * vectors->stride;
    memcpy(to, row, vectors->dim * sizeof *to);
    memset(to + vectors->dim, 0, (vectors->stride - vectors->dim) * sizeof *to);
    vectors->starts[vectors->count] = vectors->n_bytes;
    memcpy(vectors->bytes + vectors->n_bytes, word, word_size);
    vectors->n_bytes += word_size;
    vectors->bytes[vectors->n_bytes++] = '\0';
    vectors->count++;
    vectors->starts[vectors->count] = vectors->n_bytes;
    vectors->index[at] = (uint32_t)vectors->count;
    *added_out = true;
    return PSC_OK;
}

size_t psw_vectors_count(const psw_vectors_t *vectors)
{
    return vectors->count;
}

size_t psw_vectors_dim(const psw_vectors_t *vectors)
{
    return vectors->dim;
}

size_t psw_vectors_stride(const psw_vectors_t *vectors)
{
    return vectors->stride;
}

const float *psw_vectors_row(const psw_vectors_t *vectors, size_t i)
{
    return vectors->matrix + i * vectors->stride;
}

const char *psw_vectors_word(const psw_vectors_t *vectors, size_t i, size_t *size_out)
{
    *size_out = vectors->starts[i + 1] - vectors->starts[i] - 1;
    return vectors->bytes + vectors->starts[i];
}

bool psw_vectors_find(const psw_vectors_t *vectors, const char *word, size_t word_size,
                      size_t *row_out)
{
    if (vectors->count == 0)
        return false;
    size_t at = probe(vectors, word, word_size);
    if (vectors->index[at] == 0)
        return false;
    *row_out = vectors->index[at] - 1;
    return true;
}

const char *psw_vectors_format(const psw_vectors_t *vectors)
{
    return vectors->format;
}

void psw_vectors_set_format(psw_vectors_t *vectors, const char *format)
{
    vectors->format = format;
}

uint64_t psw_vectors_repeated(const psw_vectors_t *vectors)
{
    return vectors->repeated;
}

void psw_vector_normalize(float *row, size_t dim, size_t stride)
{
    /* Large and tiny values would overflow or vanish when squared: bring them near 1 first. */
    float largest = 0.0f;
    for (size_t c = 0; c < dim; c++)
        largest = fmaxf(largest, fabsf(row[c]));
    if (largest == 0.0f)
        return;
    if (largest > 1e15f || largest < 1e-15f)
        for (size_t c = 0; c < dim; c++)
            row[c] /= largest;
    float length = sqrtf(psc_vector_squared_norm(row, stride));
    psc_vector_scale(row, 1.0f / length, stride);
}

void psw_vectors_normalize(psw_vectors_t *vectors)
{
    for (size_t i = 0; i < vectors->count; i++)
        psw_vector_normalize(vectors->matrix + i * vectors->stride, vectors->dim, vectors->stride);
}
