/*
 * A checkpoint of one shard, as a state machine: the cut of its rows (ps/store/cut.h), what else it
 * is at that moment (saver_image.h), and the jobs that write both, which somebody else does.
 *
 *     ps_saver_begin(shard, "", session, error)          this is the moment
 *     ps_saver_step(shard, &progress) at every poll      until ps_saver_look says SAVED or IDLE
 *     ps_saver_state, ps_saver_commit                    the same again
 *
 * A loan: a client wants one that all servers cut at one moment. It asks (ps_saver_borrow); the
 * server, which makes such ones (ps/rounds.h), takes note, makes it its own up to SAVED at all
 * servers, and lends it to the client, whose session then goes on with it as with one of its own.
 *
 * One checkpoint at a time. A failure of writing fails the checkpoint, and the shard goes on.
 * Threads: the owner's.
 */
#ifndef PS_TABLE_SAVER_H
#define PS_TABLE_SAVER_H

#include "common/queue.h"
#include "proto/message.h"
#include "ps/store/cut.h"

struct ps_shard;

typedef enum ps_save_kind {
    PS_SAVE_BEGIN,   /* name (in: "" at the first server; out) */
    PS_SAVE_ROWS,    /* piece */
    PS_SAVE_FINISH,  /* image; what the cold tier saved is in the staging folder */
    PS_SAVE_STATE,   /* the next bytes of the client's state, or of its vocabulary */
    PS_SAVE_COMMIT,  /* manifest and name, at the first server */
    PS_SAVE_ABANDON, /* also what is in the staging folder */
    PS_SAVE_READ,    /* name (in: "": the newest of this run; out), offset; out: size, bytes, n */
} ps_save_kind_t;

#define PS_SAVE_STATE_BYTES ((size_t)256 << 10) /* that one READ gives at most */

/* What a shard is at the cut but for its rows; see saver_image.h. */
typedef struct ps_save_image {
    uint8_t *part; /* packed embps.checkpoint.v1.Part without name and files */
    size_t n_part;
    uint8_t *growth; /* the file "growth" */
    size_t n_growth;
} ps_save_image_t;

typedef struct ps_save_job {
    psc_queue_node_t node; /* of whoever has the job */
    ps_save_kind_t kind;
    psc_error_t error; /* out */
    char name[PSP_CHECKPOINT_NAME_MAX + 1];
    ps_cut_piece_t *piece;
    const ps_save_image_t *image;
    bool partial;    /* FINISH: in: rows are those of a partial cut; out: the next may be one */
    uint64_t offset; /* READ */
    /* out: READ: of the state; FINISH: of all files of the part; STATE with vocabulary: in: of all
     * of it, where the last one may do; out: of that, if it did */
    uint64_t size;
    uint64_t checksum;    /* STATE with size */
    bool vocabulary;      /* STATE */
    const uint8_t *bytes; /* STATE: borrowed; READ: into room */
    size_t n;
    uint8_t *room; /* READ: [PS_SAVE_STATE_BYTES] */
} ps_save_job_t;

/* Who writes. Jobs are done one after another, and come back in that order. */
typedef struct ps_save_writer {
    void *context;
    const char *staging; /* where the cold tier saves to: on its file system, absent between cuts */
    void (*submit)(void *context, ps_save_job_t *job);
    ps_save_job_t *(*next)(void *context); /* that is finished; NULL: none */
    /* What Stats would say: see ps/serve/serve.h. */
    size_t (*count)(const struct ps_shard *shard, psp_counter_t counters[PSP_COUNTERS_MAX]);
} ps_save_writer_t;

typedef enum ps_saver_phase {
    PS_SAVER_IDLE,    /* none; ps_saver_result says how the last one ended */
    PS_SAVER_OPENING, /* the server's own gets its name and folder */
    PS_SAVER_OPEN,    /* it has them, and can be cut */
    PS_SAVER_CUTTING, /* rows are being written */
    PS_SAVER_WRITING, /* the rest is */
    PS_SAVER_SAVED,   /* this server's part is on disk; it counts when it is committed */
    PS_SAVER_STORING, /* a piece of the client's state is being written */
    PS_SAVER_COMMITTING,
    PS_SAVER_FAILED, /* the server's own, which it is to give up */
    PS_SAVER_ABANDONING,
} ps_saver_phase_t;

typedef enum ps_loan {
    PS_LOAN_NONE,
    PS_LOAN_ASKED, /* the server has not taken note */
    PS_LOAN_MAKING,
    PS_LOAN_LENT,
    PS_LOAN_FAILED, /* loan_error */
} ps_loan_t;

/* Part of a shard; all zero at first. */
typedef struct ps_saver {
    const ps_save_writer_t *writer; /* NULL: the server makes no checkpoints. Borrowed */
    ps_saver_phase_t phase;
    uint64_t session; /* that asked; 0: the server itself */
    bool own;         /* the server's, which has not taken yet how it ended (ps_saver_release) */
    bool lends;       /* the server makes what clients want to borrow */
    ps_loan_t loan;
    uint64_t loan_session; /* whose it is, or will be */
    uint64_t loan_us;      /* when it was lent, or its borrower took a step */
    psc_error_t loan_error;
    char name[PSP_CHECKPOINT_NAME_MAX + 1];      /* "": not known yet */
    char committed[PSP_CHECKPOINT_NAME_MAX + 1]; /* the last one that was; "": none */
    bool begun;                                  /* the BEGIN job came back */
    psc_error_t result; /* of the last checkpoint, or of the last piece of state */
    uint64_t began_us, state_bytes, vocabulary_bytes;
    uint64_t part_bytes; /* of the last part that was written */
    bool partial;        /* the cut is, and then whether the next may be */
    bool base;           /* the last checkpoint was committed, and the next may rest on it */
    ps_save_image_t image;
    ps_save_job_t job; /* all but the next two */
    ps_save_job_t rows[PS_CUT_PIECES_MAX];
    bool rows_used[PS_CUT_PIECES_MAX];
    ps_save_job_t read;
    bool reading;              /* its job is under way */
    uint64_t read_session;     /* whose answer it is; 0: it was given */
    uint64_t n_made, n_failed; /* for Stats */
    uint64_t longest_us; /* that a checkpoint took, from the cut to the last byte of the part */
} ps_saver_t;

void ps_saver_clear(struct ps_shard *shard);

/* Whether this is a moment to cut at: not in the middle of a clock that is being applied, which is
 * over soon. */
bool ps_saver_may_cut(const struct ps_shard *shard);

/*
 * Cuts now (ps_saver_may_cut). name: "" at the first server. session: 0 for the server itself,
 * which then has the saver until ps_saver_release. Errors: UNSUPPORTED (no --checkpoints), BUSY
 * (another one is under way), INVALID_ARGUMENT (does not fit into memory), NO_MEMORY.
 */
PSC_MUST_CHECK psc_status_t ps_saver_begin(struct ps_shard *shard, const char *name,
                                           uint64_t session, psc_error_t *error);

/*
 * The same in two steps, for the server itself: a checkpoint gets its name and folder, and is cut
 * when it is OPEN (ps_saver_may_cut); or it is given up then. Errors: as above.
 */
PSC_MUST_CHECK psc_status_t ps_saver_open(struct ps_shard *shard, const char *name,
                                          psc_error_t *error);
PSC_MUST_CHECK psc_status_t ps_saver_cut(struct ps_shard *shard, psc_error_t *error);

/* In SAVED only: the next piece of the client's state; the end; giving it up, also in OPEN. bytes:
 * borrowed until the phase changes. */
void ps_saver_state(struct ps_shard *shard, const uint8_t *bytes, size_t n);
/* The same of its vocabulary; whole_bytes not 0: nothing but whether the last checkpoint of this
 * run has one of that size and checksum, which is then taken (vocabulary_bytes in SAVED). */
void ps_saver_vocabulary(struct ps_shard *shard, const uint8_t *bytes, size_t n,
                         uint64_t whole_bytes, uint64_t checksum);
void ps_saver_commit(struct ps_shard *shard);
void ps_saver_abandon(struct ps_shard *shard);
/* While it is cut or written, too: gives it up as soon as that is possible. */
void ps_saver_give_up(struct ps_shard *shard);

/* Starts to read a checkpoint's state for a session, which then sets read_session to 0. False:
 * another one's is under way, or no memory is left just now. */
PSC_MUST_CHECK bool ps_saver_read(struct ps_shard *shard, const char *name, uint64_t offset,
                                  uint64_t session);

/* Takes what is finished, and looks at some more rows. Sets *progress_out when anything moved. */
void ps_saver_step(struct ps_shard *shard, bool *progress_out);

/* For the server: the phase, and in IDLE how the last one ended; name, and bytes of this server's
 * part from SAVED on: of the last one begun. */
ps_saver_phase_t ps_saver_look(const struct ps_shard *shard, psc_error_t *result_out,
                               const char **name_out, uint64_t *part_bytes_out);
/* The server knows how its own one ended: clients may begin theirs. */
void ps_saver_release(struct ps_shard *shard);

/* A session wants to borrow one. *asked_out: it will; else one that was left is not over yet: ask
 * again. Errors: BUSY (another session, that lives, does). */
PSC_MUST_CHECK psc_status_t ps_saver_borrow(struct ps_shard *shard, uint64_t session,
                                            bool *asked_out, psc_error_t *error);
/* For the server: it makes them; one is wanted, once for each; in SAVED: lends its own; it comes to
 * nothing before that, which is told. */
void ps_saver_offer(struct ps_shard *shard);
bool ps_saver_is_wanted(struct ps_shard *shard);
void ps_saver_lend(struct ps_shard *shard);
void ps_saver_refuse(struct ps_shard *shard, const psc_error_t *why);

/* Whether a checkpoint is nobody's any more: its session has ended, or borrowed it and has taken no
 * step for a minute. */
bool ps_saver_is_orphan(const struct ps_shard *shard);

#endif
