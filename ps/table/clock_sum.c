/*
 * Sums over the workers' pushes of one clock.
 *
 * Table by table, all rows of the kept pushes become entries, sorted by id, then by the order of
 * their pushes. A pass over the entries takes from every id its first run: the neighbours of one
 * kind, rate and step. One push that is given out has one kind, rate and step, so ids whose run has
 * another are left for the next pass, as is what comes behind the run of an id. As a rule there is
 * one pass. The passes keep the entries of one id in order, so its runs are applied in order; which
 * other ids share a push with it makes no difference to it.
 *
 * Cost: sorting 16 bytes a row, then one copy of the values and the additions. Memory is counted
 * when pushes come, at what they will need here, in steps of 1 MiB. Threads: the owner's.
 */
#include "ps/table/clock_sum.h"

#include "common/alloc.h"
#include "common/vectors.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define STEP_BYTES ((uint64_t)1 << 20)

static uint64_t bytes_of(const ps_request_t *request)
{
    const psp_push_t *push = &request->message.u.push;
    /* An entry twice: sorting takes as much again. */
    return sizeof *request + push->n * 2 * sizeof(ps_clock_entry_t) + ps_request_bytes(request);
}

psc_status_t ps_clock_sum_add(ps_clock_sum_t *sum, const ps_request_t *request, ps_store_t *store,
                              psc_error_t *error)
{
    uint64_t bytes = bytes_of(request);
    uint64_t given_out = ((uint64_t)request->table->max_rows + 1) *
                         (sizeof(uint64_t) + request->table->dim * sizeof(float));
    uint64_t need = sum->bytes + bytes + given_out;
    if (need > sum->reserved) {
        uint64_t more = (need - sum->reserved + STEP_BYTES - 1) / STEP_BYTES * STEP_BYTES;
        psc_error_t why = PSC_ERROR_INIT;
        if (ps_store_reserve_memory(store, more, &why) != PSC_OK)
            return psc_error_set(error, PSC_INVALID_ARGUMENT,
                                 "the pushes of one clock at staleness 0, %" PRIu64
                                 " bytes so far, are kept until it ends: end it more often, or "
                                 "give the server more memory (%s)",
                                 sum->bytes + bytes, why.message);
        sum->reserved += more;
    }
    sum->bytes += bytes;
    sum->n_kept++;
    sum->rows_kept += request->message.u.push.n;
    return PSC_OK;
}

void ps_clock_sum_drop(ps_clock_sum_t *sum, const ps_request_t *request)
{
    sum->bytes -= bytes_of(request);
    sum->n_kept--;
    sum->rows_kept -= request->message.u.push.n;
}

psc_status_t ps_clock_sum_begin(ps_clock_sum_t *sum, ps_request_t **requests, size_t n,
                                psc_error_t *error)
{
    PSC_BUG_ON(sum->requests != NULL);
    sum->requests = requests;
    sum->n_requests = n;
    sum->next_table = 0;
    sum->table = NULL;
    if (sum->rows_kept > sum->entries_room) {
        psc_free(sum->entries);
        sum->entries_room = 0;
        sum->entries = psc_alloc_array(sum->rows_kept, sizeof *sum->entries);
        if (sum->entries == NULL)
            return psc_error_set(error, PSC_NO_MEMORY, "out of memory to sum %zu rows of a clock",
                                 sum->rows_kept);
        sum->entries_room = sum->rows_kept;
    }
    return PSC_OK;
}

static int by_id(const void *left, const void *right)
{
    const ps_clock_entry_t *a = left, *b = right;
    if (a->id != b->id)
        return a->id < b->id ? -1 : 1;
    if (a->request != b->request)
        return a->request < b->request ? -1 : 1;
    return a->row < b->row ? -1 : a->row > b->row;
}

/* Has this table been done before? Tables are done in the order of their first push. */
static bool is_done(const ps_clock_sum_t *sum, size_t request)
{
    for (size_t i = 0; i < request; i++) {
        if (sum->requests[i]->table == sum->requests[request]->table)
            return true;
    }
    return false;
}

/* Entries of the next table that has pushes; table NULL: there is none. */
static void begin_table(ps_clock_sum_t *sum)
{
    sum->table = NULL;
    while (sum->next_table < sum->n_requests && is_done(sum, sum->next_table))
        sum->next_table++;
    if (sum->next_table == sum->n_requests)
        return;
    sum->table = sum->requests[sum->next_table]->table;
    sum->n_entries = sum->at = sum->kept = 0;
    for (size_t r = sum->next_table; r < sum->n_requests; r++) {
        const psp_push_t *push = &sum->requests[r]->message.u.push;
        for (size_t i = 0; sum->requests[r]->table == sum->table && i < push->n; i++)
            sum->entries[sum->n_entries++] = (ps_clock_entry_t){
                .id = psp_id_at(push->ids, i), .request = (uint32_t)r, .row = (uint32_t)i};
    }
    sum->next_table++;
    qsort(sum->entries, sum->n_entries, sizeof *sum->entries, by_id);
}

/* Room for the push of a table that is given out, and behind it for a row that is decoded. */
static psc_status_t reserve(ps_clock_sum_t *sum, psc_error_t *error)
{
    size_t n = sum->table->max_rows < sum->n_entries ? sum->table->max_rows : sum->n_entries;
    size_t floats;
    bool fits = psc_size_multiply(n + 1, sum->table->dim, &floats);
    if (fits && n > sum->ids_room) {
        psc_free(sum->ids);
        sum->ids = psc_alloc_array(n, sizeof *sum->ids);
        sum->ids_room = sum->ids != NULL ? n : 0;
    }
    if (fits && floats > sum->rows_room) {
        size_t bytes = 0;
        psc_free(sum->rows);
        fits = psc_size_multiply(floats, sizeof *sum->rows, &bytes);
        sum->rows = fits ? psc_alloc_aligned(bytes) : NULL;
        sum->rows_room = sum->rows != NULL ? floats : 0;
    }
    if (sum->ids_room < n || sum->rows_room < floats)
        return psc_error_set(error, PSC_NO_MEMORY, "out of memory to sum %zu rows of a clock", n);
    return PSC_OK;
}

static const psp_push_t *push_of(const ps_clock_sum_t *sum, const ps_clock_entry_t *entry)
{
    return &sum->requests[entry->request]->message.u.push;
}

/* May the two be one change of a row? Rates are finite, so they compare. */
static bool alike(const psp_push_t *a, const psp_push_t *b)
{
    return a->kind == b->kind && a->step == b->step && !(a->learning_rate < b->learning_rate) &&
           !(a->learning_rate > b->learning_rate);
}

/* A row of a push as floats: where it came, or decoded into the last row of the room. */
static const float *values_of(ps_clock_sum_t *sum, const psp_push_t *push, const uint8_t *coded)
{
    if (push->format == PSP_FORMAT_F32)
        return (const float *)(const void *)coded;
    float *decoded = sum->rows + sum->rows_room - sum->table->dim;
    psp_row_format(push->format)->decode(decoded, coded, sum->table->dim);
    return decoded;
}

/* The row of an id: the sum of its first run, behind which *end is set. */
static void sum_run(ps_clock_sum_t *sum, size_t *end, float *row)
{
    const size_t dim = sum->table->dim;
    const ps_clock_entry_t *first = &sum->entries[*end];
    const psp_push_t *like = push_of(sum, first);
    for (size_t i = *end; i < sum->n_entries; i++) {
        const ps_clock_entry_t *entry = &sum->entries[i];
        const psp_push_t *push = push_of(sum, entry);
        if (entry->id != first->id || !alike(push, like))
            break;
        const uint8_t *coded = push->rows + entry->row * psp_row_bytes(push->format, dim);
        if (entry == first || like->kind == PSP_PUSH_ASSIGN)
            psp_row_format(push->format)->decode(row, coded, dim);
        else
            psc_vector_add(row, values_of(sum, push, coded), dim);
        *end = i + 1;
    }
}

/* The entries from `from` up to the next id stay for the next pass. */
static size_t keep_id(ps_clock_sum_t *sum, size_t from, uint64_t id)
{
    while (from < sum->n_entries && sum->entries[from].id == id)
        sum->entries[sum->kept++] = sum->entries[from++];
    return from;
}

psc_status_t ps_clock_sum_next(ps_clock_sum_t *sum, psp_push_t *push_out, ps_table_t **table_out,
                               bool *more_out, psc_error_t *error)
{
    *more_out = false;
    if (sum->table == NULL || sum->n_entries == 0)
        begin_table(sum);
    if (sum->table == NULL)
        return PSC_OK;
    psc_status_t st = reserve(sum, error);
    if (st != PSC_OK)
        return st;
    const psp_push_t *like = NULL;
    size_t n = 0;
    while (n < sum->table->max_rows && sum->at < sum->n_entries) {
        const uint64_t id = sum->entries[sum->at].id;
        const psp_push_t *push = push_of(sum, &sum->entries[sum->at]);
        if (like == NULL)
            like = push;
        if (alike(push, like)) {
            sum->ids[n] = id;
            sum_run(sum, &sum->at, sum->rows + n * sum->table->dim);
            n++;
        }
        sum->at = keep_id(sum, sum->at, id);
    }
    PSC_BUG_ON(like == NULL); /* there are entries, and room for a row */
    *push_out = *like;
    push_out->format = PSP_FORMAT_F32;
    push_out->n = n;
    push_out->ids = (const uint8_t *)sum->ids;
    push_out->rows = (const uint8_t *)sum->rows;
    *table_out = sum->requests[sum->next_table - 1]->table;
    *more_out = true;
    if (sum->at == sum->n_entries) {
        sum->n_entries = sum->kept;
        sum->at = sum->kept = 0;
    }
    return PSC_OK;
}

void ps_clock_sum_end(ps_clock_sum_t *sum)
{
    psc_free(sum->requests);
    sum->requests = NULL;
    sum->n_requests = 0;
    sum->table = NULL;
}

void ps_clock_sum_clear(ps_clock_sum_t *sum)
{
    ps_clock_sum_end(sum);
    psc_free(sum->entries);
    psc_free(sum->ids);
    psc_free(sum->rows);
    *sum = (ps_clock_sum_t){0};
}
