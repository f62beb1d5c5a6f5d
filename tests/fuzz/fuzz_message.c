/*
 * Fuzzing of the wire decoder: any bytes of any kind are refused as PROTOCOL or become a message in
 * which every length holds, and which packs to bytes that unpack to the same again. Rows decode in
 * their format, to finite values exactly where the format says so.
 *
 * Seals: any bytes have a good one, a broken one or none; a message that is sealed has a good one,
 * which it has no more when one bit of it is another (chosen by its own last bytes), and unpacks to
 * the same.
 *
 * The first byte chooses the kind. The seeds in corpus/message are real packed messages.
 */
#include "proto/message.h"
#include "proto/seal.h"

#include <math.h>
#include <stdlib.h>

#define SCRATCH_BYTES ((size_t)256 << 10)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition)
{
    if (!condition)
        abort();
}

/* Reads every byte, so that a sanitizer sees lengths that do not hold. */
static void touch(const uint8_t *bytes, size_t size)
{
    static volatile uint8_t sink;
    for (size_t i = 0; bytes != NULL && i < size; i++)
        sink = (uint8_t)(sink ^ bytes[i]);
}

static void decode_all(psp_format_t format, const uint8_t *rows, size_t n, size_t dim)
{
    static float values[PSP_DIM_MAX];
    const psp_row_format_t *coder = psp_row_format(format);
    require(dim <= PSP_DIM_MAX);
    for (size_t i = 0; i < n; i++) {
        const uint8_t *row = rows + i * psp_row_bytes(format, dim);
        bool finite = true;
        coder->decode(values, row, dim);
        for (size_t c = 0; c < dim; c++)
            finite = finite && isfinite(values[c]);
        require(coder->all_finite(row, dim) == finite);
    }
}

static void touch_block(const uint8_t *ids, const uint8_t *counts, const uint8_t *state, size_t n,
                        size_t state_floats)
{
    touch(ids, n * 8);
    touch(counts, counts != NULL ? n * 8 : 0);
    touch(state, n * state_floats * 4);
}

static void touch_all(const psp_message_t *m)
{
    touch((const uint8_t *)m->reply.error.message, strlen(m->reply.error.message));
    if (m->reply.error.code != PSC_OK)
        return;
    if (m->kind == PSP_HELLO_REPLY) {
        touch(m->u.hello_reply.slot_owners, (size_t)16384 * 2);
        for (size_t i = 0; i < m->u.hello_reply.n_addresses; i++)
            touch((const uint8_t *)m->u.hello_reply.addresses[i],
                  strlen(m->u.hello_reply.addresses[i]) + 1);
        touch((const uint8_t *)m->u.hello_reply.counted, m->u.hello_reply.n_counted * 8);
    } else if (m->kind == PSP_HELLO) {
        touch((const uint8_t *)m->u.hello.former, m->u.hello.n_former * 8);
    } else if (m->kind == PSP_PULL) {
        touch(m->u.pull.ids, m->u.pull.n * 8);
        if (m->u.pull.versions != NULL)
            touch(m->u.pull.versions, m->u.pull.n * 4);
    } else if (m->kind == PSP_TOUCHES) {
        touch(m->u.touches.ids, m->u.touches.n * 8);
    } else if (m->kind == PSP_PREFETCH) {
        touch(m->u.prefetch.ids, m->u.prefetch.n * 8);
    } else if (m->kind == PSP_PUSH) {
        touch(m->u.push.ids, m->u.push.n * 8);
        decode_all(m->u.push.format, m->u.push.rows, m->u.push.n, m->u.push.dim);
    } else if (m->kind == PSP_PULL_REPLY) {
        touch(m->u.pull_reply.versions, m->u.pull_reply.n * 4);
        touch(m->u.pull_reply.states, m->u.pull_reply.n);
        if (m->u.pull_reply.places != NULL)
            touch(m->u.pull_reply.places, (m->u.pull_reply.n + 1) * 4);
        decode_all(m->u.pull_reply.format, m->u.pull_reply.rows, m->u.pull_reply.n_values,
                   m->u.pull_reply.dim);
    } else if (m->kind == PSP_PUSH_REPLY) {
        touch(m->u.push_reply.versions, m->u.push_reply.n * 4);
        decode_all(m->u.push_reply.format, m->u.push_reply.rows, m->u.push_reply.n,
                   m->u.push_reply.dim);
    } else if (m->kind == PSP_EXPORT) {
        require(m->u.export.cursor_size <= PSP_CURSOR_MAX);
    } else if (m->kind == PSP_EXPORT_REPLY) {
        const psp_export_reply_t *r = &m->u.export_reply;
        require(r->next_size <= PSP_CURSOR_MAX);
        touch_block(r->ids, r->counts, r->state, r->n, r->state_floats);
        decode_all(r->format, r->rows, r->n, r->dim);
    } else if (m->kind == PSP_WATCH) {
        require(m->u.watch.cursor_size <= PSP_CURSOR_MAX);
    } else if (m->kind == PSP_WATCH_REPLY) {
        const psp_export_reply_t *r = &m->u.watch_reply.block;
        require(r->next_size <= PSP_CURSOR_MAX);
        touch(r->ids, r->n * 8);
        if (r->rows != NULL)
            decode_all(r->format, r->rows, r->n, r->dim);
    } else if (m->kind == PSP_IMPORT) {
        const psp_push_t *r = &m->u.import.rows;
        touch_block(r->ids, m->u.import.counts, m->u.import.state, r->n, m->u.import.state_floats);
        decode_all(r->format, r->rows, r->n, r->dim);
    } else if (m->kind == PSP_FIND_TABLE) {
        require(strnlen(m->u.find_table.name, PSP_NAME_MAX + 1) <= PSP_NAME_MAX);
    } else if (m->kind == PSP_FIND_TABLE_REPLY && m->u.find_table_reply.found) {
        require(strnlen(m->u.find_table_reply.options.name, PSP_NAME_MAX + 1) <= PSP_NAME_MAX);
    } else if (m->kind == PSP_CHECKPOINT) {
        require(m->u.checkpoint.step <= PSP_CHECKPOINT_LOOK);
        touch(m->u.checkpoint.state, m->u.checkpoint.n);
    } else if (m->kind == PSP_CHECKPOINT_REPLY) {
        touch(m->u.checkpoint_reply.state, m->u.checkpoint_reply.n);
    } else if (m->kind == PSP_STATS_REPLY) {
        require(m->u.stats_reply.n <= PSP_COUNTERS_MAX);
        for (size_t i = 0; i < m->u.stats_reply.n; i++)
            touch((const uint8_t *)m->u.stats_reply.counters[i].name,
                  strlen(m->u.stats_reply.counters[i].name));
    }
}

/* Blocks packed again, with everything copied in. */
static psp_buffer_t *repack_block(psp_pool_t *pool, const psp_message_t *m)
{
    psp_buffer_t *buffer = NULL;
    psp_block_t block = {0};
    psp_export_reply_t from = m->u.export_reply;
    psc_status_t st;
    if (m->kind == PSP_IMPORT) {
        const psp_import_t *import = &m->u.import;
        st = psp_import_begin(pool, &m->request, import, &buffer, &block, NULL);
        from = (psp_export_reply_t){.dim = import->rows.dim,
                                    .format = import->rows.format,
                                    .state_floats = import->state_floats,
                                    .n = import->rows.n,
                                    .ids = import->rows.ids,
                                    .counts = import->counts,
                                    .state = import->state,
                                    .rows = import->rows.rows};
    } else if (m->kind == PSP_WATCH_REPLY) {
        st = psp_watch_reply_begin(pool, &m->reply, &m->u.watch_reply, &buffer, &block, NULL);
        from = m->u.watch_reply.block;
    } else {
        st = psp_export_reply_begin(pool, &m->reply, &from, &buffer, &block, NULL);
    }
    require(st == PSC_OK);
    memcpy(block.ids, from.ids, from.n * 8);
    if (from.counts != NULL)
        memcpy(block.counts, from.counts, from.n * 8);
    memcpy(block.state, from.state, from.n * from.state_floats * 4);
    if (from.rows != NULL)
        memcpy(block.rows, from.rows, from.n * psp_row_bytes(from.format, from.dim));
    return buffer;
}

/* The message packed again, rows copied in. */
static psp_buffer_t *repack(psp_pool_t *pool, const psp_message_t *m)
{
    psp_buffer_t *buffer = NULL;
    uint8_t *ids = NULL;
    uint8_t *rows = NULL;
    psc_status_t st;
    if (m->kind == PSP_PUSH) {
        st = psp_push_begin(pool, &m->request, &m->u.push, &buffer, &ids, &rows, NULL);
        require(st == PSC_OK);
        memcpy(ids, m->u.push.ids, m->u.push.n * 8);
        memcpy(rows, m->u.push.rows, m->u.push.n * psp_row_bytes(m->u.push.format, m->u.push.dim));
    } else if (m->kind == PSP_PULL_REPLY && m->reply.error.code == PSC_OK) {
        const psp_pull_reply_t *r = &m->u.pull_reply;
        st = psp_pull_reply_begin(pool, &m->reply, r, &buffer, &rows, NULL);
        require(st == PSC_OK);
        memcpy(rows, r->rows, r->n_values * psp_row_bytes(r->format, r->dim));
    } else if (m->kind == PSP_PUSH_REPLY && m->u.push_reply.n != 0) {
        const psp_push_reply_t *r = &m->u.push_reply;
        st = psp_push_reply_begin(pool, &m->reply, r, &buffer, &rows, NULL);
        require(st == PSC_OK);
        memcpy(rows, r->rows, r->n * psp_row_bytes(r->format, r->dim));
    } else if (m->kind == PSP_IMPORT ||
               ((m->kind == PSP_EXPORT_REPLY || m->kind == PSP_WATCH_REPLY) &&
                m->reply.error.code == PSC_OK)) {
        buffer = repack_block(pool, m);
    } else {
        st = psp_message_pack(pool, m, &buffer, NULL);
        require(st == PSC_OK);
    }
    return buffer;
}

/* A sealed message, and the same with one other bit. */
static void check_seal(psp_buffer_t *buffer)
{
    uint64_t bit = 0;
    memcpy(&bit, buffer->data + buffer->size - sizeof bit, sizeof bit);
    bit = bit * UINT64_C(0x9e3779b97f4a7c15) % (buffer->size * 8);
    require(psp_seal_has_room(buffer));
    require(psp_seal_look(buffer->kind, buffer->data, buffer->size) != PSP_SEAL_BROKEN);
    psp_seal_put(buffer, (uint32_t)bit, 7);
    require(psp_seal_look(buffer->kind, buffer->data, buffer->size) == PSP_SEAL_GOOD);
    require(psp_seal_number(buffer) == (uint32_t)bit && psp_seal_expected(buffer) == 7);
    buffer->data[bit / 8] ^= (uint8_t)(1u << bit % 8);
    require(psp_seal_look(buffer->kind, buffer->data, buffer->size) == PSP_SEAL_BROKEN);
    buffer->data[bit / 8] ^= (uint8_t)(1u << bit % 8);
}

/* Any bytes, as they come over a wire. */
static void take_seal(psp_pool_t *pool, uint32_t kind, const uint8_t *data, size_t size)
{
    psp_buffer_t *buffer = NULL;
    const psp_seal_t seal = psp_seal_look(kind, data, size);
    require(psp_buffer_get(pool, size, &buffer, NULL) == PSC_OK);
    memcpy(buffer->data, data, size);
    buffer->size = size;
    buffer->kind = kind;
    require(psp_seal_take_request(buffer, true) == (seal != PSP_SEAL_BROKEN));
    require(buffer->sealed == (seal == PSP_SEAL_GOOD));
    if (psp_seal_has_room(buffer)) {
        psp_seal_put(buffer, 1, 2);
        check_seal(buffer);
    }
    psp_buffer_put(buffer);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    psp_pool_t *pool = NULL;
    psp_scratch_t *scratches[2] = {NULL, NULL};
    psc_error_t error = PSC_ERROR_INIT;
    require(psp_pool_create(0, &pool, &error) == PSC_OK);
    for (size_t i = 0; i < 2; i++)
        require(psp_scratch_create(SCRATCH_BYTES, &scratches[i], &error) == PSC_OK);
    take_seal(pool, data[0], data + 1, size - 1);
    if (size % 2 != 0) /* messages with room for seals, and without */
        psp_pool_seal(pool);
    psp_message_t message;
    psc_status_t st =
        psp_message_unpack(scratches[0], data[0], data + 1, size - 1, &message, &error);
    require(st == PSC_OK || (st == PSC_PROTOCOL && error.code == st && error.message[0] != '\0'));
    if (st == PSC_OK) {
        touch_all(&message);
        psp_buffer_t *once = repack(pool, &message);
        if (size % 2 != 0)
            check_seal(once);
        psp_message_t again;
        st = psp_message_unpack(scratches[1], once->kind, once->data, once->size, &again, &error);
        require(st == PSC_OK);
        psp_buffer_t *twice = repack(pool, &again);
        if (size % 2 != 0)
            check_seal(twice);
        require(once->size == twice->size && memcmp(once->data, twice->data, once->size) == 0);
        psp_buffer_put(once);
        psp_buffer_put(twice);
    }
    psp_scratch_destroy(scratches[0]);
    psp_scratch_destroy(scratches[1]);
    psp_pool_destroy(pool);
    return 0;
}
