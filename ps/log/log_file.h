/*
 * Files of a log: segments, each a head and records one behind the other, checked when they are
 * read.
 *
 *     CHECKPOINTS/log/server-N/segment-0000000007
 *
 *     head     PS_LOG_HEAD_BYTES: "embpslog", uint32 format, uint32 bytes of the head, what
 *              ps_log_head_t says, zeros, uint64 XXH3 of all that
 *     record   uint32 mark, uint32 kind, uint32 n, uint32 unsynced, uint64 XXH3 of the body,
 *              uint64 XXH3 of these 24 bytes, the body, zeros up to a multiple of 8. Both sums are
 *              seeded by segment and offset, so that bytes of another place are none of this one.
 *              All but the last `unsynced` bytes before the record were on the disk before it was
 *              written; in format 1, and without PS_LOG_LEVEL, it is 0 although nobody knows
 *
 * A process that is killed leaves a file that is cut short. So a last record that is not whole is
 * no record, and was told to nobody; anything else that does not fit is damage. After a power cut
 * the end may be anything: then what is not right is cut off too, with all behind it, unless a
 * record there says that it had been on the disk. (Pages are brought there in any order: of what
 * was not synced a later record may be there, and an earlier one not.)
 *
 * Threads: none.
 */
#ifndef PS_LOG_LOG_FILE_H
#define PS_LOG_LOG_FILE_H

#include "proto/saved.h"
#include "ps/table/logger.h"

#define PS_LOG_FORMAT 2u
#define PS_LOG_HEAD_BYTES 256u
#define PS_LOG_RECORD_HEAD_BYTES 32u
#define PS_LOG_RECORD_MAX ((uint64_t)64 << 20) /* bytes of a body */
#define PS_LOG_BOOT_BYTES 16u

/* What its writer does before anybody is told of a record. */
typedef enum ps_log_level {
    PS_LOG_LEVEL_UNKNOWN, /* made by an earlier release, or to have no records */
    PS_LOG_LEVEL_WRITTEN, /* it is with the system: a power cut may take it */
    PS_LOG_LEVEL_SYNCED,  /* it is on the disk */
} ps_log_level_t;

/* What a segment is. */
typedef struct ps_log_head {
    uint64_t lineage; /* of the folder of checkpoints */
    uint32_t rank, n_servers;
    uint64_t number;
    uint64_t first;          /* segment of the chain that this one is in: number, number - 1, ... */
    uint64_t previous_bytes; /* of segment number - 1, if that is in the chain */
    uint8_t boot[PS_LOG_BOOT_BYTES];   /* which start of the machine wrote it */
    char base[PSP_SAVED_NAME_MAX + 1]; /* the checkpoint that the chain follows; "": none */
    uint32_t level;                    /* ps_log_level_t */
} ps_log_head_t;

/* Numbers of segments, in their order. */
typedef struct ps_log_numbers {
    size_t n;
    uint64_t *all;
} ps_log_numbers_t;

/* "<checkpoints>/log" (server UINT32_MAX), or the folder of a server in it. Gives; NULL: out of
 * memory. */
char *ps_log_folder(const char *checkpoints, uint32_t server);
/* Path of a segment in the folder of a server. Gives; NULL: out of memory. */
char *ps_log_path(const char *folder, uint64_t number);
/* Segments in the folder of a server; none when it does not exist. Errors: IO, NO_MEMORY. Gives
 * (psc_free(numbers_out->all)). */
PSC_MUST_CHECK psc_status_t ps_log_list(const char *folder, ps_log_numbers_t *numbers_out,
                                        psc_error_t *error);

/* Whether a name in such a folder is of a segment that a crash kept from getting its own. */
bool ps_log_is_leftover(const char *name);

/* Which start of the machine this is; zeros: the system does not say. */
void ps_log_boot(uint8_t boot_out[PS_LOG_BOOT_BYTES]);

/* Makes a segment without records, synced, its name too. Errors: IO, DISK_FULL, NO_MEMORY. */
PSC_MUST_CHECK psc_status_t ps_log_make(const char *folder, const ps_log_head_t *head,
                                        psc_error_t *error);

/* The head of a record of n bytes, at most PS_LOG_RECORD_MAX, at this offset of the segment;
 * unsynced: bytes before it that may not be on the disk. */
void ps_log_fill_head(uint8_t head_out[PS_LOG_RECORD_HEAD_BYTES], uint64_t segment, uint64_t offset,
                      uint32_t unsynced, ps_log_kind_t kind, const uint8_t *bytes, size_t n);
/* Bytes of a record of n bytes, head and zeros included. */
static inline uint64_t ps_log_record_bytes(uint64_t n)
{
    return PS_LOG_RECORD_HEAD_BYTES + (n + 7) / 8 * 8;
}

/* ---- reading ---- */

typedef struct ps_log_reader ps_log_reader_t;

typedef struct ps_log_record {
    ps_log_kind_t kind;
    uint64_t offset;
    const uint8_t *bytes; /* until the next one is read */
    size_t n;
} ps_log_record_t;

/*
 * Opens a segment and checks its head; number: by its name. Errors: NOT_FOUND, IO, NO_MEMORY,
 * CORRUPT (damaged; says which check failed), UNSUPPORTED (a later format), MISMATCH (the number is
 * another); all name the file. Gives.
 */
PSC_MUST_CHECK psc_status_t ps_log_reader_open(const char *path, uint64_t number,
                                               ps_log_reader_t **reader_out, psc_error_t *error);
/* NULL is a no-op. */
void ps_log_reader_close(ps_log_reader_t *reader);

const ps_log_head_t *ps_log_reader_head(const ps_log_reader_t *reader);
/* Bytes of the file when it was opened. */
uint64_t ps_log_reader_bytes(const ps_log_reader_t *reader);
/* Records that lie behind the first one that is not right, as far as their heads tell; 0 until
 * PS_LOG_TAIL_ANY has been read to its end. */
uint64_t ps_log_reader_beyond(const ps_log_reader_t *reader);

/* What may follow the last whole record. */
typedef enum ps_log_tail {
    PS_LOG_TAIL_NONE,  /* nothing: there is a segment behind this one */
    PS_LOG_TAIL_SHORT, /* a record that is cut short */
    PS_LOG_TAIL_ANY,   /* anything that no record says was on the disk */
} ps_log_tail_t;

/*
 * The next record. *more_out false: there is none, and *end_out (may be NULL) is where the last one
 * ended. Errors: CORRUPT, naming file and offset; IO, NO_MEMORY.
 */
PSC_MUST_CHECK psc_status_t ps_log_reader_next(ps_log_reader_t *reader, ps_log_tail_t tail,
                                               ps_log_record_t *record_out, bool *more_out,
                                               uint64_t *end_out, psc_error_t *error);

#endif
