/*
 * The phases, and what ends them:
 *
 *     IDLE -> CUTTING      begin: image and cut at this moment; the BEGIN job goes off
 *     IDLE -> OPENING -> OPEN   open: the BEGIN job goes off, and came back
 *     OPEN -> CUTTING      cut: as begin, but for that job
 *     CUTTING -> WRITING   all rows are written, the cold tier is saved, BEGIN came back: FINISH
 *     WRITING -> SAVED     FINISH came back
 *     SAVED <-> STORING    a STATE job
 *     SAVED -> COMMITTING -> IDLE
 *     any but IDLE -> ABANDONING -> IDLE   a job or the cut failed, or the client gave it up
 *     any -> FAILED -> ABANDONING          the same of the server's own, which others may still be
 *                                          writing at: the server gives it up
 *
 * A failure while rows are cut first carries the cut to its end (the store's marks must go), with
 * nothing more handed out. Jobs of rows that are under way come back in any case. The memory of the
 * image is charged to the rows' budget by the cut, and freed when it is written.
 *
 * Owner thread only; no I/O. Cost of a poll without a checkpoint: a test.
 */
#include "ps/table/saver.h"

#include "common/alloc.h"
#include "ps/table/saver_image.h"
#include "ps/table/shard_state.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* How long a borrower may take for a step: no other checkpoint is made meanwhile. */
#define LOAN_US UINT64_C(60000000)

static void submit(ps_saver_t *saver, ps_save_kind_t kind)
{
    ps_save_job_t *job = &saver->job;
    job->kind = kind;
    job->error = (psc_error_t)PSC_ERROR_INIT;
    memcpy(job->name, saver->name, sizeof job->name);
    job->image = &saver->image;
    job->partial = saver->partial;
    saver->writer->submit(saver->writer->context, job);
}

static void free_image(ps_saver_t *saver)
{
    psc_free(saver->image.part);
    psc_free(saver->image.growth);
    saver->image = (ps_save_image_t){0};
}

void ps_saver_clear(ps_shard_t *shard)
{
    free_image(&shard->saver);
    psc_free(shard->saver.read.room);
}

bool ps_saver_may_cut(const ps_shard_t *shard)
{
    return !shard->summing;
}

/* From within the cut. */
static void write_piece(void *context, ps_cut_piece_t *piece)
{
    ps_saver_t *saver = context;
    size_t i = 0;
    while (saver->rows_used[i]) /* there are as many as pieces */
        i++;
    saver->rows_used[i] = true;
    saver->rows[i].kind = PS_SAVE_ROWS;
    saver->rows[i].error = (psc_error_t)PSC_ERROR_INIT;
    saver->rows[i].piece = piece;
    saver->writer->submit(saver->writer->context, &saver->rows[i]);
}

/* Whether one may begin. */
static psc_status_t check_free(const ps_saver_t *saver, psc_error_t *error)
{
    if (saver->writer == NULL)
        return psc_error_set(error, PSC_UNSUPPORTED,
                             "this server makes no checkpoints: start it with --checkpoints DIR");
    if (saver->phase != PS_SAVER_IDLE || saver->own)
        return psc_error_set(error, PSC_BUSY, "another checkpoint is under way");
    return PSC_OK;
}

static void set_out(ps_saver_t *saver, const char *name, uint64_t session)
{
    (void)snprintf(saver->name, sizeof saver->name, "%s", name);
    saver->session = session;
    saver->own = session == 0;
    saver->state_bytes = saver->vocabulary_bytes = saver->part_bytes = 0;
    saver->begun = false;
    saver->result = (psc_error_t)PSC_ERROR_INIT;
}

static psc_status_t cut_rows(ps_shard_t *shard, psc_error_t *error)
{
    ps_saver_t *saver = &shard->saver;
    const ps_cut_options_t options = {.folder = saver->writer->staging,
                                      .extra_bytes = ps_saver_image_bytes(shard),
                                      .partial = saver->base,
                                      .give = write_piece,
                                      .context = saver};
    psc_status_t st = ps_store_cut_begin(shard->options.store, &options, error);
    if (st != PSC_OK)
        return st;
    ps_logger_cut(shard);
    saver->began_us = shard->now_us;
    saver->partial = ps_store_cut_is_partial(shard->options.store);
    saver->base = false;
    saver->phase = PS_SAVER_CUTTING;
    return PSC_OK;
}

/* What belongs to the cut beside its rows; without it the cut must still end. */
static bool make_image(ps_shard_t *shard)
{
    ps_saver_t *saver = &shard->saver;
    if (ps_saver_image_make(shard, &saver->image, &saver->result) == PSC_OK)
        return true;
    ps_store_cut_abandon(shard->options.store);
    return false;
}

psc_status_t ps_saver_begin(ps_shard_t *shard, const char *name, uint64_t session,
                            psc_error_t *error)
{
    ps_saver_t *saver = &shard->saver;
    psc_status_t st = check_free(saver, error);
    if (st == PSC_OK)
        st = cut_rows(shard, error);
    if (st != PSC_OK)
        return st;
    set_out(saver, name, session);
    if (make_image(shard))
        submit(saver, PS_SAVE_BEGIN);
    else
        saver->begun = true; /* no job will come back */
    return PSC_OK;
}

psc_status_t ps_saver_open(ps_shard_t *shard, const char *name, psc_error_t *error)
{
    ps_saver_t *saver = &shard->saver;
    psc_status_t st = check_free(saver, error);
    if (st != PSC_OK)
        return st;
    set_out(saver, name, 0);
    saver->phase = PS_SAVER_OPENING;
    submit(saver, PS_SAVE_BEGIN);
    return PSC_OK;
}

psc_status_t ps_saver_cut(ps_shard_t *shard, psc_error_t *error)
{
    psc_status_t st = cut_rows(shard, error);
    if (st == PSC_OK)
        (void)make_image(shard);
    return st;
}

void ps_saver_state(ps_shard_t *shard, const uint8_t *bytes, size_t n)
{
    ps_saver_t *saver = &shard->saver;
    saver->phase = PS_SAVER_STORING;
    saver->job.bytes = bytes;
    saver->job.n = n;
    saver->job.vocabulary = false;
    saver->state_bytes += n;
    submit(saver, PS_SAVE_STATE);
}

void ps_saver_vocabulary(ps_shard_t *shard, const uint8_t *bytes, size_t n, uint64_t whole_bytes,
                         uint64_t checksum)
{
    ps_saver_t *saver = &shard->saver;
    saver->phase = PS_SAVER_STORING;
    saver->job.bytes = bytes;
    saver->job.n = whole_bytes == 0 ? n : 0;
    saver->job.vocabulary = true;
    saver->job.size = whole_bytes;
    saver->job.checksum = checksum;
    saver->vocabulary_bytes += saver->job.n;
    submit(saver, PS_SAVE_STATE);
}

void ps_saver_commit(ps_shard_t *shard)
{
    shard->saver.phase = PS_SAVER_COMMITTING;
    submit(&shard->saver, PS_SAVE_COMMIT);
}

void ps_saver_abandon(ps_shard_t *shard)
{
    shard->saver.phase = PS_SAVER_ABANDONING;
    submit(&shard->saver, PS_SAVE_ABANDON);
}

void ps_saver_give_up(ps_shard_t *shard)
{
    ps_saver_t *saver = &shard->saver;
    if (saver->phase == PS_SAVER_SAVED) {
        ps_saver_abandon(shard);
        return;
    }
    if (saver->result.code == PSC_OK)
        (void)psc_error_set(&saver->result, PSC_INTERRUPTED, "the checkpoint was given up");
    if (saver->phase == PS_SAVER_CUTTING)
        ps_store_cut_abandon(shard->options.store); /* step_cut goes on when that is over */
}

static bool is_live(const ps_shard_t *shard, uint64_t session)
{
    for (uint32_t i = 0; i < shard->sessions.n_all; i++) {
        if (shard->sessions.all[i].id == session)
            return shard->sessions.all[i].state == PS_SESSION_LIVE;
    }
    return false;
}

bool ps_saver_read(ps_shard_t *shard, const char *name, uint64_t offset, uint64_t session)
{
    ps_saver_t *saver = &shard->saver;
    ps_save_job_t *job = &saver->read;
    if (saver->reading || (saver->read_session != 0 && saver->read_session != session &&
                           is_live(shard, saver->read_session)))
        return false;
    if (job->room == NULL)
        job->room = psc_alloc(PS_SAVE_STATE_BYTES);
    if (job->room == NULL)
        return false;
    saver->reading = true;
    saver->read_session = session;
    job->kind = PS_SAVE_READ;
    job->error = (psc_error_t)PSC_ERROR_INIT;
    (void)snprintf(job->name, sizeof job->name, "%s", name);
    job->offset = offset;
    job->n = 0;
    saver->writer->submit(saver->writer->context, job);
    return true;
}

/* ---- loans ---- */

void ps_saver_offer(ps_shard_t *shard)
{
    shard->saver.lends = true;
}

psc_status_t ps_saver_borrow(ps_shard_t *shard, uint64_t session, bool *asked_out,
                             psc_error_t *error)
{
    ps_saver_t *saver = &shard->saver;
    const bool others = saver->loan != PS_LOAN_NONE && saver->loan_session != session;
    if (others && is_live(shard, saver->loan_session))
        return psc_error_set(error, PSC_BUSY, "another checkpoint is under way");
    if (saver->loan == PS_LOAN_LENT && saver->phase == PS_SAVER_SAVED)
        ps_saver_abandon(shard); /* begun and left */
    /* One that is being made may have been cut before what the session has done since. */
    *asked_out = saver->loan == PS_LOAN_NONE || saver->loan == PS_LOAN_FAILED ||
                 (saver->loan == PS_LOAN_ASKED && !others);
    if (*asked_out) {
        saver->loan = PS_LOAN_ASKED;
        saver->loan_session = session;
    }
    return PSC_OK;
}

bool ps_saver_is_wanted(ps_shard_t *shard)
{
    if (shard->saver.loan != PS_LOAN_ASKED)
        return false;
    shard->saver.loan = PS_LOAN_MAKING;
    return true;
}

void ps_saver_lend(ps_shard_t *shard)
{
    ps_saver_t *saver = &shard->saver;
    PSC_BUG_ON(saver->phase != PS_SAVER_SAVED || !saver->own || saver->loan != PS_LOAN_MAKING);
    saver->loan = PS_LOAN_LENT;
    saver->loan_us = shard->now_us;
    saver->session = saver->loan_session;
    shard->room_changed = true;
}

void ps_saver_refuse(ps_shard_t *shard, const psc_error_t *why)
{
    ps_saver_t *saver = &shard->saver;
    PSC_BUG_ON(saver->loan != PS_LOAN_MAKING);
    saver->loan = PS_LOAN_FAILED;
    saver->loan_error = *why;
    shard->room_changed = true;
}

bool ps_saver_is_orphan(const ps_shard_t *shard)
{
    const ps_saver_t *saver = &shard->saver;
    const bool left = saver->loan == PS_LOAN_LENT && shard->now_us - saver->loan_us >= LOAN_US;
    return saver->phase == PS_SAVER_SAVED && saver->session != 0 &&
           (left || !is_live(shard, saver->session));
}

ps_saver_phase_t ps_saver_look(const ps_shard_t *shard, psc_error_t *result_out,
                               const char **name_out, uint64_t *part_bytes_out)
{
    *result_out = shard->saver.result;
    *name_out = shard->saver.name;
    *part_bytes_out = shard->saver.part_bytes;
    return shard->saver.phase;
}

void ps_saver_release(ps_shard_t *shard)
{
    shard->saver.own = false;
    if (shard->saver.loan == PS_LOAN_LENT)
        shard->saver.loan = PS_LOAN_NONE;
    shard->room_changed = true; /* a client may wait to begin one */
}

/* ---- what is finished ---- */

static void give_up(ps_shard_t *shard)
{
    if (shard->saver.own)
        shard->saver.phase = PS_SAVER_FAILED;
    else
        ps_saver_abandon(shard);
}

static void fail(ps_shard_t *shard, const psc_error_t *why)
{
    ps_saver_t *saver = &shard->saver;
    if (saver->result.code == PSC_OK)
        saver->result = *why;
    if (saver->phase == PS_SAVER_CUTTING)
        ps_store_cut_abandon(shard->options.store); /* step_cut goes on when that is over */
    else
        give_up(shard);
}

static void end(ps_saver_t *saver)
{
    saver->phase = PS_SAVER_IDLE;
    if (saver->result.code == PSC_OK)
        saver->n_made++;
    else
        saver->n_failed++;
}

/* The job that changes phases came back. */
static void take_job(ps_shard_t *shard)
{
    ps_saver_t *saver = &shard->saver;
    const ps_save_job_t *job = &saver->job;
    if (job->kind == PS_SAVE_ABANDON) { /* what could not be removed, the next start removes */
        if (saver->result.code == PSC_OK)
            (void)psc_error_set(&saver->result, PSC_INTERRUPTED, "the checkpoint was given up");
        end(saver);
        return;
    }
    if (job->kind == PS_SAVE_BEGIN) {
        saver->begun = true;
        memcpy(saver->name, job->name, sizeof saver->name);
    }
    if (job->kind == PS_SAVE_FINISH)
        free_image(saver);
    if (job->error.code != PSC_OK) {
        fail(shard, &job->error);
    } else if (saver->phase == PS_SAVER_OPENING) {
        saver->phase = PS_SAVER_OPEN;
    } else if (job->kind == PS_SAVE_FINISH) {
        const uint64_t took_us = shard->now_us - saver->began_us;
        saver->longest_us = took_us > saver->longest_us ? took_us : saver->longest_us;
        saver->part_bytes = job->size;
        saver->partial = job->partial;
        saver->phase = PS_SAVER_SAVED;
        if (saver->result.code != PSC_OK)
            ps_saver_abandon(shard);
    } else if (job->kind == PS_SAVE_STATE) {
        saver->loan_us = shard->now_us;
        saver->vocabulary_bytes += job->vocabulary ? job->size : 0;
        saver->phase = PS_SAVER_SAVED;
    } else if (job->kind == PS_SAVE_COMMIT) {
        memcpy(saver->committed, saver->name, sizeof saver->committed);
        saver->base = saver->partial;
        ps_logger_commit(shard);
        end(saver);
    }
}

static void take_finished(ps_shard_t *shard, bool *progress_out)
{
    ps_saver_t *saver = &shard->saver;
    ps_save_job_t *job;
    while ((job = saver->writer->next(saver->writer->context)) != NULL) {
        *progress_out = true;
        if (job == &saver->read) {
            saver->reading = false;
        } else if (job == &saver->job) {
            take_job(shard);
        } else {
            saver->rows_used[job - saver->rows] = false;
            ps_store_cut_put(shard->options.store, job->piece);
            if (job->error.code != PSC_OK)
                fail(shard, &job->error);
        }
    }
}

/* The cut goes on, or has ended. */
static void step_cut(ps_shard_t *shard, bool *progress_out)
{
    ps_saver_t *saver = &shard->saver;
    psc_error_t fault = PSC_ERROR_INIT;
    ps_store_cut_step(shard->options.store, progress_out);
    const ps_cut_state_t state = ps_store_cut_state(shard->options.store, &fault);
    if (state == PS_CUT_GOES_ON || !saver->begun)
        return;
    *progress_out = true;
    ps_store_cut_end(shard->options.store);
    if (state == PS_CUT_FAILED && saver->result.code == PSC_OK)
        saver->result = fault;
    if (saver->result.code == PSC_OK) {
        saver->phase = PS_SAVER_WRITING;
        submit(saver, PS_SAVE_FINISH);
    } else {
        free_image(saver);
        give_up(shard);
    }
}

void ps_saver_step(ps_shard_t *shard, bool *progress_out)
{
    if (shard->saver.writer == NULL)
        return;
    take_finished(shard, progress_out);
    if (shard->saver.phase == PS_SAVER_CUTTING)
        step_cut(shard, progress_out);
}
