/*
 * The table of formats. float32 is copied; the others are common/halffloat's and common/int8_row's.
 *
 * A new one is an entry of psp_format_t and of WireFormat in embps.proto, and a line below. Cost:
 * that of the kernels. Threads: all is const.
 */
#include "proto/row_format.h"

#include "common/halffloat.h"
#include "common/int8_row.h"

#include <string.h>

static void copy(void *out, const void *in, size_t n)
{
    memcpy(out, in, n * sizeof(float));
}

static void copy_exactly(void *out, const void *in, const void *random, size_t n)
{
    (void)random;
    copy(out, in, n);
}

/* A server looks at float32 rows where they are aligned, with psc_vector_all_finite. */
static bool all_finite(const void *row, size_t n)
{
    const uint32_t infinite = UINT32_C(0x7f800000);
    uint32_t bad = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, (const uint8_t *)row + sizeof bits * i, sizeof bits);
        bad |= (uint32_t)((bits & infinite) == infinite);
    }
    return bad == 0;
}

static const psp_row_format_t formats[PSP_FORMATS] = {
    [PSP_FORMAT_F32] = {"f32", sizeof(float), 0, copy, copy_exactly, copy, all_finite},
    [PSP_FORMAT_BF16] = {"bf16", sizeof(uint16_t), 0, psc_bf16_encode, psc_bf16_encode_stochastic,
                         psc_bf16_decode, psc_bf16_all_finite},
    [PSP_FORMAT_F16] = {"f16", sizeof(uint16_t), 0, psc_f16_encode, psc_f16_encode_stochastic,
                        psc_f16_decode, psc_f16_all_finite},
    [PSP_FORMAT_INT8] = {"int8", sizeof(int8_t), PSC_INT8_SCALE_BYTES, psc_int8_row_encode,
                         psc_int8_row_encode_stochastic, psc_int8_row_decode,
                         psc_int8_row_all_finite},
};

const psp_row_format_t *psp_row_format(psp_format_t format)
{
    return &formats[format];
}

bool psp_row_format_find(const char *name, psp_format_t *format_out)
{
    for (uint32_t i = 0; i < PSP_FORMATS; i++) {
        if (strcmp(formats[i].name, name) == 0) {
            *format_out = (psp_format_t)i;
            return true;
        }
    }
    return false;
}
