/*
 * From ids to messages.
 *
 * dedupe (or, for ids known to be distinct, only hash) -> sort by owner -> for each server,
 * messages of at most psp_rows_per_message rows, or fewer where a server's store asks for that.
 * Messages go round by round: the first of every server, then the second of every server, so that
 * all owners work at once and none waits for the queue of another. When nothing else is under way,
 * a call is cut into shorter messages, so that the client writes, or takes out of them, the one
 * while a server is at the other; while a server has work anyway, long messages cost less. A pull's
 * order array stays with its request, since replies are scattered through it; a push writes its
 * rows straight into the messages, sums of duplicates in input order; in other formats than
 * float32, through a row of scratch. Random bits of stochastic rounding depend on what is rounded
 * (proto/row_format.h), not on servers or the cut into messages.
 *
 * What is checked here is checked before the first message: nothing was sent then. An error in the
 * middle (no memory) ends the core, see issue.h. Cost: one pass to hash, two to sort, one to write;
 * no allocation once warm.
 */
#include "worker/issue.h"

#include "common/alloc.h"
#include "common/rng.h"
#include "common/stream_copy.h"

#define PIECE_BYTES ((size_t)32 << 10) /* rows of four times as much are sent as two messages */
#define NUMBER_BYTES ((size_t)10)      /* of a part, at most */

/* A call between its split and its last message. */
typedef struct plan {
    psw_issuer_t *issuer;
    const psw_target_t *target;
    psw_request_t *request;
    psw_distinct_t distinct; /* of a pull: those that are asked for */
    size_t n_distinct;
    const uint32_t *start; /* by server, in request->order from base on */
    uint32_t base;
    size_t most;    /* rows of a message */
    bool want_rows; /* of a push */
    bool numbered;  /* of a push: its messages are */
} plan_t;

/* Reads what can be read without asking. */
static psc_status_t read_direct(plan_t *plan, const psw_pull_options_t *pull, psc_error_t *error)
{
    const psw_direct_pull_t direct = {.table = plan->target->table,
                                      .dim = plan->target->dim,
                                      .ids = pull->ids,
                                      .rows_out = pull->rows_out,
                                      .stride = pull->stride,
                                      .states_out = pull->states_out,
                                      .staleness = pull->staleness};
    plan->request->direct = plan->issuer->direct;
    plan->request->table = plan->target->table;
    return psw_direct_read(plan->issuer->direct, &direct, &plan->distinct, error);
}

/* pull: NULL for a push. */
static psc_status_t split(plan_t *plan, const uint64_t *ids, size_t n, bool distinct,
                          const psw_pull_options_t *pull, psc_error_t *error)
{
    psw_issuer_t *issuer = plan->issuer;
    psc_status_t st =
        distinct
            ? psw_batch_hash(issuer->batch, plan->target->table, ids, n, &plan->distinct, error)
            : psw_batch_dedupe(issuer->batch, plan->target->table, ids, n, &plan->distinct, error);
    plan->n_distinct = plan->distinct.n;
    /* Other formats show rounded values, and what is read so has no age. */
    const bool plain =
        pull != NULL && !pull->scan && pull->ages_out == NULL && pull->format == PSP_FORMAT_F32;
    if (st == PSC_OK && plain && issuer->direct != NULL)
        st = read_direct(plan, pull, error);
    if (st == PSC_OK)
        st = psw_request_reserve_order(plan->request, plan->distinct.n, error);
    if (st == PSC_OK)
        st = psw_router_split(issuer->router, psw_core_map(issuer->core), plan->distinct.hashes,
                              plan->distinct.first, plan->distinct.n, plan->request->order,
                              &plan->start, error);
    return st;
}

/* The same for rows [from, from + n) of those that a cache left over. */
static psc_status_t split_picked(plan_t *plan, const psw_asked_t *asked, size_t from, size_t n,
                                 psc_error_t *error)
{
    psw_issuer_t *issuer = plan->issuer;
    psw_request_t *request = plan->request;
    uint32_t *order = request->order + from;
    plan->base = (uint32_t)from;
    psc_status_t st = psw_router_split(issuer->router, psw_core_map(issuer->core),
                                       asked->hashes + from, NULL, n, order, &plan->start, error);
    for (size_t j = 0; st == PSC_OK && j < n; j++) {
        const size_t u = from + order[j];
        request->tickets[from + j] = asked->tickets[u];
        request->held[from + j] = asked->held[u];
        order[j] = asked->first[u];
    }
    return st;
}

static psc_status_t begin_picked(plan_t *plan, const psw_picked_t *picked, psc_error_t *error)
{
    plan->distinct = *picked->distinct;
    plan->n_distinct = picked->distinct->n;
    psc_status_t st = psw_request_reserve_order(plan->request, picked->asked->n, error);
    if (st == PSC_OK)
        st = psw_request_reserve_tickets(plan->request, picked->asked->n, error);
    return st;
}

static void write_ids(const uint64_t *ids, const uint32_t *order, size_t n, uint8_t *out)
{
    for (size_t j = 0; j < n; j++)
        memcpy(out + j * sizeof *ids, &ids[order[j]], sizeof *ids);
}

static psc_status_t pull_part(const plan_t *plan, const psw_pull_options_t *options,
                              const psw_part_t *part, uint32_t begin, uint32_t n,
                              psc_error_t *error)
{
    psp_pull_t pull = {.table = plan->target->table,
                       .table_epoch = plan->target->epochs[part->server],
                       .staleness = options->staleness,
                       .scan = options->scan,
                       .format = options->format,
                       .want_places = plan->request->direct != NULL,
                       .n = n};
    if (options->picked != NULL) {
        pull.want_versions = true;
        pull.versions = (const uint8_t *)(plan->request->held + begin);
    }
    psp_buffer_t *buffer;
    uint8_t *ids;
    psc_status_t st = psp_pull_begin(psw_core_pool(plan->issuer->core), &part->header, &pull,
                                     &buffer, &ids, error);
    if (st != PSC_OK)
        return st;
    write_ids(options->ids, plan->request->order + begin, n, ids);
    psw_core_enqueue(plan->issuer->core, part, buffer, begin, n,
                     (size_t)n * psp_row_bytes(options->format, plan->target->dim));
    return PSC_OK;
}

/* The row of the call's index i as floats, to any address. */
static void write_floats(const plan_t *plan, const psw_push_options_t *options, uint32_t i,
                         uint8_t *out)
{
    const size_t dim = plan->target->dim;
    if (options->rows == NULL) {
        if ((uintptr_t)out % sizeof(float) == 0) {
            options->fill(options->fill_context, i, (float *)(void *)out);
        } else {
            options->fill(options->fill_context, i, plan->issuer->row_scratch);
            memcpy(out, plan->issuer->row_scratch, dim * sizeof(float));
        }
    } else if (options->kind == PSP_PUSH_ASSIGN) {
        uint32_t last = psw_batch_last(plan->distinct.next, i);
        memcpy(out, options->rows + (size_t)last * dim, dim * sizeof(float));
    } else {
        psw_batch_sum_row(options->rows, dim, plan->distinct.next, i, out);
    }
}

/* The same in the push's format. */
static void write_row(const plan_t *plan, const psw_push_options_t *options, uint32_t i,
                      uint8_t *out)
{
    const psw_target_t *target = plan->target;
    if (target->push_format == PSP_FORMAT_F32) {
        write_floats(plan, options, i, out);
        return;
    }
    const psp_row_format_t *coder = psp_row_format(target->push_format);
    float *row = plan->issuer->row_scratch;
    write_floats(plan, options, i, (uint8_t *)row);
    if (options->kind == PSP_PUSH_ASSIGN) {
        coder->encode(out, row, target->dim);
        return;
    }
    uint32_t *random = (uint32_t *)(void *)(row + plan->issuer->row_scratch_floats);
    psc_rng_row_blocks(target->rounding_seed, target->table, options->ids[i], PSC_RNG_WIRE,
                       target->push_number, 0, (target->dim + 7) / 8, random);
    coder->encode_stochastic(out, row, random, target->dim);
}

/* How many rows from order[j] on lie one behind the other in the caller's memory, and go as they
 * are. */
static uint32_t plain_run(const plan_t *plan, const psw_push_options_t *options,
                          const uint32_t *order, uint32_t j, uint32_t n)
{
    const uint32_t *next = plan->distinct.next;
    uint32_t end = j;
    if (options->rows == NULL || plan->target->push_format != PSP_FORMAT_F32)
        return 0;
    while (end < n && order[end] == order[j] + (end - j) &&
           (next == NULL || next[order[end]] == PSW_BATCH_NONE))
        end++;
    return end - j;
}

static void write_rows(const plan_t *plan, const psw_push_options_t *options, const uint32_t *order,
                       uint32_t n, uint8_t *out)
{
    const size_t dim = plan->target->dim;
    const size_t bytes = psp_row_bytes(plan->target->push_format, dim);
    for (uint32_t j = 0; j < n;) {
        const uint32_t run = plain_run(plan, options, order, j, n);
        if (run != 0)
            psc_stream_copy(out + j * bytes, options->rows + order[j] * dim, run * bytes);
        else
            write_row(plan, options, order[j], out + j * bytes);
        j += run != 0 ? run : 1;
    }
    psc_stream_end();
}

static psc_status_t push_part(const plan_t *plan, const psw_push_options_t *options,
                              const psw_part_t *part, uint32_t begin, uint32_t n,
                              psc_error_t *error)
{
    psp_push_t push = {.table = plan->target->table,
                       .table_epoch = plan->target->epochs[part->server],
                       .kind = options->kind,
                       .learning_rate = options->learning_rate,
                       .step = options->step,
                       .synchronous = options->synchronous,
                       .want_rows = plan->want_rows,
                       .dim = plan->target->dim,
                       .format = plan->target->push_format,
                       .reply_format = plan->request->format,
                       .n = n};
    psp_buffer_t *buffer;
    uint8_t *ids;
    uint8_t *rows;
    psc_status_t st = psp_push_begin(psw_core_pool(plan->issuer->core), &part->header, &push,
                                     &buffer, &ids, &rows, error);
    if (st != PSC_OK)
        return st;
    const uint32_t *order = plan->request->order + begin;
    write_ids(options->ids, order, n, ids);
    write_rows(plan, options, order, n, rows);
    psw_core_enqueue(plan->issuer->core, part, buffer, begin, n, 0);
    psw_core_tally_push(plan->issuer->core, part->server, n);
    if (plan->issuer->direct != NULL)
        psw_direct_pushed(plan->issuer->direct, part->server, part->header.sequence, push.table,
                          options->ids, order, n);
    return PSC_OK;
}

/* The whole number n with n * n <= x < (n + 1) * (n + 1). */
static size_t whole_root(size_t x)
{
    size_t root = 0;
    while ((root + 1) * (root + 1) <= x)
        root++;
    return root;
}

/* Bytes of a message beside the numbers of parts that it tells. */
static size_t room_for_rows(const plan_t *plan)
{
    const psw_core_t *core = plan->issuer->core;
    const size_t all = psw_core_max_message_bytes(core);
    const size_t numbers = plan->numbered ? NUMBER_BYTES * psw_core_n_servers(core) : 0;
    return numbers < all ? all - numbers : 0;
}

/*
 * Rows of a message at most. With n messages, what only one side can do at a time shrinks with
 * 1 / n and what a message costs grows with n: so n goes with the root of the bytes.
 */
static size_t most_rows(const plan_t *plan, bool idle)
{
    const psw_core_t *core = plan->issuer->core;
    const psw_target_t *target = plan->target;
    size_t most = psp_rows_per_message(target->dim, room_for_rows(plan));
    if (target->max_rows != 0 && target->max_rows < most)
        most = target->max_rows;
    if (target->whole || !idle)
        return most;
    size_t largest = 0; /* part of one server */
    for (uint32_t s = 0; s < psw_core_n_servers(core); s++) {
        size_t rows = plan->start[s + 1] - plan->start[s];
        largest = rows > largest ? rows : largest;
    }
    size_t pieces = whole_root(largest * target->dim * sizeof(float) / PIECE_BYTES);
    if (pieces <= 1)
        return most;
    size_t cut = (largest + pieces - 1) / pieces;
    return cut < most ? cut : most;
}

/* All messages of the call, round by round. Exactly one of pull and push is given. */
static psc_status_t send_parts(const plan_t *plan, const psw_pull_options_t *pull,
                               const psw_push_options_t *push, psw_room_t room, psc_error_t *error)
{
    psw_core_t *core = plan->issuer->core;
    const uint32_t n_servers = psw_core_n_servers(core);
    const size_t most = plan->most;
    bool more = true;
    for (size_t skip = 0; more; skip += most) {
        more = false;
        for (uint32_t s = 0; s < n_servers; s++) {
            const size_t rows = plan->start[s + 1] - plan->start[s];
            if (rows <= skip)
                continue;
            const size_t n = rows - skip < most ? rows - skip : most;
            const uint32_t begin = plan->base + (uint32_t)(plan->start[s] + skip);
            more = more || skip + n < rows;
            psw_part_t part = {0};
            psc_status_t st = room.fn != NULL ? room.fn(room.context, s, error) : PSC_OK;
            if (st == PSC_OK)
                st = psw_core_part(core, plan->request, s, &part, error);
            part.header.deadline_ms = pull != NULL ? pull->deadline_ms : 0;
            if (st == PSC_OK && plan->numbered) {
                psw_core_number_part(core, &part);
                if (skip == 0)
                    psw_core_tell_parts(core, &part);
            }
            if (st == PSC_OK)
                st = pull != NULL ? pull_part(plan, pull, &part, begin, (uint32_t)n, error)
                                  : push_part(plan, push, &part, begin, (uint32_t)n, error);
            if (st != PSC_OK)
                return st;
        }
    }
    return PSC_OK;
}

static psc_status_t finish(plan_t *plan, psc_status_t st, const psc_error_t *what,
                           psw_issued_t *issued_out, psc_error_t *error)
{
    psw_core_t *core = plan->issuer->core;
    if (st == PSC_OK) {
        issued_out->request = plan->request;
        issued_out->n_distinct = plan->n_distinct;
        psw_core_seal(core, plan->request);
        return PSC_OK;
    }
    psw_core_give_up(core, plan->request, what, error);
    return st;
}

psc_status_t psw_issue_pull(psw_issuer_t *issuer, const psw_target_t *target,
                            const psw_pull_options_t *options, psw_room_t room,
                            psw_issued_t *issued_out, psc_error_t *error)
{
    plan_t plan = {.issuer = issuer, .target = target};
    psc_error_t what = PSC_ERROR_INIT;
    psc_status_t st = psw_core_request(issuer->core, PSP_PULL, &plan.request, error);
    if (st != PSC_OK)
        return st;
    plan.request->rows_out = options->rows_out;
    plan.request->stride = options->stride;
    plan.request->states_out = options->states_out;
    plan.request->may_be_late = options->deadline_ms != 0;
    plan.request->ages_out = options->ages_out;
    plan.request->dim = target->dim;
    plan.request->format = options->format;
    psw_request_set_cache(plan.request, options->cache, target->table,
                          psw_core_clock(issuer->core));
    if (options->picked == NULL)
        st = split(&plan, options->ids, options->n, options->distinct, options, &what);
    else if ((st = begin_picked(&plan, options->picked, &what)) == PSC_OK)
        st = split_picked(&plan, options->picked->asked, 0, options->picked->asked->n, &what);
    if (st == PSC_OK)
        st = psw_request_keep_duplicates(plan.request, plan.distinct.duplicates,
                                         plan.distinct.n_duplicates, &what);
    plan.most = st == PSC_OK ? most_rows(&plan, psw_core_idle(issuer->core)) : 0;
    if (st == PSC_OK)
        st = send_parts(&plan, options, NULL, room, &what);
    return finish(&plan, st, &what, issued_out, error);
}

/* Finite rows can have a sum that is not; the id is named before anything is sent. */
static psc_status_t check_sums(const psw_issuer_t *issuer, size_t dim,
                               const psw_distinct_t *distinct, const psw_push_options_t *options,
                               psc_error_t *error)
{
    const uint32_t *next = distinct->next;
    if (next == NULL || options->kind == PSP_PUSH_ASSIGN || options->small)
        return PSC_OK;
    for (size_t u = 0; u < distinct->n; u++) {
        uint32_t first = distinct->first[u];
        if (next[first] == PSW_BATCH_NONE)
            continue;
        psw_batch_sum_row(options->rows, dim, next, first, (uint8_t *)issuer->row_scratch);
        if (psw_batch_find_not_finite(issuer->row_scratch, dim) == dim)
            continue;
        psc_status_t st =
            psc_error_set(error, PSC_INVALID_ARGUMENT,
                          "the rows pushed for id %llu have a sum that is not finite; nothing was "
                          "sent",
                          (unsigned long long)options->ids[first]);
        if (error != NULL)
            error->id = options->ids[first];
        return st;
    }
    return PSC_OK;
}

/* Room to keep one split while another is made. */
static psc_status_t reserve_starts(psw_issuer_t *issuer, uint32_t n_servers, psc_error_t *error)
{
    uint32_t *starts = psc_realloc_array(issuer->starts, (size_t)n_servers + 1, sizeof *starts);
    if (starts == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "no memory to route to %u servers", n_servers);
    issuer->starts = starts;
    return PSC_OK;
}

/* A row of scratch: for sums that are only looked at, rows that lie unaligned in a message, and
 * those that go in another format; behind it the random bits, whole blocks of eight. */
static psc_status_t reserve_row(psw_issuer_t *issuer, size_t dim, psc_error_t *error)
{
    if (dim <= issuer->row_scratch_floats)
        return PSC_OK;
    float *row = psc_realloc_array(issuer->row_scratch, dim + (dim + 7) / 8 * 4, sizeof *row);
    if (row == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "no memory for a row of %zu floats", dim);
    issuer->row_scratch = row;
    issuer->row_scratch_floats = dim;
    return PSC_OK;
}

psc_status_t psw_issue_check_sums(psw_issuer_t *issuer, const psw_target_t *target,
                                  const psw_distinct_t *distinct, const psw_push_options_t *options,
                                  psc_error_t *error)
{
    psc_status_t st = reserve_row(issuer, target->dim, error);
    return st == PSC_OK ? check_sums(issuer, target->dim, distinct, options, error) : st;
}

/* ---- numbers of messages ---- */

/* Whether the messages of a push are to be numbered: they count at once, and servers may know whose
 * they are. */
static bool is_numbered(const plan_t *plan, const psw_push_options_t *options)
{
    const plan_t numbered = {.issuer = plan->issuer, .numbered = true};
    return !options->synchronous && psw_core_numbers_parts(plan->issuer->core) &&
           psp_rows_per_message(plan->target->dim, room_for_rows(&numbered)) != 0;
}

/* Messages of the halves of a call for a server. */
static uint64_t count_messages(const plan_t *halves, size_t n_halves, uint32_t server)
{
    uint64_t n = 0;
    for (size_t i = 0; i < n_halves; i++) {
        const size_t rows = halves[i].start[server + 1] - halves[i].start[server];
        n += (rows + halves[i].most - 1) / halves[i].most;
    }
    return n;
}

/* Promises the messages of a call that are numbered. The only message to the only server is whole
 * without a number. */
static void promise(plan_t *halves, size_t n_halves)
{
    psw_core_t *core = halves[0].issuer->core;
    const uint32_t n_servers = psw_core_n_servers(core);
    if (!halves[0].numbered)
        return;
    if (n_servers == 1 && count_messages(halves, n_halves, 0) <= 1) {
        for (size_t i = 0; i < n_halves; i++)
            halves[i].numbered = false;
        return;
    }
    for (uint32_t s = 0; s < n_servers; s++)
        psw_core_promise(core, s, count_messages(halves, n_halves, s));
}

/* Rows that are to come back, then the others: both are split before the first message, so that it
 * can tell of all. */
static psc_status_t push_picked(plan_t *plan, const psw_push_options_t *options, psw_room_t room,
                                psc_error_t *error)
{
    const psw_asked_t *asked = options->picked->asked;
    const uint32_t n_servers = psw_core_n_servers(plan->issuer->core);
    const size_t n_others = asked->n - asked->n_wanted;
    plan_t halves[2] = {*plan, *plan};
    psc_status_t st = begin_picked(plan, options->picked, error);
    if (st == PSC_OK)
        st = reserve_starts(plan->issuer, n_servers, error);
    for (size_t i = 2; st == PSC_OK && i-- > 0;) {
        plan_t *half = &halves[i];
        *half = *plan;
        half->want_rows = i == 0;
        st = split_picked(half, asked, i == 0 ? 0 : asked->n_wanted,
                          i == 0 ? asked->n_wanted : n_others, error);
        if (st != PSC_OK)
            break;
        half->most =
            most_rows(half, psw_core_idle(plan->issuer->core) && (i == 0 || asked->n_wanted == 0));
        if (i == 1) {
            memcpy(plan->issuer->starts, half->start,
                   ((size_t)n_servers + 1) * sizeof *half->start);
            half->start = plan->issuer->starts;
        }
    }
    if (st == PSC_OK)
        promise(halves, 2);
    for (size_t i = 0; st == PSC_OK && i < 2; i++)
        st = send_parts(&halves[i], NULL, options, room, error);
    return st;
}

psc_status_t psw_issue_push(psw_issuer_t *issuer, const psw_target_t *target,
                            const psw_push_options_t *options, psw_room_t room,
                            psw_issued_t *issued_out, psc_error_t *error)
{
    plan_t plan = {.issuer = issuer, .target = target};
    psc_error_t what = PSC_ERROR_INIT;
    psc_status_t st = psw_core_request(issuer->core, PSP_PUSH, &plan.request, error);
    if (st != PSC_OK)
        return st;
    plan.request->dim = target->dim;
    plan.request->format = target->pull_format;
    psw_request_set_cache(plan.request, options->cache, target->table,
                          psw_core_clock(issuer->core));
    st = reserve_row(issuer, target->dim, &what);
    plan.numbered = is_numbered(&plan, options);
    if (st == PSC_OK && options->picked != NULL) {
        st = push_picked(&plan, options, room, &what);
    } else if (st == PSC_OK) {
        st = split(&plan, options->ids, options->n, options->rows == NULL, NULL, &what);
        if (st == PSC_OK)
            st = check_sums(issuer, target->dim, &plan.distinct, options, &what);
        plan.most = st == PSC_OK ? most_rows(&plan, psw_core_idle(issuer->core)) : 0;
        if (st == PSC_OK) {
            promise(&plan, 1);
            st = send_parts(&plan, NULL, options, room, &what);
        }
    }
    return finish(&plan, st, &what, issued_out, error);
}

/* ---- prefetch ---- */

/* Ids in one message: small beside what a server keeps of them. */
#define PREFETCH_IDS 16384u

static psc_status_t prefetch_part(const plan_t *plan, const psw_prefetch_options_t *options,
                                  uint32_t server, uint32_t begin, uint32_t n, psc_error_t *error)
{
    psw_part_t part;
    psp_buffer_t *buffer;
    uint8_t *ids;
    const psp_prefetch_t prefetch = {.table = plan->target->table,
                                     .table_epoch = plan->target->epochs[server],
                                     .when = options->when,
                                     .n = n};
    psc_status_t st = psw_core_part(plan->issuer->core, NULL, server, &part, error);
    if (st == PSC_OK)
        st = psp_prefetch_begin(psw_core_pool(plan->issuer->core), &part.header, &prefetch, &buffer,
                                &ids, error);
    if (st != PSC_OK)
        return st;
    write_ids(options->ids, plan->request->order + begin, n, ids);
    psw_core_enqueue(plan->issuer->core, &part, buffer, 0, 0, 0);
    return PSC_OK;
}

psc_status_t psw_issue_prefetch(psw_issuer_t *issuer, const psw_target_t *target,
                                const psw_prefetch_options_t *options, size_t *n_dropped_out,
                                psc_error_t *error)
{
    plan_t plan = {.issuer = issuer, .target = target};
    psw_core_t *core = issuer->core;
    size_t most = (psw_core_max_message_bytes(core) - 256) / sizeof(uint64_t);
    most = most < PREFETCH_IDS ? most : PREFETCH_IDS;
    *n_dropped_out = 0;
    /* For its order array alone: it has no parts. */
    psc_status_t st = psw_core_request(core, PSP_PREFETCH, &plan.request, error);
    if (st != PSC_OK)
        return st;
    st = split(&plan, options->ids, options->n, options->distinct, NULL, error);
    for (uint32_t s = 0; st == PSC_OK && s < psw_core_n_servers(core); s++) {
        for (uint32_t at = plan.start[s]; st == PSC_OK && at < plan.start[s + 1];) {
            uint32_t n = plan.start[s + 1] - at;
            n = n < most ? n : (uint32_t)most;
            if (psw_core_has_room(core, s, n * sizeof(uint64_t)))
                st = prefetch_part(&plan, options, s, at, n, error);
            else
                *n_dropped_out += n;
            at += n;
        }
    }
    psw_core_release(core, plan.request);
    return st;
}
