/*
 * Checkpoints: the client takes the servers through the steps of proto/embps.proto.
 *
 * Server 0 begins and gives the name, the others follow, the state goes to server 0 in pieces, and
 * server 0 commits. Messages to a server are served in the order in which they were issued, so the
 * cut of each server lies behind this client's earlier pushes; deltas that a cache holds leave
 * first. When a step fails all servers are told to give it up; what comes of that is not looked at,
 * since a server whose client is gone does so by itself.
 */
#include "worker/cached_rows.h"
#include "worker/client_state.h"

#include <stdio.h>
#include <string.h>

_Static_assert(EMBPS_CHECKPOINT_NAME_BYTES == PSP_CHECKPOINT_NAME_MAX + 1,
               "names are as long in embps.h as on the wire");

#define PIECE_BYTES ((size_t)256 << 10)

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

static psc_status_t make(embps_client_t *client, psp_checkpoint_t *step, const void *state,
                         size_t n, psc_error_t *error)
{
    const uint32_t n_servers = psw_core_n_servers(client->driver.core);
    psp_checkpoint_reply_t reply;
    psc_status_t st = take_step(client, step, 0, 1, &reply, NULL, 0, error);
    if (st != PSC_OK)
        return st;
    memcpy(step->name, reply.name, sizeof step->name);
    if (n_servers > 1)
        st = take_step(client, step, 1, n_servers, NULL, NULL, 0, error);
    if (st == PSC_OK)
        st = send_state(client, step, state, n, error);
    if (st == PSC_OK) {
        step->step = PSP_CHECKPOINT_COMMIT;
        st = take_step(client, step, 0, 1, NULL, NULL, 0, error);
    }
    if (st == PSC_OK && n_servers > 1) /* theirs is over too: nothing is removed any more */
        st = take_step(client, step, 1, n_servers, NULL, NULL, 0, error);
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
        step = (psp_checkpoint_t){.step = PSP_CHECKPOINT_SAVE, .name = ""};
        st = make(client, &step, state, n, &what);
    } while (psw_client_again(client, st, &relaid));
    if (st != PSC_OK) {
        psc_error_t ignored = PSC_ERROR_INIT;
        step.step = PSP_CHECKPOINT_ABANDON;
        for (uint32_t s = 0; step.name[0] != '\0' && s < psw_core_n_servers(client->driver.core);
             s++)
            (void)!take_step(client, &step, s, s + 1, NULL, NULL, 0, &ignored);
        return psw_error_export(&what, error);
    }
    if (name_out != NULL)
        (void)snprintf(name_out, EMBPS_CHECKPOINT_NAME_BYTES, "%s", step.name);
    return 0;
}

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
