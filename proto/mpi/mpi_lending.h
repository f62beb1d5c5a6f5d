/*
 * Messages that peers on the same host read where they lie, in place of a copy by MPI.
 *
 * What is told about it goes as messages of MPI between the others, with tags of its own: an offer
 * (where one's memory is), an accept (the peer has mapped it), and in place of each message that is
 * lent a slip (where it lies). Inside proto/mpi/ only; one thread, that of the transport.
 */
#ifndef PROTO_MPI_MPI_LENDING_H
#define PROTO_MPI_MPI_LENDING_H

#include "proto/message_memory.h"
#include "proto/transport.h"

/* Tags. A message that is lent has the bit beside its kind. */
#define PSP_TAG_LENT 0x1000u
#define PSP_TAG_OFFER 0x2000u
#define PSP_TAG_ACCEPT 0x2001u

typedef struct psp_lending psp_lending_t;

/* The pool's larger buffers come from a memory of this process from now on. NULL: that cannot be
 * had here, and nothing is lent. Gives. */
psp_lending_t *psp_lending_create(psp_pool_t *pool, uint32_t n_peers);
/* What is lent is given up, unless it is back. in_use: MPI may still read what was borrowed. NULL
 * is a no-op. */
void psp_lending_destroy(psp_lending_t *lending, bool in_use);

/* An offer to a peer, which lends nothing before it has accepted. Errors: NO_MEMORY. Gives. */
PSC_MUST_CHECK psc_status_t psp_lending_offer(const psp_lending_t *lending,
                                              psp_buffer_t **offer_out, psc_error_t *error);

/* Whether this message to this peer can be lent. */
bool psp_lending_can(const psp_lending_t *lending, uint32_t peer, const psp_buffer_t *buffer);
/* Lends it, buffer->peer being set: slip_out is to be sent in its place. Takes buffer. On error
 * buffer is put back. Errors: NO_MEMORY. Gives slip. */
PSC_MUST_CHECK psc_status_t psp_lending_lend(psp_lending_t *lending, psp_buffer_t *buffer,
                                             psp_buffer_t **slip_out, psc_error_t *error);

/* Messages that are lent, and not back. */
size_t psp_lending_n_lent(const psp_lending_t *lending);
/* Puts back what is back, of up to count that it looks at, going round; backlog [peers] sinks by
 * their sizes. */
void psp_lending_collect(psp_lending_t *lending, size_t count, size_t *backlog);
/* The same for all that a peer has which is gone. */
void psp_lending_forget(psp_lending_t *lending, uint32_t peer, size_t *backlog);

/*
 * What a received buffer with such a tag means. *buffer: then the message that was lent, or NULL
 * when there was none in it. *answer_out: to be sent to the peer; NULL: nothing. Takes and gives
 * buffer; takes it on error. Errors: PROTOCOL, NO_MEMORY.
 */
PSC_MUST_CHECK psc_status_t psp_lending_receive(psp_lending_t *lending, psp_buffer_t **buffer,
                                                psp_buffer_t **answer_out, psc_error_t *error);

#endif
