/*
 * The pipeline. Two batches are in flight, each with the rows as pulled (base) and as trained
 * (rows):
 *
 *     wait for the pulls of t        under way while t-1 was trained
 *     base(t) += deltas of t-1       for rows that both have: they were pulled before that push
 *     build t+1, start its pulls     before the deltas of t are pushed, so nothing waits for them
 *     rows(t) = base(t); train them
 *     push rows(t) - base(t)         written straight into the messages
 *
 * The second step makes the pipeline invisible to one worker alone: it adds the same float to the
 * same float as the server does, so its rows are, to the last bit, what a pull after the push would
 * have given (in tables of 16 bits, or with formats on the wire other than float32: but for their
 * rounding, which is right on average).
 * Other workers' deltas come one batch later than without a pipeline.
 *
 * At staleness 0 a pull waits for the clock before it, so nothing overlaps but the building of the
 * next batch and the push:
 *
 *     pull t, wait; rows(t) = base; train; push; build t+1; wait; end the clock
 *
 * With a cache (--cache) pulls and pushes are the same: a pull that the cache serves shows what was
 * pushed before it, accumulated or sent, so the deltas of the batch before are still to be added.
 *
 * A checkpoint (--checkpoint-batches) is made between two batches: nothing is under way then, the
 * cache has sent what it had and begins anew, and the next batch begins as the first one of a run
 * does that goes on from there. So such a run has the same bits, where those of an undisturbed one
 * do not depend on who comes first. The first worker (0, until it is lost) has the servers cut, and
 * goes on while they write. In step nobody else need know of it: a server cuts when it has applied
 * the clock, and cannot apply the next one before that worker has ended it. Else workers meet
 * there: each ends one more clock, which that worker does when all servers have cut, and all wait
 * for that one.
 *
 * After its last batch a worker ends its last clock: nobody waits for one whose share was smaller.
 *
 * Messages move only inside calls of the client, so the loop over windows steps the client every
 * 32 windows while a pull is under way (about every 50 us). The clock ends after the push of t-1
 * has been answered and before that of t is sent; its answers are taken when the next one ends.
 *
 * Rows are padded to 16 floats; the padding is zero and stays zero. Loss is measured in one window
 * of eight, and only when somebody listens; measuring changes no bit of the rows.
 *
 * Threads: one. Memory: eight matrices of the rows that a batch can touch; untouched pages cost
 * none.
 */
#include "worker/train/trainer.h"

#include "common/alloc.h"
#include "common/vectors.h"
#include "worker/client.h"
#include "worker/programs/client_error.h"
#include "worker/train/lookahead.h"
#include "worker/train/train_checkpoint.h"

#include <string.h>

#define STEP_WINDOWS 32u
#define LOSS_WINDOWS 8u
#define PREFETCH_ROWS 6u
#define WARM_UP 8u /* batches */

/* The rows of one table that one batch in flight touches. */
typedef struct side {
    embps_table_t *table;
    float *base; /* [capacity, stride] as pulled, own deltas of the batch before added; once
                    pushed, the deltas */
    float *rows; /* [capacity, stride] as trained */
    embps_request_t *pull;
} side_t;

typedef struct flight {
    psw_train_batch_t *batch; /* the lookahead's */
    side_t in, out;
} flight_t;

typedef struct trainer {
    const psw_trainer_options_t *options;
    size_t dim, stride;
    psw_lookahead_t *ahead;
    uint64_t clock; /* of the client */
    flight_t flights[2];
    embps_request_t *pushes[2]; /* of the batch before */
    embps_request_t *ended;     /* the clock that ended last; NULL: it was waited for */
    psw_local_t local;
    psw_model_fn train;
    psw_train_counts_t counts;
    uint64_t pushed_words; /* of batches whose push was started */
    uint64_t done;         /* batches that were trained, those of former runs too */
    psw_train_checkpoint_t checkpoint;
} trainer_t;

/* Context of the filler of a push. */
typedef struct deltas {
    const side_t *side;
    size_t dim, stride;
} deltas_t;

psc_status_t psw_tables_open(embps_client_t *client, const psw_tables_options_t *wanted,
                             psw_tables_t *tables_out, psc_error_t *error)
{
    embps_error_t what;
    embps_table_options_t options = EMBPS_TABLE_OPTIONS_DEFAULT;
    psw_tables_t tables;
    options.dim = wanted->dim;
    options.seed = wanted->seed;
    options.precision = wanted->precision;
    options.pull_format = wanted->pull_format;
    options.push_format = wanted->push_format;
    /*
     * Twice the range of the original tool, as gensim has it. On an encyclopedia of 5.6 M words
     * that was worth 0.01 of MEN and 0.01 of WordSim-353 to CBOW at rate 0.025, and 0.005 to
     * skip-gram.
     */
    options.init = "uniform";
    options.n_init_params = 2;
    options.init_params[0] = -1.0 / wanted->dim;
    options.init_params[1] = 1.0 / wanted->dim;
    if (embps_table_open(client, PSW_TABLE_IN, &options, &tables.in, &what) != 0)
        return psw_error_import(&what, error);
    options.init = "zeros";
    options.n_init_params = 0;
    if (embps_table_open(client, PSW_TABLE_OUT, &options, &tables.out, &what) != 0)
        return psw_error_import(&what, error);
    *tables_out = tables;
    return PSC_OK;
}

/* ---- making and freeing ---- */

static bool side_create(side_t *side, embps_table_t *table, size_t n_rows, size_t stride)
{
    size_t floats, bytes;
    if (!psc_size_multiply(n_rows, stride, &floats) ||
        !psc_size_multiply(floats, sizeof(float), &bytes))
        return false;
    side->table = table;
    side->base = psc_alloc_huge(bytes);
    side->rows = psc_alloc_huge(bytes);
    return side->base != NULL && side->rows != NULL;
}

static void side_destroy(side_t *side)
{
    psc_free(side->base);
    psc_free(side->rows);
}

static void trainer_clear(trainer_t *trainer)
{
    psw_kernel_destroy(trainer->local.kernel);
    psc_free(trainer->local.input_pointers);
    psc_free(trainer->local.output_pointers);
    psw_lookahead_destroy(trainer->ahead);
    psw_train_checkpoint_clear(&trainer->checkpoint);
    for (size_t i = 0; i < 2; i++) {
        flight_t *flight = &trainer->flights[i];
        side_destroy(&flight->in);
        side_destroy(&flight->out);
    }
}

/* Tells the servers which rows a later batch will pull: one clock later for each batch between. */
static psc_status_t announce(void *context, const psw_train_batch_t *batch, uint32_t distance,
                             psc_error_t *error)
{
    const trainer_t *trainer = context;
    const psw_tables_t *tables = &trainer->options->tables;
    const psw_rows_t *in = &batch->input_rows, *out = &batch->output_rows;
    const uint64_t when = trainer->clock + distance;
    psc_status_t st = psw_prefetch(tables->in, in->ids, in->n, when, true, error);
    if (st == PSC_OK)
        st = psw_prefetch(tables->out, out->ids, out->n, when, true, error);
    return st;
}

static psc_status_t trainer_init(trainer_t *trainer, const psw_trainer_options_t *options,
                                 psc_error_t *error)
{
    size_t max_inputs = (size_t)2 * options->window, max_outputs = (size_t)options->negative + 1;
    *trainer = (trainer_t){.options = options,
                           .dim = options->dim,
                           .counts = options->counts,
                           .pushed_words = options->counts.words,
                           .done = options->first_batch,
                           .checkpoint = {.client = options->client,
                                          .facts = options->facts,
                                          .vocab = options->vocab}};
    trainer->stride = (trainer->dim + 15) / 16 * 16;
    trainer->train = options->plain ? options->model->plain : options->model->matrix;
    psc_status_t st =
        psw_kernel_create(trainer->stride, max_inputs, max_outputs, &trainer->local.kernel, error);
    if (st == PSC_OK)
        st = psw_lookahead_create(options->builder, options->prefetch, announce, trainer,
                                  &trainer->ahead, error);
    for (size_t i = 0; st == PSC_OK && i < 2; i++) {
        flight_t *flight = &trainer->flights[i];
        const psw_train_batch_t *sample = psw_lookahead_sample(trainer->ahead);
        if (!side_create(&flight->in, options->tables.in, sample->input_rows.capacity,
                         trainer->stride) ||
            !side_create(&flight->out, options->tables.out, sample->output_rows.capacity,
                         trainer->stride))
            st = psc_error_set(error, PSC_NO_MEMORY, "out of memory for the rows of a batch");
    }
    trainer->local.stride = trainer->stride;
    trainer->local.negative = options->negative;
    trainer->local.input_pointers = psc_alloc_array(max_inputs, sizeof(float *));
    trainer->local.output_pointers = psc_alloc_array(max_outputs, sizeof(float *));
    if (st == PSC_OK &&
        (trainer->local.input_pointers == NULL || trainer->local.output_pointers == NULL))
        st = psc_error_set(error, PSC_NO_MEMORY, "out of memory for a window");
    if (st != PSC_OK)
        trainer_clear(trainer);
    return st;
}

/* ---- moving rows ---- */

static psc_status_t wait_for(embps_request_t **request, psc_error_t *error)
{
    embps_error_t what;
    embps_request_t *waited = *request;
    *request = NULL;
    return embps_wait(waited, &what) == 0 ? PSC_OK : psw_error_import(&what, error);
}

static psc_status_t start_pull(const trainer_t *trainer, side_t *side, const psw_rows_t *rows,
                               psc_error_t *error)
{
    if (rows->n == 0)
        return PSC_OK;
    return psw_pull_strided_start(side->table, rows->ids, rows->n, side->base, trainer->stride,
                                  &side->pull, error);
}

/* Asks for the rows of a batch. */
static psc_status_t start_pulls(trainer_t *trainer, flight_t *flight, psc_error_t *error)
{
    psc_status_t st = start_pull(trainer, &flight->in, &flight->batch->input_rows, error);
    if (st == PSC_OK)
        st = start_pull(trainer, &flight->out, &flight->batch->output_rows, error);
    trainer->counts.rows += flight->batch->input_rows.n + flight->batch->output_rows.n;
    return st;
}

static psc_status_t build(const trainer_t *trainer, flight_t *flight, bool *more_out,
                          psc_error_t *error)
{
    return psw_lookahead_next(trainer->ahead, &flight->batch, more_out, error);
}

/* Builds the next batch and asks for its rows. */
static psc_status_t prepare(trainer_t *trainer, flight_t *flight, bool *more_out,
                            psc_error_t *error)
{
    psc_status_t st = build(trainer, flight, more_out, error);
    return st == PSC_OK && *more_out ? start_pulls(trainer, flight, error) : st;
}

/* Asks for a row's cache lines: rows of the batch before are met in no order. */
static inline void prefetch_row(const float *row, size_t stride)
{
    for (size_t k = 0; k < stride; k += 16)
        __builtin_prefetch(row + k);
}

/* base += own deltas of the batch before; rows = base. deltas: of the same table there, or NULL. */
static void settle(const trainer_t *trainer, side_t *side, const psw_rows_t *rows,
                   const float *deltas)
{
    size_t dim = trainer->dim, stride = trainer->stride;
    for (uint32_t i = 0; i < rows->n; i++) {
        float *base = side->base + i * stride, *row = side->rows + i * stride;
        uint32_t ahead =
            i + PREFETCH_ROWS < rows->n ? rows->previous[i + PREFETCH_ROWS] : PSW_SLOT_NONE;
        if (deltas != NULL && ahead != PSW_SLOT_NONE)
            prefetch_row(deltas + ahead * stride, stride);
        if (deltas != NULL && rows->previous[i] != PSW_SLOT_NONE)
            psc_vector_add(base, deltas + rows->previous[i] * stride, dim);
        memcpy(row, base, dim * sizeof *row);
        memset(row + dim, 0, (stride - dim) * sizeof *row);
    }
}

/* The deltas stay in base, where the next batch finds them. */
static void fill_delta(void *context, size_t i, float *row)
{
    const deltas_t *deltas = context;
    size_t at = i * deltas->stride;
    float *delta = deltas->side->base + at;
    psc_vector_subtract(delta, deltas->side->rows + at, delta, deltas->dim);
    memcpy(row, delta, deltas->dim * sizeof *row);
}

/*
 * What a push was refused for, in the words of a training: where a value in it is not finite.
 * error: or NULL.
 */
static psc_status_t explain(const trainer_t *trainer, psc_status_t st, psc_error_t *error)
{
    if (st != PSC_INVALID_ARGUMENT || error == NULL || strstr(error->message, "not finite") == NULL)
        return st;
    psc_error_t why = *error;
    (void)psc_error_set(error, st, "the training diverged (rate %.5g): lower --alpha; %s",
                        trainer->counts.rate, why.message);
    error->rank = why.rank;
    error->id = why.id;
    return st;
}

static psc_status_t start_push(const trainer_t *trainer, const side_t *side, const psw_rows_t *rows,
                               embps_request_t **request_out, psc_error_t *error)
{
    if (rows->n == 0)
        return PSC_OK;
    deltas_t deltas = {.side = side, .dim = trainer->dim, .stride = trainer->stride};
    psc_status_t st = psw_push_fill_start(side->table, EMBPS_DELTA, rows->ids, rows->n, fill_delta,
                                          &deltas, 0, request_out, error);
    return explain(trainer, st, error);
}

static psc_status_t wait_for_pushes(trainer_t *trainer, psc_error_t *error)
{
    psc_status_t st = wait_for(&trainer->pushes[0], error);
    psc_status_t second = wait_for(&trainer->pushes[1], st == PSC_OK ? error : NULL);
    return explain(trainer, st != PSC_OK ? st : second, error);
}

/* ---- training ---- */

/* Lets messages of the next batch's pulls move. */
static psc_status_t step(const flight_t *next, bool *done, psc_error_t *error)
{
    embps_error_t what;
    embps_request_t *last = next->out.pull != NULL ? next->out.pull : next->in.pull;
    *done = true;
    if (last != NULL && embps_test(last, done, &what) != 0)
        return psw_error_import(&what, error);
    return PSC_OK;
}

/*
 * Asks for the rows that the next window brings in: its outputs and the context word at its far
 * end. The rows of a batch fill the last-level cache, and without this the kernel waits for them.
 */
static void prefetch_window(const psw_local_t *local, const psw_window_t *window)
{
    const psw_train_batch_t *batch = local->batch;
    size_t stride = local->stride;
    prefetch_row(local->inputs + batch->words[window->last] * stride, stride);
    for (uint32_t k = 0; k <= local->negative; k++) {
        uint32_t slot = batch->outputs[window->outputs + k];
        if (slot != PSW_SLOT_NONE)
            prefetch_row(local->outputs + slot * stride, stride);
    }
}

/* All windows of a batch; next: the batch whose pulls are under way, or NULL. */
static psc_status_t train(trainer_t *trainer, const flight_t *flight, const flight_t *next,
                          psc_error_t *error)
{
    const psw_train_batch_t *batch = flight->batch;
    psw_train_counts_t *counts = &trainer->counts;
    bool measures = trainer->options->report != NULL, done = next == NULL;
    trainer->local.batch = batch;
    trainer->local.inputs = flight->in.rows;
    trainer->local.outputs = flight->out.rows;
    for (uint32_t i = 0; i < batch->n_windows; i++) {
        const psw_window_t *window = &batch->windows[i];
        bool measure = measures && i % LOSS_WINDOWS == 0;
        if (i + 1 < batch->n_windows)
            prefetch_window(&trainer->local, window + 1);
        float loss = trainer->train(&trainer->local, window, measure);
        if (measure) {
            counts->loss += (double)loss;
            counts->loss_pairs += window->last - window->first;
        }
        if (!done && i % STEP_WINDOWS == STEP_WINDOWS - 1) {
            psc_status_t st = step(next, &done, error);
            if (st != PSC_OK)
                return st;
        }
    }
    counts->words += batch->raw_words;
    counts->windows += batch->n_windows;
    if (batch->n_windows > 0)
        counts->rate = (double)batch->windows[batch->n_windows - 1].rate;
    return PSC_OK;
}

static void report(trainer_t *trainer)
{
    const psw_trainer_options_t *options = trainer->options;
    trainer->clock++;
    if (options->report != NULL) {
        embps_traffic(options->client, &trainer->counts.bytes_sent,
                      &trainer->counts.bytes_received);
        options->report(options->report_context, &trainer->counts);
    }
}

/* At first servers do not know what every worker had trained before. */
static void see_words(psw_train_counts_t *counts)
{
    if (counts->total_words < counts->resumed_words)
        counts->total_words = counts->resumed_words;
}

/* Takes the answers to the end of the clock before, if there was one. error: or NULL. */
static psc_status_t finish_clock(trainer_t *trainer, psc_error_t *error)
{
    embps_request_t *ended = trainer->ended;
    trainer->ended = NULL;
    if (ended == NULL)
        return PSC_OK;
    psc_status_t st = psw_client_clock_finish(trainer->options->client, ended,
                                              &trainer->counts.total_words, error);
    see_words(&trainer->counts);
    return st;
}

/* Ends a clock; all pushes of it were answered. Nobody waits for the answers to that: how far all
 * workers are is known a batch later. */
static psc_status_t pass_clock(trainer_t *trainer, psc_error_t *error)
{
    psc_status_t st = finish_clock(trainer, error);
    if (st == PSC_OK)
        st = psw_client_clock_start(trainer->options->client, trainer->pushed_words,
                                    &trainer->ended, error);
    if (st == PSC_OK)
        report(trainer);
    return st;
}

/* The same, waiting for it. */
static psc_status_t end_clock(trainer_t *trainer, bool last, psc_error_t *error)
{
    const psw_trainer_options_t *options = trainer->options;
    uint64_t *total = &trainer->counts.total_words;
    embps_error_t what;
    psc_status_t st = finish_clock(trainer, error);
    if (st != PSC_OK)
        return st;
    int failed = last ? embps_last_clock(options->client, trainer->pushed_words, total, &what)
                      : embps_clock(options->client, trainer->pushed_words, total, &what);
    if (failed != 0)
        return psw_error_import(&what, error);
    see_words(&trainer->counts);
    report(trainer);
    return PSC_OK;
}

/* Waits for the rows of a batch; before: the batch before, or NULL. Afterwards that one is free. */
static psc_status_t arrive(trainer_t *trainer, flight_t *flight, const flight_t *before,
                           psc_error_t *error)
{
    psc_status_t st = wait_for(&flight->in.pull, error);
    if (st == PSC_OK)
        st = wait_for(&flight->out.pull, error);
    if (st != PSC_OK)
        return st;
    const psw_train_batch_t *batch = flight->batch;
    settle(trainer, &flight->in, &batch->input_rows, before != NULL ? before->in.base : NULL);
    settle(trainer, &flight->out, &batch->output_rows, before != NULL ? before->out.base : NULL);
    return PSC_OK;
}

static psc_status_t start_pushes(trainer_t *trainer, const flight_t *flight, psc_error_t *error)
{
    const psw_train_batch_t *batch = flight->batch;
    psc_status_t st =
        start_push(trainer, &flight->in, &batch->input_rows, &trainer->pushes[0], error);
    if (st == PSC_OK)
        st = start_push(trainer, &flight->out, &batch->output_rows, &trainer->pushes[1], error);
    trainer->counts.rows += batch->input_rows.n + batch->output_rows.n;
    trainer->pushed_words = trainer->counts.words;
    return st;
}

psc_status_t psw_trainer_look_for_stop(const psw_trainer_options_t *options, psc_error_t *error)
{
    if (options->polls_signals)
        psw_stop_poll(options->stop);
    return psw_stop_requested(options->stop)
               ? psc_error_set(error, PSC_INTERRUPTED, "stopped by a signal")
               : PSC_OK;
}

/* ---- checkpoints ---- */

/* All servers cut here. */
static psc_status_t cut(trainer_t *trainer, psc_error_t *error)
{
    const psw_position_t position = {.batches = trainer->done,
                                     .words = trainer->counts.total_words,
                                     .lost = trainer->counts.resumed_lost};
    return psw_train_checkpoint_cut(&trainer->checkpoint, &position, error);
}

static bool is_due(const trainer_t *trainer, uint64_t done)
{
    const uint64_t every = trainer->options->checkpoint_batches;
    return every != 0 && done % every == 0;
}

/* Whoever has the same count pushes the same bits. */
static void count_pushes(const trainer_t *trainer)
{
    psw_table_count_pushes(trainer->options->tables.in, trainer->done);
    psw_table_count_pushes(trainer->options->tables.out, trainer->done);
}

/* How long deltas stay in the cache in the batch after `batch`: see flush_due. */
static void set_flush(const trainer_t *trainer, uint64_t batch)
{
    const psw_trainer_options_t *options = trainer->options;
    const uint64_t reached = 1 + batch / WARM_UP;
    embps_set_flush(options->client, reached < options->flush ? (uint32_t)reached : options->flush);
}

/* Ends a clock, and waits until all have ended it. */
static psc_status_t wait_for_all(trainer_t *trainer, psc_error_t *error)
{
    const psw_trainer_options_t *options = trainer->options;
    const uint64_t id = 0;
    embps_error_t what;
    psc_status_t st = end_clock(trainer, false, error);
    if (st != PSC_OK)
        return st;
    return embps_pull(options->tables.in, &id, 1, trainer->flights[0].in.base, &what) == 0
               ? PSC_OK
               : psw_error_import(&what, error);
}

/* Between two batches, where workers are not in step. */
static psc_status_t meet(trainer_t *trainer, psc_error_t *error)
{
    const psw_trainer_options_t *options = trainer->options;
    embps_error_t what;
    psc_status_t st = wait_for_pushes(trainer, error);
    if (st == PSC_OK)
        st = finish_clock(trainer, error);
    if (st == PSC_OK && embps_set_cache(options->client, options->cache_bytes, &what) != 0)
        st = psw_error_import(&what, error);
    if (st != PSC_OK)
        return st;
    const bool alone = embps_worker_count(options->client) == 1;
    embps_set_staleness(options->client, 0);
    st = end_clock(trainer, false, error); /* tells what was pushed, which the cut is to have */
    if (st == PSC_OK)
        st = cut(trainer, error);
    if (st == PSC_OK && !alone)
        st = wait_for_all(trainer, error);
    embps_set_staleness(options->client, options->staleness);
    count_pushes(trainer);
    return st == PSC_OK ? psw_lookahead_announce_again(trainer->ahead, error) : st;
}

/* Batch after batch, each in step with the other workers. */
static psc_status_t run_in_step(trainer_t *trainer, psc_error_t *error)
{
    bool more;
    psc_status_t st = build(trainer, &trainer->flights[0], &more, error);
    for (size_t t = 0; st == PSC_OK && more; t++) {
        flight_t *flight = &trainer->flights[t & 1], *next = &trainer->flights[(t + 1) & 1];
        st = psw_trainer_look_for_stop(trainer->options, error);
        if (st == PSC_OK)
            st = start_pulls(trainer, flight, error);
        if (st == PSC_OK)
            st = arrive(trainer, flight, NULL, error);
        if (st == PSC_OK)
            st = train(trainer, flight, NULL, error);
        if (st == PSC_OK)
            st = start_pushes(trainer, flight, error);
        if (st == PSC_OK)
            st = build(trainer, next, &more, error);
        if (st == PSC_OK)
            st = wait_for_pushes(trainer, error);
        if (st == PSC_OK && more)
            st = end_clock(trainer, false, error);
        trainer->done++;
        if (st == PSC_OK)
            st = psw_train_checkpoint_step(&trainer->checkpoint, error);
        if (st != PSC_OK || !more || !is_due(trainer, trainer->done))
            continue;
        count_pushes(trainer);
        st = cut(trainer, error);
    }
    return st;
}

/*
 * What the cache has to send in this clock leaves now, so that its end does not wait for it. The
 * first batches are sent as they are, then the period grows by one for every WARM_UP of them: steps
 * are largest when training begins, and workers who do not see each other's then overshoot.
 */
static psc_status_t flush_due(const trainer_t *trainer, psc_error_t *error)
{
    const psc_status_t st = psw_flush_due(trainer->options->client, error);
    set_flush(trainer, trainer->done);
    return explain(trainer, st, error);
}

static psc_status_t run_piped(trainer_t *trainer, psc_error_t *error)
{
    const flight_t *before = NULL;
    bool more;
    psc_status_t st = prepare(trainer, &trainer->flights[0], &more, error);
    for (size_t t = 0; st == PSC_OK && more; t++) {
        flight_t *flight = &trainer->flights[t & 1], *next = &trainer->flights[(t + 1) & 1];
        const bool due = is_due(trainer, trainer->done + 1);
        st = psw_trainer_look_for_stop(trainer->options, error);
        if (st == PSC_OK)
            st = arrive(trainer, flight, before, error);
        if (st == PSC_OK && !due)
            st = prepare(trainer, next, &more, error);
        if (st == PSC_OK)
            st = train(trainer, flight, more && !due ? next : NULL, error);
        if (st == PSC_OK)
            st = wait_for_pushes(trainer, error);
        if (st == PSC_OK)
            st = pass_clock(trainer, error);
        if (st == PSC_OK)
            st = start_pushes(trainer, flight, error);
        if (st == PSC_OK)
            st = flush_due(trainer, error);
        trainer->done++;
        before = due ? NULL : flight;
        if (st == PSC_OK)
            st = psw_train_checkpoint_step(&trainer->checkpoint, error);
        if (st == PSC_OK && due)
            st = meet(trainer, error);
        if (st == PSC_OK && due)
            st = prepare(trainer, next, &more, error);
    }
    return st == PSC_OK ? wait_for_pushes(trainer, error) : st;
}

static psc_status_t run(trainer_t *trainer, psc_error_t *error)
{
    const uint32_t staleness = trainer->options->staleness;
    embps_error_t what;
    embps_set_staleness(trainer->options->client, staleness);
    if (embps_set_cache(trainer->options->client, trainer->options->cache_bytes, &what) != 0)
        return psw_error_import(&what, error);
    if (trainer->done != 0) {
        count_pushes(trainer);
        set_flush(trainer, trainer->done - 1);
    }
    psc_status_t st = staleness == 0 ? run_in_step(trainer, error) : run_piped(trainer, error);
    if (st == PSC_OK)
        st = end_clock(trainer, true, error);
    if (st == PSC_OK)
        st = psw_train_checkpoint_finish(&trainer->checkpoint, error);
    embps_set_staleness(trainer->options->client, 0); /* to see what all have pushed */
    return st;
}

psc_status_t psw_trainer_run(const psw_trainer_options_t *options, psw_train_counts_t *counts_out,
                             psc_error_t *error)
{
    trainer_t trainer;
    psc_status_t st = trainer_init(&trainer, options, error);
    if (st != PSC_OK)
        return st;
    st = run(&trainer, error);
    /* After an error requests may be left, and they write into our rows. */
    for (size_t i = 0; i < 2; i++) {
        (void)!wait_for(&trainer.flights[i].in.pull, NULL);
        (void)!wait_for(&trainer.flights[i].out.pull, NULL);
    }
    psc_status_t left = wait_for_pushes(&trainer, st == PSC_OK ? error : NULL);
    if (st == PSC_OK)
        st = left;
    left = finish_clock(&trainer, st == PSC_OK ? error : NULL);
    if (st == PSC_OK)
        st = left;
    *counts_out = trainer.counts;
    trainer_clear(&trainer);
    return st;
}
