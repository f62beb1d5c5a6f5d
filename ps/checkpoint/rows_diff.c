/*
 * A slot is one server's in either checkpoint, and rows of a part come in the order of tables,
 * slots and ids. So each server of the first meets each of the second with which it has slots in
 * common, and the rows of these slots are merged as two sorted streams. What of a table is largest
 * is kept in a heap with the least on top.
 *
 * Memory: two streams (saved_rows.h), one row of each as floats, and the heaps; nothing that grows
 * with the tables. Cost: all files of both are read once for their checksums, and those of a server
 * once more for each server that it meets: as a rule as many meetings as there are servers in both.
 *
 * Threads: none.
 */
#include "ps/checkpoint/rows_diff.h"

#include "common/alloc.h"
#include "common/file.h"
#include "ps/checkpoint/restore_inside.h"
#include "ps/checkpoint/saved_rows.h"
#include "ps/table/precision.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One of both. */
typedef struct side {
    ps_restore_t *restore;
    size_t *entries; /* [n_tables] which of the diff's tables it is */
    ps_saved_rows_t *rows;
    const uint8_t *record; /* where the stream stands; NULL: at its end */
    ps_row_header_t row;
    size_t table; /* of it, among those of the restore */
} side_t;

typedef struct work {
    const ps_rows_diff_options_t *options;
    side_t sides[2];
    ps_rows_diff_t *diff;
    float *weights[2]; /* [dim] of the widest table */
    bool *slots;       /* [PSC_SLOT_COUNT] that two servers have in common */
    char log_dir[4096];
} work_t;

static psc_status_t no_memory(psc_error_t *error)
{
    return psc_error_set(error, PSC_NO_MEMORY, "out of memory for rows of checkpoints");
}

/* ---- tables ---- */

static const ps_table_t *table_of(const side_t *side)
{
    return &side->restore->tables[side->table].was;
}

/* Adds a table of one side. */
static void add_table(work_t *work, size_t side, size_t table)
{
    ps_rows_diff_t *diff = work->diff;
    ps_rows_diff_table_t *to = &diff->tables[diff->n_tables];
    const char *name = work->sides[side].restore->tables[table].was.name;
    memcpy(to->name, name, strlen(name) + 1);
    to->has[side] = true;
    work->sides[side].entries[table] = diff->n_tables++;
}

/* Whether rows of a table that both have can be compared. */
static psc_status_t check_pair(const work_t *work, const ps_table_t *first,
                               const ps_table_t *second, psc_error_t *error)
{
    const char *names[] = {ps_restore_name(work->sides[0].restore),
                           ps_restore_name(work->sides[1].restore)};
    if (first->number != second->number)
        return psc_error_set(error, PSC_MISMATCH,
                             "table %s is number %u of %s and number %u of %s, which are of "
                             "different runs: their rows cannot be compared",
                             first->name, first->number, names[0], second->number, names[1]);
    if (first->dim != second->dim)
        return psc_error_set(error, PSC_MISMATCH,
                             "table %s has dim %u in %s and %u in %s: rows cannot be compared",
                             first->name, first->dim, names[0], second->dim, names[1]);
    if (first->precision != second->precision)
        return psc_error_set(error, PSC_MISMATCH,
                             "table %s has precision %s in %s and %s in %s: rows cannot be "
                             "compared",
                             first->name, psp_precision_name(first->precision), names[0],
                             psp_precision_name(second->precision), names[1]);
    return PSC_OK;
}

/* Whether states of its rows mean the same. */
static bool same_states(const ps_table_t *first, const ps_table_t *second)
{
    return first->optim == second->optim && first->state_precision == second->state_precision &&
           first->state_bytes == second->state_bytes;
}

static psc_status_t pair_tables(work_t *work, psc_error_t *error)
{
    const ps_restore_t *first = work->sides[0].restore, *second = work->sides[1].restore;
    const size_t most = first->n_tables + second->n_tables;
    work->sides[0].entries = psc_alloc_zeroed(first->n_tables + 1, sizeof(size_t));
    work->sides[1].entries = psc_alloc_zeroed(second->n_tables + 1, sizeof(size_t));
    work->diff->tables = psc_alloc_zeroed(most + 1, sizeof *work->diff->tables);
    if (work->sides[0].entries == NULL || work->sides[1].entries == NULL ||
        work->diff->tables == NULL)
        return no_memory(error);
    for (size_t i = 0; i < first->n_tables; i++)
        add_table(work, 0, i);
    for (size_t k = 0; k < second->n_tables; k++) {
        const ps_table_t *table = &second->tables[k].was;
        size_t i = 0;
        while (i < first->n_tables && strcmp(first->tables[i].was.name, table->name) != 0)
            i++;
        if (i == first->n_tables) {
            add_table(work, 1, k);
            continue;
        }
        psc_status_t st = check_pair(work, &first->tables[i].was, table, error);
        if (st != PSC_OK)
            return st;
        work->diff->tables[i].has[1] = true;
        work->diff->tables[i].states_compared = same_states(&first->tables[i].was, table);
        work->sides[1].entries[k] = i;
    }
    return PSC_OK;
}

/* ---- the largest ---- */

/* Whether a is told before b. */
static bool before(const ps_rows_diff_row_t *a, const ps_rows_diff_row_t *b)
{
    return a->norm > b->norm || (a->norm == b->norm && a->id < b->id);
}

static int compare_rows(const void *left, const void *right)
{
    return before(left, right) ? -1 : before(right, left);
}

/* The row at the top, which changed, sinks to its place: above those that are told before it. */
static void sink(ps_rows_diff_row_t *rows, size_t n)
{
    for (size_t at = 0, child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && before(&rows[child], &rows[child + 1]))
            child++;
        if (!before(&rows[at], &rows[child]))
            return;
        const ps_rows_diff_row_t row = rows[at];
        rows[at] = rows[child];
        rows[child] = row;
    }
}

static void rise(ps_rows_diff_row_t *rows, size_t at)
{
    for (size_t parent; at > 0 && before(&rows[parent = (at - 1) / 2], &rows[at]); at = parent) {
        const ps_rows_diff_row_t row = rows[at];
        rows[at] = rows[parent];
        rows[parent] = row;
    }
}

static psc_status_t keep_largest(const work_t *work, ps_rows_diff_table_t *table, uint64_t id,
                                 double norm, psc_error_t *error)
{
    const size_t most = work->options->n_largest;
    const ps_rows_diff_row_t row = {.id = id, .norm = norm};
    if (most == 0)
        return PSC_OK;
    if (table->largest == NULL)
        table->largest = psc_alloc_array(most, sizeof *table->largest);
    if (table->largest == NULL)
        return no_memory(error);
    if (table->n_largest < most) {
        table->largest[table->n_largest] = row;
        rise(table->largest, table->n_largest++);
    } else if (before(&row, &table->largest[0])) {
        table->largest[0] = row;
        sink(table->largest, most);
    }
    return PSC_OK;
}

/* ---- rows ---- */

static double norm_of(const work_t *work, const ps_table_t *table)
{
    const ps_precision_t *precision = ps_precision_of(table->precision);
    double sum = 0;
    for (size_t i = 0; i < 2; i++)
        precision->decode(work->weights[i], work->sides[i].record + sizeof(ps_row_header_t),
                          table->dim);
    for (size_t c = 0; c < table->dim; c++) {
        const double difference = (double)work->weights[1][c] - (double)work->weights[0][c];
        sum += difference * difference;
    }
    return isfinite(sum) ? sqrt(sum) : (double)INFINITY;
}

/* A row that both have. */
static psc_status_t compare(work_t *work, ps_rows_diff_table_t *table, psc_error_t *error)
{
    const side_t *sides = work->sides;
    const ps_table_t *of = table_of(&sides[0]);
    const size_t weights = ps_precision_of(of->precision)->bytes * of->dim;
    const uint8_t *rows[] = {sides[0].record + sizeof(ps_row_header_t),
                             sides[1].record + sizeof(ps_row_header_t)};
    if (memcmp(rows[0], rows[1], weights) != 0) {
        table->n_changed++;
        return keep_largest(work, table, sides[0].row.id, norm_of(work, of), error);
    }
    if (table->states_compared &&
        memcmp(rows[0] + of->weight_bytes, rows[1] + of->weight_bytes, of->state_bytes) != 0)
        table->n_state_changed++;
    else
        table->n_same++;
    return PSC_OK;
}

/* The next row of a side. */
static psc_status_t advance(work_t *work, size_t i, psc_error_t *error)
{
    side_t *side = &work->sides[i];
    psc_status_t st = ps_saved_rows_next(side->rows, &side->record, error);
    if (st != PSC_OK || side->record == NULL)
        return st;
    memcpy(&side->row, side->record, sizeof side->row);
    while (side->table < side->restore->n_tables && table_of(side)->number != side->row.table)
        side->table++;
    work->diff->tables[side->entries[side->table]].n_rows[i]++;
    return PSC_OK;
}

static psc_status_t merge(work_t *work, psc_error_t *error)
{
    side_t *first = &work->sides[0], *second = &work->sides[1];
    ps_rows_diff_table_t *tables = work->diff->tables;
    first->table = second->table = 0;
    psc_status_t st = advance(work, 0, error);
    if (st == PSC_OK)
        st = advance(work, 1, error);
    while (st == PSC_OK && (first->record != NULL || second->record != NULL)) {
        const int order = first->record == NULL ? 1
                          : second->record == NULL
                              ? -1
                              : ps_saved_rows_compare(&first->row, &second->row);
        const size_t entries[] = {first->entries[first->table], second->entries[second->table]};
        if (order == 0 && entries[0] == entries[1]) {
            st = compare(work, &tables[entries[0]], error);
        } else { /* or of two tables, one of which came into the other's place */
            tables[entries[0]].n_removed += order <= 0;
            tables[entries[1]].n_added += order >= 0;
        }
        if (st == PSC_OK && order <= 0)
            st = advance(work, 0, error);
        if (st == PSC_OK && order >= 0)
            st = advance(work, 1, error);
    }
    return st;
}

/* ---- servers ---- */

/* Which slots two servers have in common; false: none. */
static bool find_common(work_t *work, const uint32_t servers[2])
{
    bool any = false;
    for (uint32_t slot = 0; slot < PSC_SLOT_COUNT; slot++) {
        work->slots[slot] = work->sides[0].restore->before.owner[slot] == servers[0] &&
                            work->sides[1].restore->before.owner[slot] == servers[1];
        any |= work->slots[slot];
    }
    return any;
}

static psc_status_t meet(work_t *work, const uint32_t servers[2], psc_error_t *error)
{
    psc_status_t st = PSC_OK;
    for (size_t i = 0; st == PSC_OK && i < 2; i++) {
        const ps_saved_rows_options_t options = {.server = servers[i],
                                                 .slots = work->slots,
                                                 .log_dir = work->log_dir,
                                                 .memory_bytes = work->options->memory_bytes / 2};
        st = ps_saved_rows_open(work->sides[i].restore, &options, &work->sides[i].rows, error);
    }
    if (st == PSC_OK)
        st = merge(work, error);
    for (size_t i = 0; i < 2; i++) {
        ps_saved_rows_close(work->sides[i].rows);
        work->sides[i].rows = NULL;
    }
    return st;
}

static psc_status_t meet_all(work_t *work, psc_error_t *error)
{
    psc_status_t st = PSC_OK;
    uint32_t servers[2];
    for (servers[0] = 0; servers[0] < work->sides[0].restore->before.n_servers; servers[0]++) {
        for (servers[1] = 0; st == PSC_OK && servers[1] < work->sides[1].restore->before.n_servers;
             servers[1]++) {
            if (find_common(work, servers))
                st = meet(work, servers, error);
        }
    }
    return st;
}

/* ---- all ---- */

static psc_status_t open_side(side_t *side, const char *folder, const char *name,
                              psc_error_t *error)
{
    psc_status_t st = ps_restore_find(folder, name, 0, 1, false, &side->restore, error);
    /* Some words mean another one. */
    if (st == PSC_OK &&
        (side->restore == NULL || strcmp(ps_restore_name(side->restore), name) != 0))
        st = psc_error_set(error, PSC_NOT_FOUND, "there is no checkpoint %s in %s", name, folder);
    return st;
}

static psc_status_t reserve(work_t *work, psc_error_t *error)
{
    uint32_t dim = 1;
    for (size_t i = 0; i < 2; i++) {
        const ps_restore_t *restore = work->sides[i].restore;
        for (size_t k = 0; k < restore->n_tables; k++)
            dim = restore->tables[k].was.dim > dim ? restore->tables[k].was.dim : dim;
    }
    work->slots = psc_alloc_array(PSC_SLOT_COUNT, sizeof *work->slots);
    work->weights[0] = psc_alloc_array(dim, sizeof(float));
    work->weights[1] = psc_alloc_array(dim, sizeof(float));
    return work->slots != NULL && work->weights[0] != NULL && work->weights[1] != NULL
               ? PSC_OK
               : no_memory(error);
}

static psc_status_t walk(work_t *work, psc_error_t *error)
{
    const char *below = getenv("TMPDIR");
    psc_error_t ignored = PSC_ERROR_INIT;
    (void)snprintf(work->log_dir, sizeof work->log_dir, "%s/embps-diff-XXXXXX",
                   below != NULL && below[0] != '\0' ? below : "/tmp");
    if (mkdtemp(work->log_dir) == NULL)
        return psc_error_set_errno(error, errno, "cannot make %s", work->log_dir);
    psc_status_t st = meet_all(work, error);
    (void)!psc_file_remove_all(work->log_dir, &ignored);
    for (size_t i = 0; i < work->diff->n_tables; i++) {
        const ps_rows_diff_table_t *table = &work->diff->tables[i];
        if (table->n_largest != 0)
            qsort(table->largest, table->n_largest, sizeof *table->largest, compare_rows);
    }
    return st;
}

psc_status_t ps_rows_diff(const char *folder, const char *const names[2],
                          const ps_rows_diff_options_t *options, ps_rows_diff_t **diff_out,
                          psc_error_t *error)
{
    work_t work = {.options = options};
    psc_status_t st = PSC_OK;
    work.diff = psc_alloc_zeroed(1, sizeof *work.diff);
    if (work.diff == NULL)
        st = no_memory(error);
    for (size_t i = 0; st == PSC_OK && i < 2; i++)
        st = open_side(&work.sides[i], folder, names[i], error);
    if (st == PSC_OK)
        st = pair_tables(&work, error);
    if (st == PSC_OK)
        st = reserve(&work, error);
    if (st == PSC_OK)
        st = walk(&work, error);
    for (size_t i = 0; i < 2; i++) {
        ps_restore_destroy(work.sides[i].restore);
        psc_free(work.sides[i].entries);
        psc_free(work.weights[i]);
    }
    psc_free(work.slots);
    if (st == PSC_OK)
        *diff_out = work.diff;
    else
        ps_rows_diff_destroy(work.diff);
    return st;
}

void ps_rows_diff_destroy(ps_rows_diff_t *diff)
{
    if (diff == NULL)
        return;
    for (size_t i = 0; i < diff->n_tables; i++)
        psc_free(diff->tables[i].largest);
    psc_free(diff->tables);
    psc_free(diff);
}
