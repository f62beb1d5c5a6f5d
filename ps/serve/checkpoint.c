/*
 * Checkpoint: the steps that a client takes, each answered when it is on disk.
 *
 * The saver (ps/table/saver.h) does what is asked for; a request waits (WAIT_SAVE) and looks at it
 * again whenever something moved, unless it is detached: then it is answered when the step has
 * begun, and the session's later requests pass while disks work. Only the session that began a
 * checkpoint goes on with it; when that session has ended, the next one that wants a checkpoint
 * takes its place. One of the servers' own is waited for. One of all servers at one moment is made
 * by them, and borrowed when all parts are there. A failure of a checkpoint is its own: it
 * is told to who asked, and the shard goes on, also when it was one of memory or a disk.
 */
#include "ps/serve/serve.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* A failure of the checkpoint, which must not be the shard's. */
static psc_status_t tell(ps_shard_t *shard, ps_request_t *request, const psc_error_t *failure,
                         psc_error_t *error)
{
    request->state = PS_REQUEST_DONE;
    shard->counters.refused++;
    return ps_shard_reply_bare(shard, request, failure, error);
}

static psc_status_t reply(ps_shard_t *shard, ps_request_t *request, psc_error_t *error)
{
    psp_message_t message = {.kind = PSP_CHECKPOINT_REPLY};
    psp_checkpoint_reply_t *to = &message.u.checkpoint_reply;
    memcpy(to->name, shard->saver.name, sizeof to->name);
    to->state_bytes = request->message.u.checkpoint.vocabulary ? shard->saver.vocabulary_bytes
                                                               : shard->saver.state_bytes;
    return ps_shard_reply(shard, request, &message, error);
}

static psc_status_t wait(ps_request_t *request)
{
    request->state = PS_REQUEST_WAIT_SAVE;
    return PSC_OK;
}

static psc_status_t unknown(const psp_checkpoint_t *asked, psc_error_t *error)
{
    return psc_error_set(error, PSC_NOT_FOUND,
                         "no checkpoint %s of this session is under way: begin it again",
                         asked->name);
}

/* What a step needs: the checkpoint of this name, begun by this session. */
static psc_status_t check_own(const ps_saver_t *saver, const ps_session_t *session,
                              const psp_checkpoint_t *asked, psc_error_t *error)
{
    const bool early = saver->phase == PS_SAVER_CUTTING || saver->phase == PS_SAVER_WRITING;
    const bool fits =
        saver->phase == PS_SAVER_SAVED || (early && asked->step == PSP_CHECKPOINT_ABANDON);
    if (!fits || saver->session != session->id || strcmp(saver->name, asked->name) != 0)
        return unknown(asked, error);
    return PSC_OK;
}

static bool is_everywhere(const ps_shard_t *shard, const psp_checkpoint_t *asked)
{
    return shard->options.n_servers != 1 &&
           (asked->everywhere || asked->step == PSP_CHECKPOINT_WHOLE);
}

/* SAVE and WHOLE of all servers, when they come. */
static psc_status_t borrow(ps_shard_t *shard, const ps_session_t *session, ps_request_t *request,
                           psc_error_t *error)
{
    ps_saver_t *saver = &shard->saver;
    const psp_checkpoint_t *asked = &request->message.u.checkpoint;
    if (shard->options.rank != 0 || asked->detached || asked->in_step)
        return psc_error_set(error, PSC_INVALID_ARGUMENT,
                             "a checkpoint of all servers is asked for at the first one, neither "
                             "detached nor in step");
    if (saver->writer == NULL || !saver->lends)
        return psc_error_set(error, PSC_UNSUPPORTED, "this server makes no checkpoints%s",
                             saver->writer == NULL ? ": start it with --checkpoints DIR"
                                                   : " of all servers");
    psc_status_t st = ps_saver_borrow(shard, session->id, &request->saves, error);
    return st == PSC_OK ? wait(request) : st;
}

/* SAVE and WHOLE, when they come. */
static psc_status_t begin(ps_shard_t *shard, const ps_session_t *session, ps_request_t *request,
                          psc_error_t *error)
{
    ps_saver_t *saver = &shard->saver;
    const psp_checkpoint_t *asked = &request->message.u.checkpoint;
    if (asked->in_step && !ps_is_guest(&shard->sessions, request->buffer->peer) &&
        shard->clock < request->message.request.clock)
        return ps_shard_wait_clock(shard, session, request, error);
    if (is_everywhere(shard, asked))
        return borrow(shard, session, request, error);
    const bool own = saver->phase == PS_SAVER_SAVED && saver->session == session->id;
    if (own || ps_saver_is_orphan(shard)) {
        ps_saver_abandon(shard); /* begun and left; the request is tried again when that is over */
        return wait(request);
    }
    const bool given_up = saver->phase != PS_SAVER_IDLE && saver->result.code != PSC_OK;
    if (given_up || saver->phase == PS_SAVER_ABANDONING || (saver->own && !asked->detached) ||
        !ps_saver_may_cut(shard))
        return wait(request);
    psc_status_t st = ps_saver_begin(shard, asked->name, session->id, error);
    if (st == PSC_NO_MEMORY)
        return tell(shard, request, error, error);
    request->saves = st == PSC_OK;
    return st == PSC_OK ? wait(request) : st;
}

/* The same, once it is being made. */
static psc_status_t go_on(ps_shard_t *shard, ps_request_t *request, psc_error_t *error)
{
    ps_saver_t *saver = &shard->saver;
    const psp_checkpoint_t *asked = &request->message.u.checkpoint;
    if (is_everywhere(shard, asked) && saver->loan == PS_LOAN_FAILED) {
        saver->loan = PS_LOAN_NONE;
        return tell(shard, request, &saver->loan_error, error);
    }
    if (is_everywhere(shard, asked) && saver->loan != PS_LOAN_LENT && saver->loan != PS_LOAN_NONE)
        return wait(request);
    if (saver->phase == PS_SAVER_IDLE)
        return saver->result.code != PSC_OK ? tell(shard, request, &saver->result, error)
                                            : reply(shard, request, error);
    if (asked->detached && saver->begun && saver->result.code == PSC_OK)
        return reply(shard, request, error);
    if (saver->phase != PS_SAVER_SAVED)
        return wait(request);
    if (asked->step == PSP_CHECKPOINT_SAVE)
        return reply(shard, request, error);
    if (saver->state_bytes < asked->n)
        ps_saver_state(shard, asked->state, asked->n);
    else
        ps_saver_commit(shard);
    return wait(request);
}

/* STATE, COMMIT and ABANDON. */
static psc_status_t step(ps_shard_t *shard, const ps_session_t *session, ps_request_t *request,
                         psc_error_t *error)
{
    ps_saver_t *saver = &shard->saver;
    const psp_checkpoint_t *asked = &request->message.u.checkpoint;
    if (!request->saves) {
        psc_status_t st = check_own(saver, session, asked, error);
        if (st != PSC_OK)
            return st;
        const uint64_t next = asked->vocabulary ? saver->vocabulary_bytes : saver->state_bytes;
        if (asked->step == PSP_CHECKPOINT_STATE && asked->offset != next)
            return psc_error_set(error, PSC_INVALID_ARGUMENT,
                                 "a piece of the %s at %" PRIu64 ", but the next one is at "
                                 "%" PRIu64,
                                 asked->vocabulary ? "vocabulary" : "state", asked->offset, next);
        if (asked->vocabulary)
            ps_saver_vocabulary(shard, asked->state, asked->n, asked->whole_bytes, asked->checksum);
        else if (asked->step == PSP_CHECKPOINT_STATE)
            ps_saver_state(shard, asked->state, asked->n);
        else if (asked->step == PSP_CHECKPOINT_COMMIT)
            ps_saver_commit(shard);
        else
            ps_saver_give_up(shard);
        request->saves = true;
        return asked->detached && asked->step != PSP_CHECKPOINT_STATE ? reply(shard, request, error)
                                                                      : wait(request);
    }
    const bool over = saver->phase == PS_SAVER_IDLE ||
                      (saver->phase == PS_SAVER_SAVED && asked->step == PSP_CHECKPOINT_STATE);
    if (!over)
        return wait(request);
    if (saver->result.code != PSC_OK && asked->step != PSP_CHECKPOINT_ABANDON)
        return tell(shard, request, &saver->result, error);
    return reply(shard, request, error);
}

/* How far the checkpoint is that was begun last; one that was committed stays over whatever
 * follows.
 */
static psc_status_t look(ps_shard_t *shard, const ps_session_t *session, ps_request_t *request,
                         psc_error_t *error)
{
    const ps_saver_t *saver = &shard->saver;
    const psp_checkpoint_t *asked = &request->message.u.checkpoint;
    psp_message_t message = {.kind = PSP_CHECKPOINT_REPLY};
    psp_checkpoint_reply_t *to = &message.u.checkpoint_reply;
    memcpy(to->name, asked->name, sizeof to->name);
    to->over = strcmp(saver->committed, asked->name) == 0;
    if (!to->over) {
        if (saver->session != session->id || strcmp(saver->name, asked->name) != 0)
            return unknown(asked, error);
        if (saver->phase == PS_SAVER_IDLE)
            return tell(shard, request, &saver->result, error);
        to->over = saver->phase == PS_SAVER_SAVED;
        to->state_bytes = saver->state_bytes;
    }
    return ps_shard_reply(shard, request, &message, error);
}

static psc_status_t read_state(ps_shard_t *shard, const ps_session_t *session,
                               ps_request_t *request, psc_error_t *error)
{
    ps_saver_t *saver = &shard->saver;
    const psp_checkpoint_t *asked = &request->message.u.checkpoint;
    if (saver->writer == NULL)
        return psc_error_set(error, PSC_UNSUPPORTED,
                             "this server has no checkpoints: start it with --checkpoints DIR");
    if (!request->saves) {
        request->saves = ps_saver_read(shard, asked->name, asked->offset, session->id);
        return wait(request);
    }
    if (saver->reading)
        return wait(request);
    saver->read_session = 0;
    if (saver->read.error.code != PSC_OK)
        return tell(shard, request, &saver->read.error, error);
    psp_message_t message = {.kind = PSP_CHECKPOINT_REPLY};
    psp_checkpoint_reply_t *to = &message.u.checkpoint_reply;
    memcpy(to->name, saver->read.name, sizeof to->name);
    to->state_bytes = saver->read.size;
    to->n = saver->read.n;
    to->state = saver->read.bytes;
    return ps_shard_reply(shard, request, &message, error);
}

psc_status_t ps_serve_checkpoint(ps_shard_t *shard, ps_session_t *session, ps_request_t *request,
                                 psc_error_t *error)
{
    switch (request->message.u.checkpoint.step) {
    case PSP_CHECKPOINT_WHOLE:
    case PSP_CHECKPOINT_SAVE:
        return request->saves ? go_on(shard, request, error)
                              : begin(shard, session, request, error);
    case PSP_CHECKPOINT_READ:
        return read_state(shard, session, request, error);
    case PSP_CHECKPOINT_LOOK:
        return look(shard, session, request, error);
    case PSP_CHECKPOINT_STATE:
    case PSP_CHECKPOINT_COMMIT:
    case PSP_CHECKPOINT_ABANDON:
        break;
    }
    return step(shard, session, request, error);
}
