/*
 * One block of `limit` bytes, handed out from its start and taken back all at once.
 *
 * The block is allocated whole at the start: pages that no message ever needed are never touched,
 * so a generous limit costs address space alone. Nothing is freed singly, so a message that makes
 * protobuf-c allocate and free again and again (merged submessages) runs into the limit as well.
 * One thread at a time.
 */
#include "proto/unpack_memory.h"

#include "common/alloc.h"

struct psp_scratch {
    ProtobufCAllocator allocator;
    uint8_t *block;
    size_t limit;
    size_t used;
    bool exhausted;
};

static void *allocator_alloc(void *context, size_t size)
{
    return psp_scratch_alloc(context, size);
}

static void allocator_free(void *context, void *pointer)
{
    (void)context;
    (void)pointer;
}

psc_status_t psp_scratch_create(size_t limit, psp_scratch_t **scratch_out, psc_error_t *error)
{
    psp_scratch_t *scratch = psc_alloc_zeroed(1, sizeof *scratch);
    uint8_t *block = psc_alloc_aligned(limit);
    if (scratch == NULL || block == NULL) {
        psc_free(scratch);
        psc_free(block);
        return psc_error_set(error, PSC_NO_MEMORY, "out of memory for %zu bytes of scratch", limit);
    }
    scratch->allocator = (ProtobufCAllocator){
        .alloc = allocator_alloc, .free = allocator_free, .allocator_data = scratch};
    scratch->block = block;
    scratch->limit = limit;
    *scratch_out = scratch;
    return PSC_OK;
}

void psp_scratch_destroy(psp_scratch_t *scratch)
{
    if (scratch == NULL)
        return;
    psc_free(scratch->block);
    psc_free(scratch);
}

void psp_scratch_reset(psp_scratch_t *scratch)
{
    scratch->used = 0;
    scratch->exhausted = false;
}

void *psp_scratch_alloc(psp_scratch_t *scratch, size_t size)
{
    size_t start = scratch->used + (16 - scratch->used % 16) % 16;
    if (start > scratch->limit || size > scratch->limit - start) {
        scratch->exhausted = true;
        return NULL;
    }
    scratch->used = start + size;
    return scratch->block + start;
}

bool psp_scratch_exhausted(const psp_scratch_t *scratch)
{
    return scratch->exhausted;
}

size_t psp_scratch_limit(const psp_scratch_t *scratch)
{
    return scratch->limit;
}

ProtobufCAllocator *psp_scratch_allocator(psp_scratch_t *scratch)
{
    return &scratch->allocator;
}
