/*
 * One list of all messages without an answer, in the order in which they were added.
 *
 * A message that fails simply is not under way any more: it keeps its place, so that the rules,
 * which are read off the list, hold for it as they did the first time. The list is as long as a
 * client's window (64 messages), so looking through it for the next one costs nothing beside a
 * call. Answered posts are kept for the next ones.
 *
 * Who waits for whom. The server serves in the order of sequences and so waits for what comes
 * before in the list; so whatever is held back here may only wait for messages that stand before
 * it, or both sides would wait for each other. That is why after a failure "one by one" means: none
 * behind one that left since.
 *
 * Jitter: half of the rest is fixed and half random, so that clients that lost a server at the same
 * time do not come back at the same time. Threads: one.
 */
#include "proto/outbox.h"

#include "common/alloc.h"
#include "common/rng.h"
#include "proto/message.h"

struct psp_outbox {
    psp_post_t *first, *last;
    psp_post_t *unused; /* linked by next */
    size_t bytes;
    uint64_t random_key, n_random;
    uint32_t n_failures; /* in a row */
    uint64_t round;      /* rests so far */
    uint64_t rests_until_us;
};

/* What a message waits for. */
typedef enum turn {
    TURN_FREE,
    TURN_LOOK,
    TURN_CHANGE,
} turn_t;

static turn_t turn_of(uint32_t kind)
{
    switch (kind) {
    case PSP_PREFETCH:
    case PSP_TOUCHES:
    case PSP_WATCH:
    case PSP_GOODBYE:
        return TURN_FREE;
    case PSP_HELLO:
    case PSP_PULL:
    case PSP_STATS:
    case PSP_FIND_TABLE:
    case PSP_ATTACH:
    case PSP_EXPORT:
        return TURN_LOOK;
    default:
        return TURN_CHANGE;
    }
}

psc_status_t psp_outbox_create(uint64_t seed, psp_outbox_t **outbox_out, psc_error_t *error)
{
    psp_outbox_t *outbox = psc_alloc_zeroed(1, sizeof *outbox);
    if (outbox == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "no memory for a connection");
    outbox->random_key = psc_rng_stream(seed, 0, 0);
    *outbox_out = outbox;
    return PSC_OK;
}

static void free_posts(psp_post_t *post)
{
    while (post != NULL) {
        psp_post_t *next = post->next;
        psp_buffer_put(post->buffer);
        psc_free(post);
        post = next;
    }
}

void psp_outbox_destroy(psp_outbox_t *outbox)
{
    if (outbox == NULL)
        return;
    free_posts(outbox->first);
    free_posts(outbox->unused);
    psc_free(outbox);
}

psc_status_t psp_outbox_add(psp_outbox_t *outbox, psp_buffer_t *buffer, psc_error_t *error)
{
    psp_post_t *post = outbox->unused;
    if (post != NULL)
        outbox->unused = post->next;
    else
        post = psc_alloc(sizeof *post);
    if (post == NULL) {
        psp_buffer_put(buffer);
        return psc_error_set(error, PSC_NO_MEMORY, "no memory to send a message");
    }
    *post = (psp_post_t){.previous = outbox->last, .buffer = buffer};
    if (outbox->last != NULL)
        outbox->last->next = post;
    else
        outbox->first = post;
    outbox->last = post;
    outbox->bytes += buffer->size;
    return PSC_OK;
}

psp_post_t *psp_outbox_next(psp_outbox_t *outbox, uint64_t now_us)
{
    bool look_before = false, probe_before = false;
    if (now_us < outbox->rests_until_us)
        return NULL;
    outbox->rests_until_us = 0;
    for (psp_post_t *post = outbox->first; post != NULL; post = post->next) {
        const turn_t turn = turn_of(post->buffer->kind);
        const bool may =
            turn == TURN_FREE || (!probe_before && !(turn == TURN_CHANGE && look_before));
        if (!post->under_way && may) {
            post->under_way = true;
            post->round = outbox->round;
            post->attempts++;
            return post;
        }
        look_before = look_before || turn == TURN_LOOK;
        probe_before = probe_before || (outbox->n_failures != 0 && turn != TURN_FREE &&
                                        post->under_way && post->round == outbox->round);
    }
    return NULL;
}

void psp_outbox_done(psp_outbox_t *outbox, psp_post_t *post)
{
    if (post->previous != NULL)
        post->previous->next = post->next;
    else
        outbox->first = post->next;
    if (post->next != NULL)
        post->next->previous = post->previous;
    else
        outbox->last = post->previous;
    outbox->bytes -= post->buffer->size;
    outbox->n_failures = 0;
    psp_buffer_put(post->buffer);
    post->buffer = NULL;
    post->next = outbox->unused;
    outbox->unused = post;
}

void psp_outbox_fail(psp_outbox_t *outbox, psp_post_t *post, uint64_t now_us)
{
    post->under_way = false;
    if (post->round != outbox->round)
        return;
    uint64_t rest_us = PSP_OUTBOX_FIRST_REST_US;
    for (uint32_t i = 0; i < outbox->n_failures && rest_us < PSP_OUTBOX_LONGEST_REST_US; i++)
        rest_us *= 2;
    if (rest_us > PSP_OUTBOX_LONGEST_REST_US)
        rest_us = PSP_OUTBOX_LONGEST_REST_US;
    const uint32_t bits = (uint32_t)psc_rng_at(outbox->random_key, outbox->n_random++);
    rest_us -= psc_rng_below(bits, (uint32_t)(rest_us / 2) + 1);
    outbox->n_failures++;
    outbox->round++;
    outbox->rests_until_us = now_us + rest_us;
}

uint64_t psp_outbox_rests_until(const psp_outbox_t *outbox)
{
    return outbox->rests_until_us;
}

bool psp_outbox_is_empty(const psp_outbox_t *outbox)
{
    return outbox->first == NULL;
}

size_t psp_outbox_bytes(const psp_outbox_t *outbox)
{
    return outbox->bytes;
}
