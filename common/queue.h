/*
 * An unbounded queue of nodes that the caller embeds: many producers, one consumer.
 *
 * Bounded by its users (each knows how many nodes it has under way). psc_queue_wait sleeps without
 * polling; psc_queue_wake ends a wait without a node.
 */
#ifndef COMMON_QUEUE_H
#define COMMON_QUEUE_H

#include "common/status.h"

#include <stdbool.h>

typedef struct psc_queue_node {
    struct psc_queue_node *next;
} psc_queue_node_t;

typedef struct psc_queue psc_queue_t;

/* Errors: NO_MEMORY. Gives. */
PSC_MUST_CHECK psc_status_t psc_queue_create(psc_queue_t **queue_out, psc_error_t *error);

/* Nodes still inside are the caller's; NULL is a no-op. No thread may be using it. */
void psc_queue_destroy(psc_queue_t *queue);

/* Any thread. Takes node until it is popped. */
void psc_queue_push(psc_queue_t *queue, psc_queue_node_t *node);

/* The oldest node, or NULL. One consumer thread. Costs one atomic load when empty. */
psc_queue_node_t *psc_queue_pop(psc_queue_t *queue);

/* True when psc_queue_pop would give a node. Any thread; a hint unless called by the consumer. */
bool psc_queue_ready(const psc_queue_t *queue);

/* Sleeps until a node is there, a wake comes, or timeout_us passed (UINT64_MAX: no limit). */
void psc_queue_wait(psc_queue_t *queue, uint64_t timeout_us);

/* Ends the present wait, or the next one. Any thread. */
void psc_queue_wake(psc_queue_t *queue);

#endif
