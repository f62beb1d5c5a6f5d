/*
 * Checkpoints: the client takes the servers through the steps of proto/embps.proto.
 *
 * One that is waited for: server 0 has all servers cut at one moment, and tells the name; the state
 * goes to server 0 in pieces, and server 0 commits. What this client pushed before has been
 * answered by then; deltas that a cache holds leave first. Servers may have been started again
 * just before, from where they do not have it, and server 0 alone may have nothing to tell of
 * that. So a guest asks the others when all is done: those that went back refuse, which it is told,
 * and the checkpoint is none of its own. When a step fails the servers are told
 * to give it up; what comes of that is not looked at, since servers whose client is gone do so by
 * themselves.
 *
 * One that is made while the client goes on: server 0 begins and gives the name, the others follow,
 * each cutting behind this client's earlier pushes, since messages to a server are served in the
 * order in which they were issued. Steps that disks make long are answered when they have begun.
 * Whether one is over is asked, one server after another; they work at the same time all the same.
 */
#include "common/clock.h"
#include "worker/cached_rows.h"
#include "worker/checkpoint_making.h"

#include <stdio.h>
#include <string.h>

_Static_assert(EMBPS_CHECKPOINT_NAME_BYTES == PSP_CHECKPOINT_NAME_MAX + 1,
               "names are as long in embps.h as on the wire");

#define PIECE_BYTES ((size_t)256 << 10)
#define LOOK_US UINT64_C(10000) /* between two looks of who waits */
#define GIVE_UP_US UINT64_C(500000)

/* One step at servers first to end - 1; reply_out: of the one that answered last, its state until
 * the next step; NULL: not wanted. */
static psc_status_t take_step(embps_client_t *client, const psp_checkpoint_t *step, uint32_t first,
                              uint32_t end, psp_checkpoint_reply_t *reply_out, void *state_out,
                              size_t room, psc_error_t *error)
{
    psw_request_t *request;
    psp_message_t message = {.kind = PSP_CHECKPOINT, .u.checkpoint = *step};
    psc_status_t st = psw_client_ask(client, &message, first, end, &request, error);
    if (st != PSC_OK)
        return st;
    st = psw_driver_wait(&client->driver, request, error);
    if (st == PSC_OK && request->error.code == PSC_OK && reply_out != NULL) {
        *reply_out = request->checkpoint;
        const size_t n = reply_out->n < room ? reply_out->n : room;
        if (n != 0 && state_out != NULL)
            memcpy(state_out, reply_out->state, n);
        reply_out->state = NULL;
    }
    const psc_status_t finished = psw_client_finish(client, request, st == PSC_OK ? error : NULL);
    return st != PSC_OK ? st : finished;
}

/* Pieces leave room for the small fields. */
static size_t piece_bytes(const embps_client_t *client)
{
    const size_t most = psw_core_max_message_bytes(client->driver.core) / 2;
    return most < PIECE_BYTES ? most : PIECE_BYTES;
}

static psc_status_t send_state(embps_client_t *client, psp_checkpoint_t *step, const uint8_t *state,
                               size_t n, psc_error_t *error)
{
    psc_status_t st = PSC_OK;
    step->step = PSP_CHECKPOINT_STATE;
    for (size_t done = 0; st == PSC_OK && done < n; done += step->n) {
        const size_t left = n - done, most = piece_bytes(client);
        step->offset = done;
        step->n = left < most ? left : most;
        step->state = state + done;
        st = take_step(client, step, 0, 1, NULL, NULL, 0, error);
    }
    step->n = 0;
    step->offset = 0;
    return st;
}

/* Only where the checkpoint before has others, or none. */
static psc_status_t send_words(embps_client_t *client, psp_checkpoint_t *step,
                               const psw_words_t *words, psc_error_t *error)
{
    psp_checkpoint_t piece = *step;
    psp_checkpoint_reply_t reply = {.state_bytes = 0};
    psc_status_t st = PSC_OK;
    if (words->n == 0)
        return PSC_OK;
    piece.step = PSP_CHECKPOINT_STATE;
    piece.vocabulary = true;
    piece.whole_bytes = words->n;
    piece.checksum = words->checksum;
    st = take_step(client, &piece, 0, 1, &reply, NULL, 0, error);
    if (st != PSC_OK || reply.state_bytes == words->n)
        return st;
    piece.whole_bytes = piece.checksum = 0;
    for (size_t done = 0; st == PSC_OK && done < words->n; done += piece.n) {
        const size_t left = words->n - done, most = piece_bytes(client);
        piece.offset = done;
        piece.n = left < most ? left : most;
        piece.state = words->bytes + done;
        st = take_step(client, &piece, 0, 1, NULL, NULL, 0, error);
    }
    return st;
}

/* SAVE at all servers, at each in its turn. */
static psc_status_t save(embps_client_t *client, psp_checkpoint_t *step, psc_error_t *error)
{
    const uint32_t n_servers = psw_core_n_servers(client->driver.core);
    psp_checkpoint_reply_t reply;
    step->step = PSP_CHECKPOINT_SAVE;
    psc_status_t st = take_step(client, step, 0, 1, &reply, NULL, 0, error);
    if (st != PSC_OK)
        return st;
    memcpy(step->name, reply.name, sizeof step->name);
    return n_servers > 1 ? take_step(client, step, 1, n_servers, NULL, NULL, 0, error) : PSC_OK;
}

/* why: it failed. Of a server that did not answer in time no answer is waited for once more as
 * long; all else that is under way has been for longer. */
static void give_up(embps_client_t *client, psp_checkpoint_t *step, psc_status_t why)
{
    psw_core_t *core = client->driver.core;
    psc_error_t ignored = PSC_ERROR_INIT;
    const uint64_t timeout_us = psw_core_timeout(core);
    const uint32_t n = step->everywhere ? 1 : psw_core_n_servers(core);
    if (why == PSC_TIMEOUT && timeout_us > GIVE_UP_US)
        psw_core_set_timeout(core, GIVE_UP_US);
    step->step = PSP_CHECKPOINT_ABANDON;
    step->n = 0;
    for (uint32_t s = 0; step->name[0] != '\0' && s < n; s++)
        (void)!take_step(client, step, s, s + 1, NULL, NULL, 0, &ignored);
    psw_core_set_timeout(core, timeout_us);
}

/* Whether the servers are those that have answered what came before. */
static psc_status_t confirm(embps_client_t *client, psc_error_t *error)
{
    const uint32_t n_servers = psw_core_n_servers(client->driver.core);
    psp_message_t message = {.kind = PSP_BARRIER}; /* to guests it is answered at once */
    psw_request_t *request;
    if (client->n_workers != 0 || n_servers == 1)
        return PSC_OK;
    psc_status_t st = psw_client_ask(client, &message, 1, n_servers, &request, error);
    return st == PSC_OK ? psw_client_finish(client, request, error) : st;
}

static psc_status_t make(embps_client_t *client, psp_checkpoint_t *step, const void *state,
                         size_t n, psc_error_t *error)
{
    psp_checkpoint_reply_t reply;
    psc_status_t st = psw_driver_wait_idle(&client->driver, error);
    step->step = PSP_CHECKPOINT_SAVE;
    step->everywhere = true;
    if (st == PSC_OK)
        st = take_step(client, step, 0, 1, &reply, NULL, 0, error);
    if (st != PSC_OK)
        return st;
    memcpy(step->name, reply.name, sizeof step->name);
    st = send_state(client, step, state, n, error);
    if (st != PSC_OK)
        return st;
    step->step = PSP_CHECKPOINT_COMMIT;
    st = take_step(client, step, 0, 1, NULL, NULL, 0, error);
    if (st != PSC_OK)
        return st;
    st = confirm(client, error);
    if (st != PSC_OK)
        step->name[0] = '\0'; /* nothing is left to be given up */
    return st;
}

int embps_checkpoint(embps_client_t *client, const void *state, size_t n, char *name_out,
                     embps_error_t *error)
{
    psc_error_t what = PSC_ERROR_INIT;
    psp_checkpoint_t step;
    if (client == NULL || (state == NULL && n != 0)) {
        (void)psc_error_set(&what, PSC_INVALID_ARGUMENT,
                            "embps_checkpoint needs a client, and n bytes of state");
        return psw_error_export(&what, error);
    }
    psc_status_t st = psw_cached_flush_all(client, &what);
    if (st != PSC_OK)
        return psw_error_export(&what, error);
    uint64_t relaid = psw_core_relaid(client->driver.core);
    do {
        step = (psp_checkpoint_t){.name = ""};
        st = make(client, &step, state, n, &what);
    } while (psw_client_again(client, st, &relaid));
    if (st != PSC_OK) {
        give_up(client, &step, st);
        return psw_error_export(&what, error);
    }
    if (name_out != NULL)
        (void)snprintf(name_out, EMBPS_CHECKPOINT_NAME_BYTES, "%s", step.name);
    return 0;
}

/* ---- while the client goes on ---- */

psc_status_t psw_making_begin(embps_client_t *client, bool in_step, const void *state, size_t n,
                              psw_making_t *making_out, psc_error_t *error)
{
    *making_out =
        (psw_making_t){.step = {.detached = true, .in_step = in_step}, .state = state, .n = n};
    psc_status_t st = psw_cached_flush_all(client, error);
    if (st != PSC_OK)
        return st;
    st = save(client, &making_out->step, error);
    if (st == PSC_OK)
        making_out->client = client;
    else
        give_up(client, &making_out->step, st);
    return st;
}

/* All parts are there: the state, and the end, which the first server's disk makes long. */
static psc_status_t begin_commit(psw_making_t *making, psc_error_t *error)
{
    psc_status_t st = send_words(making->client, &making->step, &making->words, error);
    if (st == PSC_OK)
        st = send_state(making->client, &making->step, making->state, making->n, error);
    making->step.step = PSP_CHECKPOINT_COMMIT;
    if (st == PSC_OK)
        st = take_step(making->client, &making->step, 0, 1, NULL, NULL, 0, error);
    making->committed = true;
    making->server = 0;
    return st;
}

/* The server that was looked at is done. */
static psc_status_t go_on(psw_making_t *making, bool *over_out, psc_error_t *error)
{
    const uint32_t n_servers = psw_core_n_servers(making->client->driver.core);
    psc_status_t st = PSC_OK;
    if (!making->committed && ++making->server < n_servers)
        return PSC_OK;
    if (!making->committed)
        return begin_commit(making, error);
    making->step.step = PSP_CHECKPOINT_COMMIT;
    making->step.detached = false; /* short there, and the next checkpoint may begin at once */
    if (n_servers > 1)
        st = take_step(making->client, &making->step, 1, n_servers, NULL, NULL, 0, error);
    *over_out = st == PSC_OK;
    return st;
}

/* Asks a server how far it is, or takes its answer if that has come. */
static psc_status_t look(psw_making_t *making, bool *over_out, psc_error_t *error)
{
    embps_client_t *client = making->client;
    psp_message_t message = {.kind = PSP_CHECKPOINT, .u.checkpoint = making->step};
    bool moved;
    psc_status_t st = PSC_OK;
    if (making->request == NULL) {
        message.u.checkpoint.step = PSP_CHECKPOINT_LOOK;
        st = psw_client_ask(client, &message, making->server, making->server + 1, &making->request,
                            error);
    }
    if (st == PSC_OK)
        st = psw_driver_step(&client->driver, &moved, error);
    if (st != PSC_OK || !psw_request_done(making->request))
        return st;
    const bool done = making->request->checkpoint.over;
    psw_request_t *request = making->request;
    making->request = NULL;
    st = psw_client_finish(client, request, error);
    return st == PSC_OK && done ? go_on(making, over_out, error) : st;
}

psc_status_t psw_making_step(psw_making_t *making, bool *over_out, psc_error_t *error)
{
    embps_client_t *client = making->client;
    *over_out = false;
    const psc_status_t st = look(making, over_out, error);
    if (st != PSC_OK) {
        psw_core_release(client->driver.core, making->request);
        making->request = NULL;
        give_up(client, &making->step, st);
    }
    if (st != PSC_OK || *over_out)
        making->client = NULL;
    return st;
}

psc_status_t psw_making_wait(psw_making_t *making, psc_error_t *error)
{
    bool over = making->client == NULL;
    psc_status_t st = PSC_OK;
    while (st == PSC_OK && !over) {
        st = psw_making_step(making, &over, error);
        if (st == PSC_OK && !over && making->request == NULL)
            psc_clock_sleep_us(LOOK_US);
        else if (st == PSC_OK && !over)
            st = psw_driver_pause(&making->client->driver, UINT64_MAX, error);
    }
    return st;
}

/* ---- what is kept with one ---- */

static psc_status_t read_state(embps_client_t *client, const char *name, uint8_t *state_out,
                               size_t room, psp_checkpoint_reply_t *reply, psc_error_t *error)
{
    psp_checkpoint_t step = {.step = PSP_CHECKPOINT_READ};
    psc_status_t st;
    *reply = (psp_checkpoint_reply_t){.name = ""};
    if (name != NULL)
        (void)snprintf(step.name, sizeof step.name, "%s", name);
    do {
        uint8_t *to = room != 0 ? state_out + step.offset : NULL;
        st = take_step(client, &step, 0, 1, reply, to, room - (size_t)step.offset, error);
        step.offset += reply->n;
        memcpy(step.name, reply->name, sizeof step.name); /* by now the newest may be another */
    } while (st == PSC_OK && reply->n != 0 && step.offset < room);
    return st;
}

int embps_checkpoint_state(embps_client_t *client, const char *name, void *state_out, size_t room,
                           size_t *n_out, char *name_out, embps_error_t *error)
{
    psc_error_t what = PSC_ERROR_INIT;
    psp_checkpoint_reply_t reply;
    if (client == NULL || n_out == NULL || (state_out == NULL && room != 0) ||
        (name != NULL && strlen(name) > PSP_CHECKPOINT_NAME_MAX)) {
        (void)psc_error_set(&what, PSC_INVALID_ARGUMENT,
                            "embps_checkpoint_state needs a client, a name of at most %u bytes and "
                            "places for what it reads",
                            PSP_CHECKPOINT_NAME_MAX);
        return psw_error_export(&what, error);
    }
    uint64_t relaid = psw_core_relaid(client->driver.core);
    psc_status_t st;
    do {
        st = read_state(client, name, state_out, room, &reply, &what);
    } while (psw_client_again(client, st, &relaid));
    if (st != PSC_OK)
        return psw_error_export(&what, error);
    *n_out = (size_t)reply.state_bytes;
    if (name_out != NULL)
        (void)snprintf(name_out, EMBPS_CHECKPOINT_NAME_BYTES, "%s", reply.name);
    return 0;
}
