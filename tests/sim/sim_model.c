/*
 * Exactly once. A push counts when its server applies it, and the model has its own memory of
 * sessions and sequences: a push that is applied a second time, or acknowledged and not applied,
 * ends the simulation, and where rows are not what they should be, the next answer to a pull
 * tells.
 *
 * Of each server it is known in which order it applied pushes: what a log has behind a checkpoint
 * must be the first ones after its cut, whatever a power cut took of the rest.
 *
 * A cut takes the rows that the server owns and the sequences of its sessions; a checkpoint is the
 * cuts of all its servers that got its name.
 */
#include "tests/sim/sim_model.h"

#include "common/alloc.h"
#include "common/slots.h"
#include "proto/message.h"
#include "tests/sim/sim_net.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { SESSIONS = 4096, CHECKPOINTS = 64, KEPT = 8, CALLS = 2048 };

typedef struct session {
    uint64_t id;
    uint32_t rank;
    size_t column;
    uint64_t pushed, acked, heard; /* sequences of pushes: applied, answered well, and that heard */
    bool ended;
    bool moved; /* it was of other servers: it counts as far as it did, and no further */
} session_t;

typedef struct state {
    float rows[SIM_IDS_MAX][SIM_COLUMNS];
    size_t n_applied[SIM_SERVERS_MAX]; /* pushes of its history that are in it, by server */
    uint8_t calls[SIM_SERVERS_MAX][SIM_COLUMNS][CALLS]; /* what of each is applied, by server */
    session_t sessions[SESSIONS];
    size_t n_sessions;
} state_t;

typedef struct checkpoint {
    char name[PSP_CHECKPOINT_NAME_MAX + 1];
    uint32_t n_servers;
    bool has[SIM_SERVERS_MAX];
    bool counts;
    bool through[SIM_SERVERS_MAX]; /* cut in the middle of a call, and says so */
    state_t *state;
} checkpoint_t;

/* A push that a log had, or that a server has applied. */
typedef struct replayed {
    uint64_t id, sequence;
    uint32_t rank;
} replayed_t;

/* What a server has applied, in order. */
typedef struct history {
    replayed_t *all;
    size_t n, room;
} history_t;

static struct {
    psp_scratch_t *scratch;
    size_t n_ids;
    uint32_t table;
    state_t now, next;
    state_t *cuts[SIM_SERVERS_MAX]; /* that have no name yet; NULL: none */
    char names[SIM_SERVERS_MAX][PSP_CHECKPOINT_NAME_MAX + 1]; /* that have no cut; "": none */
    uint32_t n_servers;                                       /* of those cuts */
    checkpoint_t checkpoints[CHECKPOINTS];
    size_t n_checkpoints;
    uint64_t n_starts;
    bool starting; /* next and replayed get what logs have */
    replayed_t *replayed;
    size_t n_replayed;
    history_t histories[SIM_SERVERS_MAX];
    uint8_t sums[SIM_COLUMNS][CALLS]; /* of calls */
    bool halves[SIM_COLUMNS][CALLS];  /* may be there in part */
    size_t n_calls[SIM_COLUMNS];
    bool through[SIM_SERVERS_MAX]; /* as in checkpoint_t, of cuts that have no name yet */
    bool must_tell[SIM_COLUMNS], lost_in_silence[SIM_COLUMNS];
} model;

void sim_model_begin(size_t n_ids)
{
    SIM_CHECK(n_ids <= SIM_IDS_MAX);
    model.n_ids = n_ids;
    SIM_CHECK(psp_scratch_create((size_t)1 << 20, &model.scratch, NULL) == PSC_OK);
}

void sim_model_end(void)
{
    psp_scratch_destroy(model.scratch);
    psc_free(model.replayed);
    for (size_t i = 0; i < SIM_SERVERS_MAX; i++) {
        psc_free(model.cuts[i]);
        psc_free(model.histories[i].all);
    }
    for (size_t i = 0; i < model.n_checkpoints; i++)
        psc_free(model.checkpoints[i].state);
    memset(&model, 0, sizeof model);
}

float sim_model_value(uint64_t id, size_t column)
{
    return model.now.rows[id][column];
}

static session_t *session_of(state_t *state, uint32_t rank, uint64_t id)
{
    for (size_t i = 0; i < state->n_sessions; i++) {
        if (state->sessions[i].rank == rank && state->sessions[i].id == id)
            return &state->sessions[i];
    }
    SIM_CHECK(state->n_sessions < SESSIONS);
    session_t *session = &state->sessions[state->n_sessions++];
    *session = (session_t){.id = id, .rank = rank};
    return session;
}

/* ---- answers ---- */

void sim_model_call(size_t column, size_t number, float sum)
{
    SIM_CHECK(number > 0 && number < CALLS && sum > 0 && sum <= UINT8_MAX);
    model.sums[column][number] = (uint8_t)sum;
    model.n_calls[column] = number;
}

static unsigned amount_of(const state_t *state, size_t column, size_t number)
{
    unsigned amount = 0;
    for (uint32_t rank = 0; rank < SIM_SERVERS_MAX; rank++)
        amount += state->calls[rank][column][number];
    return amount;
}

static bool is_half(const state_t *state, size_t column, size_t number)
{
    const unsigned amount = amount_of(state, column, number);
    return amount != 0 && amount != model.sums[column][number];
}

/* Those of which this state has a part, and which nobody may finish. */
static void let_halves_be(const state_t *state, size_t column)
{
    for (size_t call = 1; call <= model.n_calls[column]; call++)
        model.halves[column][call] = model.halves[column][call] || is_half(state, column, call);
}

/* Of one push that was applied. */
static void count_push(state_t *state, uint32_t rank, const psp_push_t *push, session_t *session)
{
    const size_t call = (size_t)push->learning_rate;
    SIM_CHECK(call > 0 && call < CALLS);
    for (size_t i = 0; i < push->n; i++) {
        const uint64_t id = psp_id_at(push->ids, i);
        float values[SIM_COLUMNS];
        SIM_CHECK(id < model.n_ids);
        memcpy(values, push->rows + i * push->dim * sizeof(float), sizeof values);
        for (size_t c = 0; c < SIM_COLUMNS; c++)
            state->rows[id][c] += values[c];
        for (size_t c = 0; c < SIM_COLUMNS; c++)
            session->column = values[c] != 0 ? c : session->column;
        state->calls[rank][session->column][call] += (uint8_t)values[session->column];
    }
}

/* Of a log, whose checkpoint is not known yet: put aside. */
static void put_aside(uint32_t rank, uint64_t id, uint64_t sequence)
{
    replayed_t *grown =
        psc_realloc_array(model.replayed, model.n_replayed + 1, sizeof *model.replayed);
    SIM_CHECK(grown != NULL);
    model.replayed = grown;
    grown[model.n_replayed++] = (replayed_t){.rank = rank, .id = id, .sequence = sequence};
}

static void reserve_history(history_t *history, size_t n)
{
    if (n <= history->room)
        return;
    replayed_t *grown = psc_realloc_array(history->all, 2 * n, sizeof *grown);
    SIM_CHECK(grown != NULL);
    memset(grown + history->room, 0, (2 * n - history->room) * sizeof *grown);
    history->all = grown;
    history->room = 2 * n;
}

static void remember(uint32_t rank, uint64_t id, uint64_t sequence)
{
    history_t *history = &model.histories[rank];
    reserve_history(history, history->n + 1);
    history->all[history->n++] = (replayed_t){.rank = rank, .id = id, .sequence = sequence};
    model.now.n_applied[rank] = history->n;
}

void sim_model_apply(uint32_t rank, const psp_message_t *message)
{
    const uint64_t id = message->request.session, sequence = message->request.sequence;
    if (message->kind != PSP_PUSH)
        return;
    model.table = message->u.push.table;
    if (model.starting) {
        put_aside(rank, id, sequence);
        count_push(&model.next, rank, &message->u.push, session_of(&model.next, rank, id));
        return;
    }
    session_t *session = session_of(&model.now, rank, id);
    if (sequence <= session->pushed)
        sim_fail("server %" PRIu32 " applies push %" PRIu64 " of session %" PRIx64 " once more",
                 rank, sequence, id);
    session->pushed = sequence;
    remember(rank, id, sequence);
    count_push(&model.now, rank, &message->u.push, session);
}

void sim_model_compare(uint32_t rank, const psp_message_t *asked, const psp_buffer_t *reply)
{
    psp_message_t answer;
    if (asked->kind != PSP_PULL)
        return;
    const psp_pull_t *pull = &asked->u.pull;
    const psp_pull_reply_t *rows = &answer.u.pull_reply;
    SIM_CHECK(psp_message_unpack(model.scratch, reply->kind, reply->data, reply->size, &answer,
                                 NULL) == PSC_OK);
    if (answer.reply.error.code != PSC_OK || rows->n != pull->n || rows->n_values != pull->n)
        return;
    for (size_t i = 0; i < pull->n; i++) {
        const uint64_t id = psp_id_at(pull->ids, i);
        float values[SIM_COLUMNS];
        SIM_CHECK(id < model.n_ids);
        memcpy(values, rows->rows + i * rows->dim * sizeof(float), sizeof values);
        for (size_t c = 0; c < SIM_COLUMNS; c++) {
            if (values[c] != model.now.rows[id][c])
                sim_fail("server %" PRIu32 " says that column %zu of row %" PRIu64
                         " is %g, but pushes that count make it %g",
                         rank, c, id, (double)values[c], (double)model.now.rows[id][c]);
        }
    }
}

/* The session and sequence of a request that was answered well; false: it was not. */
static bool read_answer(const psp_buffer_t *request, const psp_buffer_t *reply, uint64_t *id_out,
                        uint64_t *sequence_out, psc_error_t *error)
{
    psp_message_t message;
    SIM_CHECK(psp_message_unpack(model.scratch, request->kind, request->data, request->size,
                                 &message, NULL) == PSC_OK);
    *id_out = message.request.session;
    *sequence_out = message.request.sequence;
    SIM_CHECK(psp_message_unpack(model.scratch, reply->kind, reply->data, reply->size, &message,
                                 NULL) == PSC_OK);
    *error = message.reply.error;
    return message.reply.error.code == PSC_OK;
}

void sim_model_answer(uint32_t rank, const psp_buffer_t *request, const psp_buffer_t *reply)
{
    uint64_t id, sequence;
    psc_error_t error;
    if (!read_answer(request, reply, &id, &sequence, &error)) {
        sim_log("server %" PRIu32 " refuses a %s: %.120s", rank, psp_kind_name(request->kind),
                error.message);
        return;
    }
    if (request->kind != PSP_PUSH && request->kind != PSP_GOODBYE)
        return;
    session_t *session = session_of(&model.now, rank, id);
    session->ended = session->ended || request->kind == PSP_GOODBYE;
    if (request->kind == PSP_GOODBYE)
        return;
    sim_log("server %" PRIu32 " acknowledges push %" PRIu64 " of session %" PRIx64 "%s", rank,
            sequence, id, sequence <= session->acked ? " again" : "");
    if (sequence > session->pushed)
        sim_fail("server %" PRIu32 " acknowledges push %" PRIu64 " of session %" PRIx64
                 ", which it has not applied",
                 rank, sequence, id);
    session->acked = sequence > session->acked ? sequence : session->acked;
}

void sim_model_hear(uint32_t rank, const psp_buffer_t *request, const psp_buffer_t *reply)
{
    uint64_t id, sequence;
    psc_error_t error;
    if (request->kind != PSP_PUSH || !read_answer(request, reply, &id, &sequence, &error))
        return;
    session_t *session = session_of(&model.now, rank, id);
    session->heard = sequence > session->heard ? sequence : session->heard;
}

/* What was acknowledged, and what clients have heard of that, is compared with what the servers go
 * on from. */
static void find_losses(state_t *to, bool moved, bool safe)
{
    for (size_t i = 0; i < model.now.n_sessions; i++) {
        const session_t *from = &model.now.sessions[i];
        session_t *session = session_of(to, from->rank, from->id);
        if (safe && from->acked > session->pushed)
            sim_fail("server %" PRIu32 " had acknowledged push %" PRIu64 " of session %" PRIx64
                     ", and has those up to %" PRIu64 " after its start",
                     from->rank, from->acked, from->id, session->pushed);
        if (from->heard > session->pushed && from->ended)
            model.lost_in_silence[from->column] = true;
        else if (from->heard > session->pushed)
            model.must_tell[from->column] = true;
        session->column = from->column;
        session->acked = from->acked < session->pushed ? from->acked : session->pushed;
        session->heard = from->heard < session->pushed ? from->heard : session->pushed;
        session->ended = from->ended;
        session->moved = session->moved || moved;
    }
}

bool sim_model_must_tell(size_t column)
{
    return model.must_tell[column];
}

bool sim_model_lost_in_silence(size_t column)
{
    return model.lost_in_silence[column];
}

void sim_model_leave(size_t column)
{
    for (size_t i = 0; i < model.now.n_sessions; i++) {
        session_t *session = &model.now.sessions[i];
        session->ended = session->ended || session->column == column;
    }
}

void sim_model_silent(size_t column)
{
    for (size_t call = 1; call <= model.n_calls[column]; call++) {
        if (amount_of(&model.now, column, call) != model.sums[column][call])
            model.halves[column][call] = true;
    }
}

void sim_model_told(size_t column)
{
    sim_model_silent(column);
    model.must_tell[column] = false;
}

/* ---- checkpoints ---- */

static checkpoint_t *checkpoint_of(const char *name)
{
    for (size_t i = 0; i < model.n_checkpoints; i++) {
        if (strcmp(model.checkpoints[i].name, name) == 0)
            return &model.checkpoints[i];
    }
    if (model.n_checkpoints == CHECKPOINTS) { /* the oldest are gone on from no more */
        const size_t n = CHECKPOINTS - KEPT;
        for (size_t i = 0; i < n; i++)
            psc_free(model.checkpoints[i].state);
        memmove(model.checkpoints, &model.checkpoints[n], KEPT * sizeof *model.checkpoints);
        model.n_checkpoints = KEPT;
    }
    checkpoint_t *checkpoint = &model.checkpoints[model.n_checkpoints++];
    *checkpoint = (checkpoint_t){.state = psc_alloc_zeroed(1, sizeof(state_t))};
    SIM_CHECK(checkpoint->state != NULL);
    (void)snprintf(checkpoint->name, sizeof checkpoint->name, "%s", name);
    return checkpoint;
}

static void take_rows(state_t *to, const state_t *from, const psc_slot_map_t *map, uint32_t rank)
{
    for (uint64_t id = 0; id < model.n_ids; id++) {
        if (psc_slot_owner(map, psc_row_hash(model.table, id)) == rank)
            memcpy(to->rows[id], from->rows[id], sizeof to->rows[id]);
    }
}

/* Whose part has it; the first server's has those that were moved. */
static uint32_t keeper_of(const session_t *session)
{
    return session->moved ? 0 : session->rank;
}

/* A cut and its name. */
static void join(uint32_t rank)
{
    checkpoint_t *checkpoint = checkpoint_of(model.names[rank]);
    const state_t *cut = model.cuts[rank];
    state_t *state = checkpoint->state;
    psc_slot_map_t map;
    SIM_CHECK(!checkpoint->counts);
    SIM_CHECK(psc_slot_map_init(&map, model.n_servers, NULL) == PSC_OK);
    checkpoint->n_servers = model.n_servers;
    checkpoint->has[rank] = true;
    take_rows(state, cut, &map, rank);
    state->n_applied[rank] = cut->n_applied[rank];
    memcpy(state->calls[rank], cut->calls[rank], sizeof state->calls[rank]);
    checkpoint->through[rank] = model.through[rank];
    size_t n = 0;
    for (size_t i = 0; i < state->n_sessions; i++) {
        if (keeper_of(&state->sessions[i]) != rank)
            state->sessions[n++] = state->sessions[i];
    }
    state->n_sessions = n;
    for (size_t i = 0; i < cut->n_sessions; i++) {
        if (keeper_of(&cut->sessions[i]) == rank)
            state->sessions[state->n_sessions++] = cut->sessions[i];
    }
    sim_model_give_up(rank);
}

void sim_model_cut(uint32_t rank, uint32_t n_servers, bool through)
{
    if (model.cuts[rank] == NULL)
        model.cuts[rank] = psc_alloc(sizeof(state_t));
    SIM_CHECK(model.cuts[rank] != NULL);
    *model.cuts[rank] = model.now;
    model.through[rank] = through;
    model.n_servers = n_servers;
    sim_log("server %" PRIu32 " cuts%s", rank, through ? " in the middle of a call" : "");
    if (model.names[rank][0] != '\0')
        join(rank);
}

void sim_model_name(uint32_t rank, const char *name)
{
    (void)snprintf(model.names[rank], sizeof model.names[rank], "%s", name);
    if (rank == 0) { /* one that had this name before has failed */
        checkpoint_t *checkpoint = checkpoint_of(name);
        memset(checkpoint->has, 0, sizeof checkpoint->has);
        memset(checkpoint->state->calls, 0, sizeof checkpoint->state->calls);
    }
    sim_log("server %" PRIu32 " has a part of %s", rank, name);
    if (model.cuts[rank] != NULL)
        join(rank);
}

void sim_model_give_up(uint32_t rank)
{
    psc_free(model.cuts[rank]);
    model.cuts[rank] = NULL;
    model.names[rank][0] = '\0';
}

/* All of a call, or nothing. Not of a client that is still to be told of a loss: where a power cut
 * took its session from one server, that one takes no more of its calls, and others do. */
static void check_calls(const checkpoint_t *checkpoint)
{
    for (uint32_t rank = 0; rank < checkpoint->n_servers; rank++) {
        if (checkpoint->through[rank])
            return;
    }
    for (size_t column = 0; column < SIM_COLUMNS; column++) {
        for (size_t call = 1; call <= model.n_calls[column]; call++) {
            if (!model.must_tell[column] && !model.halves[column][call] &&
                is_half(checkpoint->state, column, call))
                sim_fail("checkpoint %s has %u of %u of push %zu of client %zu: a part of it",
                         checkpoint->name, amount_of(checkpoint->state, column, call),
                         model.sums[column][call], call, column);
        }
    }
}

void sim_model_commit(const char *name)
{
    checkpoint_t *checkpoint = checkpoint_of(name);
    for (uint32_t rank = 0; rank < checkpoint->n_servers; rank++) {
        if (!checkpoint->has[rank])
            sim_fail("checkpoint %s was made without server %" PRIu32, name, rank);
    }
    SIM_CHECK(checkpoint->n_servers != 0);
    checkpoint->counts = true;
    sim_log("checkpoint %s is made", name);
    check_calls(checkpoint);
}

float sim_model_saved(const char *name, uint64_t id, size_t column)
{
    return checkpoint_of(name)->state->rows[id][column];
}

const char *sim_model_newest(void)
{
    const char *newest = "";
    for (size_t i = 0; i < model.n_checkpoints; i++) {
        if (model.checkpoints[i].counts && strcmp(model.checkpoints[i].name, newest) > 0)
            newest = model.checkpoints[i].name;
    }
    return newest;
}

void sim_model_start(void)
{
    memset(&model.next, 0, sizeof model.next);
    model.n_replayed = 0;
    model.starting = true;
}

/* What a log has: the next ones that its server had applied, and none left out. */
static void compare_histories(state_t *to)
{
    for (size_t i = 0; i < model.n_replayed; i++) {
        const replayed_t *push = &model.replayed[i];
        const history_t *history = &model.histories[push->rank];
        const size_t at = to->n_applied[push->rank]++;
        if (at >= history->n || history->all[at].id != push->id ||
            history->all[at].sequence != push->sequence)
            sim_fail("the log of server %" PRIu32 " goes on with push %" PRIu64
                     " of session %" PRIx64 ", which is not the next one that it had applied",
                     push->rank, push->sequence, push->id);
    }
    for (uint32_t rank = 0; rank < SIM_SERVERS_MAX; rank++) {
        reserve_history(&model.histories[rank], to->n_applied[rank]);
        model.histories[rank].n = to->n_applied[rank];
    }
}

/* Behind what the checkpoint has. */
static void add_replayed(state_t *to)
{
    for (uint64_t id = 0; id < model.n_ids; id++) {
        for (size_t c = 0; c < SIM_COLUMNS; c++)
            to->rows[id][c] += model.next.rows[id][c];
    }
    for (uint32_t rank = 0; rank < SIM_SERVERS_MAX; rank++) {
        for (size_t i = 0; i < sizeof to->calls[rank]; i++)
            ((uint8_t *)to->calls[rank])[i] += ((const uint8_t *)model.next.calls[rank])[i];
    }
    for (size_t i = 0; i < model.n_replayed; i++) {
        const replayed_t *push = &model.replayed[i];
        session_t *session = session_of(to, push->rank, push->id);
        if (push->sequence <= session->pushed)
            sim_fail("the log of server %" PRIu32 " has push %" PRIu64 " of session %" PRIx64
                     ", which counts without it",
                     push->rank, push->sequence, push->id);
        session->pushed = push->sequence;
        session->column = session_of(&model.next, push->rank, push->id)->column;
    }
}

/* Servers of another number: the first one's part has what was of all. */
static void move_calls(state_t *to)
{
    for (uint32_t rank = 1; rank < SIM_SERVERS_MAX; rank++) {
        for (size_t i = 0; i < sizeof to->calls[rank]; i++)
            ((uint8_t *)to->calls[0])[i] += ((const uint8_t *)to->calls[rank])[i];
        memset(to->calls[rank], 0, sizeof to->calls[rank]);
    }
}

void sim_model_restore(const char *name, uint32_t n_servers, bool safe)
{
    static state_t restored;
    const char *newest = sim_model_newest();
    bool moved = false;
    memset(&restored, 0, sizeof restored);
    model.n_starts++;
    if (strcmp(name != NULL ? name : "", newest) < 0)
        sim_fail("the servers go on from %s, but %s was made", name != NULL ? name : "nothing",
                 newest);
    if (name != NULL) {
        checkpoint_t *checkpoint = checkpoint_of(name);
        for (uint32_t rank = 0; rank < checkpoint->n_servers; rank++)
            SIM_CHECK(checkpoint->has[rank]);
        SIM_CHECK(checkpoint->n_servers != 0);
        checkpoint->counts = true;
        moved = checkpoint->n_servers != n_servers;
        restored = *checkpoint->state;
    }
    compare_histories(&restored);
    if (moved)
        move_calls(&restored);
    add_replayed(&restored);
    for (size_t column = 0; column < SIM_COLUMNS; column++)
        let_halves_be(&restored, column);
    find_losses(&restored, moved, safe);
    model.now = restored;
    model.starting = false;
    for (uint32_t rank = 0; rank < SIM_SERVERS_MAX; rank++)
        sim_model_give_up(rank);
    sim_log("the servers go on from %s, and %zu pushes of logs", name != NULL ? name : "nothing",
            model.n_replayed);
}

uint64_t sim_model_starts(void)
{
    return model.n_starts;
}
