/*
 * What a schema cannot say of the messages about checkpoints: how long a name may be, and which
 * steps there are. Whether a name is one is looked at where it becomes a path (proto/saved.h). Any
 * thread.
 */
#include "proto/embps.pb-c.h"
#include "proto/pack_inside.h"
#include "proto/saved.h"
#include "proto/unpack_inside.h"

#include <string.h>

_Static_assert(PSP_CHECKPOINT_NAME_MAX == PSP_SAVED_NAME_MAX,
               "servers copy names from the one to the other");

/* ---- to bytes ---- */

psc_status_t psp_pack_checkpoint(psp_pool_t *pool, const psp_message_t *message,
                                 psp_buffer_t **buffer_out, psc_error_t *error)
{
    const psp_checkpoint_t *from = &message->u.checkpoint;
    if (memchr(from->name, '\0', sizeof from->name) == NULL)
        return psc_error_set(error, PSC_INVALID_ARGUMENT, "a checkpoint's name of over %u bytes",
                             PSP_CHECKPOINT_NAME_MAX);
    Embps__V1__RequestHeader head = psp_pack_request_header(&message->request);
    Embps__V1__CheckpointRequest to = EMBPS__V1__CHECKPOINT_REQUEST__INIT;
    to.header = &head;
    to.step = (Embps__V1__CheckpointStep)from->step;
    to.name = (char *)from->name;
    to.offset = from->offset;
    to.detached = from->detached;
    to.in_step = from->in_step;
    to.everywhere = from->everywhere;
    to.vocabulary = from->vocabulary;
    to.whole_bytes = from->whole_bytes;
    to.checksum = from->checksum;
    const psp_bulk_t state = {15, from->n, from->state, NULL};
    return psp_pack(pool, PSP_CHECKPOINT, &to.base, &state, 1, buffer_out, error);
}

psc_status_t psp_pack_checkpoint_reply(psp_pool_t *pool, const psp_message_t *message,
                                       psp_buffer_t **buffer_out, psc_error_t *error)
{
    const psp_checkpoint_reply_t *from = &message->u.checkpoint_reply;
    if (memchr(from->name, '\0', sizeof from->name) == NULL)
        return psc_error_set(error, PSC_INVALID_ARGUMENT, "a checkpoint's name of over %u bytes",
                             PSP_CHECKPOINT_NAME_MAX);
    Embps__V1__ReplyHeader head = psp_pack_reply_header(&message->reply);
    Embps__V1__CheckpointReply to = EMBPS__V1__CHECKPOINT_REPLY__INIT;
    to.header = &head;
    to.name = (char *)from->name;
    to.state_bytes = from->state_bytes;
    to.over = from->over;
    const psp_bulk_t state = {15, from->n, from->state, NULL};
    return psp_pack(pool, PSP_CHECKPOINT_REPLY, &to.base, &state, 1, buffer_out, error);
}

/* ---- from bytes ---- */

static psc_status_t read_name(const psp_unpacker_t *u, const char *from,
                              char to[PSP_CHECKPOINT_NAME_MAX + 1])
{
    const size_t length = strlen(from);
    if (length > PSP_CHECKPOINT_NAME_MAX)
        return psp_unpack_refuse_number(u, "length of name", length);
    memcpy(to, from, length + 1);
    return PSC_OK;
}

psc_status_t psp_unpack_checkpoint(const psp_unpacker_t *u, const void *message,
                                   psp_checkpoint_t *to)
{
    const Embps__V1__CheckpointRequest *from = message;
    const psp_run_t *state = &u->bulk[0];
    const uint32_t step = (uint32_t)from->step;
    if (step > PSP_CHECKPOINT_LOOK)
        return psp_unpack_refuse_number(u, "step", step);
    if (from->vocabulary && step != PSP_CHECKPOINT_STATE)
        return psp_unpack_refuse_number(u, "step with a vocabulary", step);
    *to = (psp_checkpoint_t){.step = (psp_checkpoint_step_t)step,
                             .offset = from->offset,
                             .detached = from->detached,
                             .in_step = from->in_step,
                             .everywhere = from->everywhere,
                             .vocabulary = from->vocabulary,
                             .whole_bytes = from->whole_bytes,
                             .checksum = from->checksum,
                             .n = state->size,
                             .state = state->size != 0 ? state->start : u->data};
    return read_name(u, from->name, to->name);
}

psc_status_t psp_unpack_checkpoint_reply(const psp_unpacker_t *u, const void *message,
                                         psp_checkpoint_reply_t *to)
{
    const Embps__V1__CheckpointReply *from = message;
    const psp_run_t *state = &u->bulk[0];
    *to = (psp_checkpoint_reply_t){.state_bytes = from->state_bytes,
                                   .over = from->over,
                                   .n = state->size,
                                   .state = state->size != 0 ? state->start : u->data};
    return read_name(u, from->name, to->name);
}
