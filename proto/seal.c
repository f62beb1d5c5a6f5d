/*
 * Seals: written once a message is final, looked at before a byte of it is used.
 *
 * At the beginning and not at the end, so that one look at a fixed place tells whether there is
 * one: what is damaged cannot be walked through. A message of somebody who knows no seals begins
 * with its header (0a, or another field of a schema), so that it has at most one or two of the
 * eight bytes by accident; four of them are a seal, and then all eight must be right. What is
 * behind them is covered by the sum.
 *
 * Cost: one pass over the bytes, where they lie. XXH3 has about the speed of a copy.
 */
#include "proto/seal.h"

#include "proto/message.h"

#include <string.h>
#include <xxhash.h>

#define MARK_BYTES ((size_t)8)
#define MARK_LEAST 4u /* bytes of a mark that are right, so that it is one */
#define KIND_FACTOR UINT64_C(0x9e3779b97f4a7c15)

static const uint8_t mark[MARK_BYTES] = {0xfa, 0x7f, PSP_SEAL_BYTES - 3, 0x9e, 0xc5, 0x3b,
                                         0xd1, 0x76};

/* Of all that is behind the sum. */
static uint64_t sum_of(uint32_t kind, const uint8_t *data, size_t size)
{
    const size_t before = MARK_BYTES + sizeof(uint64_t);
    const uint64_t sum = XXH3_64bits(data + before, size - before) ^ kind * KIND_FACTOR;
    return sum != 0 ? sum : 1;
}

static uint64_t told_sum(const uint8_t *data)
{
    uint64_t sum;
    memcpy(&sum, data + MARK_BYTES, sizeof sum);
    return sum;
}

void psp_seal_leave_room(uint8_t *out)
{
    memcpy(out, mark, MARK_BYTES);
    memset(out + MARK_BYTES, 0, PSP_SEAL_BYTES - MARK_BYTES);
}

bool psp_seal_has_room(const psp_buffer_t *buffer)
{
    return buffer->size >= PSP_SEAL_BYTES && memcmp(buffer->data, mark, MARK_BYTES) == 0;
}

void psp_seal_put(psp_buffer_t *buffer, uint32_t number, uint32_t expected)
{
    if (!psp_seal_has_room(buffer))
        return;
    uint8_t *numbers = buffer->data + MARK_BYTES + sizeof(uint64_t);
    memcpy(numbers, &number, sizeof number);
    memcpy(numbers + sizeof number, &expected, sizeof expected);
    const uint64_t sum = sum_of(buffer->kind, buffer->data, buffer->size);
    memcpy(buffer->data + MARK_BYTES, &sum, sizeof sum);
}

psp_seal_t psp_seal_look(uint32_t kind, const uint8_t *data, size_t size)
{
    const size_t n = size < MARK_BYTES ? size : MARK_BYTES;
    size_t n_right = 0;
    for (size_t i = 0; i < n; i++)
        n_right += data[i] == mark[i];
    if (n_right < MARK_LEAST)
        return PSP_SEAL_NONE;
    if (n_right != MARK_BYTES || size < PSP_SEAL_BYTES)
        return PSP_SEAL_BROKEN;
    const uint64_t sum = told_sum(data);
    if (sum == 0)
        return PSP_SEAL_NONE;
    return sum == sum_of(kind, data, size) ? PSP_SEAL_GOOD : PSP_SEAL_BROKEN;
}

bool psp_seal_take_request(psp_buffer_t *request, bool wanted)
{
    const psp_seal_t seal = psp_seal_look(request->kind, request->data, request->size);
    request->sealed = seal == PSP_SEAL_GOOD && (wanted || request->kind != PSP_HELLO);
    return seal != PSP_SEAL_BROKEN;
}

bool psp_seal_take_reply(uint32_t request_kind, psp_seal_t seal, bool *seals)
{
    if (request_kind == PSP_HELLO && seal != PSP_SEAL_BROKEN)
        *seals = seal == PSP_SEAL_GOOD;
    return seal == PSP_SEAL_GOOD || (seal == PSP_SEAL_NONE && !*seals);
}

static uint32_t number_at(const psp_buffer_t *buffer, size_t at)
{
    uint32_t number;
    memcpy(&number, buffer->data + MARK_BYTES + sizeof(uint64_t) + at, sizeof number);
    return number;
}

uint32_t psp_seal_number(const psp_buffer_t *buffer)
{
    return number_at(buffer, 0);
}

uint32_t psp_seal_expected(const psp_buffer_t *buffer)
{
    return number_at(buffer, sizeof(uint32_t));
}
