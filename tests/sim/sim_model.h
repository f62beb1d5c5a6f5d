/*
 * What the table of a simulation must be: a plain array, changed when a push is applied, kept
 * as it is when a server cuts, and put back when servers go on from that checkpoint. Every answer
 * to a pull is compared with it; a push is applied once, and acknowledged when it was.
 *
 * Clients add whole numbers to their own columns, so sums are exact in any order.
 */
#ifndef TESTS_SIM_SIM_MODEL_H
#define TESTS_SIM_SIM_MODEL_H

#include "proto/message.h"
#include "tests/sim/sim_tasks.h"

enum { SIM_COLUMNS = 4, SIM_IDS_MAX = 4096 };

/* The columns of a row that are looked at are its first SIM_COLUMNS. */
void sim_model_begin(size_t n_ids);
void sim_model_end(void);

/* The client of a column begins its next push, from 1, whose values in it have this sum; messages
 * tell the number as their learning rate, which deltas do not use. A checkpoint must have all of it
 * or nothing, unless the client was told of an end, or is gone. */
void sim_model_call(size_t column, size_t number, float sum);
/* A server has applied a push: of a client, or of its log when it starts. */
void sim_model_apply(uint32_t rank, const psp_message_t *message);
/* A server has made its answer to a pull. */
void sim_model_compare(uint32_t rank, const psp_message_t *pull, const psp_buffer_t *reply);
/* An answer has left its server; the client has got it (sim_answer_fn). */
void sim_model_answer(uint32_t rank, const psp_buffer_t *request, const psp_buffer_t *reply);
void sim_model_hear(uint32_t rank, const psp_buffer_t *request, const psp_buffer_t *reply);

/*
 * What was acknowledged to the client of a column and is lost, since servers went back: whether its
 * session is there still, so that it must be told, and whether one had ended before, so that nobody
 * can be.
 */
bool sim_model_must_tell(size_t column);
bool sim_model_lost_in_silence(size_t column);
/* It was told, or is gone. */
void sim_model_told(size_t column);
/* It may be given up by servers: what it has under way may stay there in part. */
void sim_model_silent(size_t column);
/* It has heard all that it wants to hear: its sessions end. */
void sim_model_leave(size_t column);

/* The value that acknowledged pushes have made. */
float sim_model_value(uint64_t id, size_t column);

/* Server rank of n cuts (through: in the middle of a call, as it says itself); its part gets this
 * name, before that or after; it is given up; the checkpoint counts: it may be gone on from. */
void sim_model_cut(uint32_t rank, uint32_t n_servers, bool through);
void sim_model_name(uint32_t rank, const char *name);
void sim_model_give_up(uint32_t rank);
void sim_model_commit(const char *name);
/* The newest one that counts, "": none. */
const char *sim_model_newest(void);

/* What a checkpoint has. */
float sim_model_saved(const char *name, uint64_t id, size_t column);

/* What is applied from now on is what logs have behind the checkpoint that servers go on from. */
void sim_model_start(void);
/* So many servers go on from this one (NULL: from nothing), and from that. safe: all that was
 * acknowledged must be there. */
void sim_model_restore(const char *name, uint32_t n_servers, bool safe);
/* How often they have. */
uint64_t sim_model_starts(void);

#endif
