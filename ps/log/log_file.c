/*
 * Segments as bytes.
 *
 * A segment comes into being whole, with its head (psc_file_write), and is appended to. The reader
 * takes a length for true only when the sum over it is right, and never beyond the end of the file
 * or PS_LOG_RECORD_MAX, so that no damage makes it take memory. What follows a record that is not
 * right is searched for another one, at every multiple of 8: a look at 4 bytes each, and a sum over
 * 24 where these are the mark. Such a one tells damage from an end that was not synced.
 */
#include "ps/log/log_file.h"

#include "common/alloc.h"
#include "common/file.h"
#include "common/hash.h"
#include "proto/saved_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#define MAGIC "embpslog"
#define MARK UINT32_C(0x3172636c)
#define NAME_BEGINS "segment-"
#define SEARCH_BYTES ((size_t)64 << 10)

/* A head as it lies in the file. */
typedef struct file_head {
    char magic[8];
    uint32_t format, bytes;
    ps_log_head_t head;
} file_head_t;
_Static_assert(sizeof(file_head_t) + sizeof(uint64_t) <= PS_LOG_HEAD_BYTES, "it fits");

/* The same of a record. */
typedef struct record_head {
    uint32_t mark, kind, n, unsynced;
    uint64_t body_sum, head_sum;
} record_head_t;
_Static_assert(sizeof(record_head_t) == PS_LOG_RECORD_HEAD_BYTES, "it has no holes");

struct ps_log_reader {
    char *path;
    int fd;
    ps_log_head_t head;
    uint64_t size, at;
    uint64_t beyond;
    uint8_t *body;
    size_t room;
};

/* ---- names ---- */

static psc_status_t no_memory(psc_error_t *error)
{
    return psc_error_set(error, PSC_NO_MEMORY, "out of memory for a log");
}

char *ps_log_folder(const char *checkpoints, uint32_t server)
{
    return server == UINT32_MAX ? psp_saved_path(checkpoints, "log", NULL)
                                : psp_saved_server_path(checkpoints, "log", server, NULL);
}

char *ps_log_path(const char *folder, uint64_t number)
{
    char name[64];
    (void)snprintf(name, sizeof name, NAME_BEGINS "%010" PRIu64, number);
    return psp_saved_path(folder, name, NULL);
}

static int compare_numbers(const void *left, const void *right)
{
    const uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}

/* 0: it is none. */
static uint64_t number_of(const char *name)
{
    const size_t begins = strlen(NAME_BEGINS);
    char *end;
    if (strncmp(name, NAME_BEGINS, begins) != 0 || name[begins] < '0' || name[begins] > '9')
        return 0;
    const uint64_t number = strtoull(name + begins, &end, 10);
    return *end == '\0' && number != UINT64_MAX ? number : 0;
}

psc_status_t ps_log_list(const char *folder, ps_log_numbers_t *numbers_out, psc_error_t *error)
{
    DIR *entries = opendir(folder);
    psc_status_t st = PSC_OK;
    const struct dirent *entry;
    *numbers_out = (ps_log_numbers_t){.n = 0};
    if (entries == NULL)
        return errno == ENOENT ? PSC_OK
                               : psc_error_set_errno(error, errno, "cannot read %s", folder);
    ps_log_numbers_t numbers = {.n = 0};
    while (st == PSC_OK && (entry = readdir(entries)) != NULL) {
        const uint64_t number = number_of(entry->d_name);
        if (number == 0)
            continue;
        uint64_t *grown = psc_realloc_array(numbers.all, numbers.n + 1, sizeof *grown);
        if (grown == NULL) {
            st = no_memory(error);
            break;
        }
        numbers.all = grown;
        numbers.all[numbers.n++] = number;
    }
    (void)closedir(entries);
    if (st != PSC_OK) {
        psc_free(numbers.all);
        return st;
    }
    if (numbers.n != 0)
        qsort(numbers.all, numbers.n, sizeof *numbers.all, compare_numbers);
    *numbers_out = numbers;
    return PSC_OK;
}

/* As common/file.h names what becomes a file: ".segment-N.PID-RANDOM.tmp". */
bool ps_log_is_leftover(const char *name)
{
    static const char begins[] = "." NAME_BEGINS, decimal[] = "0123456789";
    if (strncmp(name, begins, sizeof begins - 1) != 0)
        return false;
    name += sizeof begins - 1;
    for (const char *end = ".-"; *end != '\0'; end++) {
        const size_t n = strspn(name, decimal);
        if (n == 0 || name[n] != *end)
            return false;
        name += n + 1;
    }
    return strspn(name, "0123456789abcdef") == 16 && strcmp(name + 16, ".tmp") == 0;
}

void ps_log_boot(uint8_t boot_out[PS_LOG_BOOT_BYTES])
{
    char *text;
    size_t size, n = 0;
    memset(boot_out, 0, PS_LOG_BOOT_BYTES);
    if (psc_file_read("/proc/sys/kernel/random/boot_id", 256, &text, &size, NULL) != PSC_OK)
        return;
    for (const char *c = text; *c != '\0' && n < 2 * PS_LOG_BOOT_BYTES; c++) {
        const char *digits = "0123456789abcdef", *digit = strchr(digits, *c);
        if (digit == NULL)
            continue;
        boot_out[n / 2] = (uint8_t)(boot_out[n / 2] << 4 | (uint8_t)(digit - digits));
        n++;
    }
    psc_free(text);
}

/* ---- writing ---- */

psc_status_t ps_log_make(const char *folder, const ps_log_head_t *head, psc_error_t *error)
{
    uint8_t bytes[PS_LOG_HEAD_BYTES] = {0};
    file_head_t to;
    memset(&to, 0, sizeof to); /* also what lies between */
    memcpy(to.magic, MAGIC, sizeof to.magic);
    to.format = PS_LOG_FORMAT;
    to.bytes = PS_LOG_HEAD_BYTES;
    to.head = *head;
    memcpy(bytes, &to, sizeof to);
    const uint64_t sum = XXH3_64bits(bytes, PS_LOG_HEAD_BYTES - sizeof sum);
    memcpy(bytes + PS_LOG_HEAD_BYTES - sizeof sum, &sum, sizeof sum);
    char *path = ps_log_path(folder, head->number);
    psc_status_t st =
        path == NULL ? no_memory(error) : psc_file_write(path, bytes, sizeof bytes, error);
    psc_free(path);
    return st;
}

static uint64_t seed_of(uint64_t segment, uint64_t offset)
{
    return psc_mix64(segment) ^ offset;
}

static uint64_t sum_head(const record_head_t *head, uint64_t seed)
{
    return XXH3_64bits_withSeed(head, sizeof *head - sizeof head->head_sum, seed);
}

void ps_log_fill_head(uint8_t head_out[PS_LOG_RECORD_HEAD_BYTES], uint64_t segment, uint64_t offset,
                      uint32_t unsynced, ps_log_kind_t kind, const uint8_t *bytes, size_t n)
{
    const uint64_t seed = seed_of(segment, offset);
    record_head_t head = {
        .mark = MARK, .kind = (uint32_t)kind, .n = (uint32_t)n, .unsynced = unsynced};
    head.body_sum = XXH3_64bits_withSeed(bytes, n, seed);
    head.head_sum = sum_head(&head, seed);
    memcpy(head_out, &head, sizeof head);
}

/* ---- reading ---- */

/* Reads n bytes at an offset, all of which the file had when it was opened. */
static psc_status_t read_at(const ps_log_reader_t *reader, uint64_t offset, void *bytes, size_t n,
                            psc_error_t *error)
{
    for (size_t done = 0; done < n;) {
        const ssize_t got =
            pread(reader->fd, (uint8_t *)bytes + done, n - done, (off_t)(offset + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return psc_error_set_errno(error, errno, "cannot read %s", reader->path);
        if (got == 0)
            return psc_error_set(error, PSC_IO, "%s was cut short while it was read", reader->path);
        done += (size_t)got;
    }
    return PSC_OK;
}

static psc_status_t damaged(const ps_log_reader_t *reader, uint64_t offset, const char *what,
                            psc_error_t *error)
{
    return psc_error_set(error, PSC_CORRUPT, "the log %s is damaged at offset %" PRIu64 ": %s",
                         reader->path, offset, what);
}

static psc_status_t read_head(ps_log_reader_t *reader, uint64_t number, psc_error_t *error)
{
    uint8_t bytes[PS_LOG_HEAD_BYTES];
    file_head_t head;
    uint64_t sum;
    if (reader->size < sizeof bytes)
        return damaged(reader, 0, "it is shorter than a head", error);
    psc_status_t st = read_at(reader, 0, bytes, sizeof bytes, error);
    if (st != PSC_OK)
        return st;
    memcpy(&head, bytes, sizeof head);
    memcpy(&sum, bytes + sizeof bytes - sizeof sum, sizeof sum);
    if (memcmp(head.magic, MAGIC, sizeof head.magic) != 0)
        return damaged(reader, 0, "it does not begin as a log does", error);
    if (sum != XXH3_64bits(bytes, sizeof bytes - sizeof sum))
        return damaged(reader, 0, "the checksum of its head is another", error);
    if (head.format == 0 || head.format > PS_LOG_FORMAT)
        return psc_error_set(error, PSC_UNSUPPORTED,
                             "the log %s has format %" PRIu32 ", this release knows %u",
                             reader->path, head.format, PS_LOG_FORMAT);
    reader->head = head.head;
    if (head.bytes != sizeof bytes || head.head.base[PSP_SAVED_NAME_MAX] != '\0' ||
        head.head.first > head.head.number || head.head.first == 0 ||
        (head.head.base[0] != '\0' && !psp_saved_is_name(head.head.base)))
        return damaged(reader, 0, "its head says what cannot be", error);
    if (head.head.number != number)
        return psc_error_set(error, PSC_MISMATCH,
                             "the log %s is segment %" PRIu64 ": it has another one's name",
                             reader->path, head.head.number);
    reader->at = PS_LOG_HEAD_BYTES;
    return PSC_OK;
}

psc_status_t ps_log_reader_open(const char *path, uint64_t number, ps_log_reader_t **reader_out,
                                psc_error_t *error)
{
    ps_log_reader_t *reader = psc_alloc_zeroed(1, sizeof *reader);
    struct stat status;
    if (reader == NULL)
        return no_memory(error);
    reader->path = psc_strdup(path);
    reader->fd = open(path, O_RDONLY | O_CLOEXEC);
    psc_status_t st = reader->path == NULL ? no_memory(error) : PSC_OK;
    if (st == PSC_OK && (reader->fd < 0 || fstat(reader->fd, &status) != 0))
        st = psc_error_set_errno(error, errno, "cannot read the log %s", path);
    if (st == PSC_OK) {
        reader->size = (uint64_t)status.st_size;
        st = read_head(reader, number, error);
    }
    if (st != PSC_OK) {
        ps_log_reader_close(reader);
        return st;
    }
    *reader_out = reader;
    return PSC_OK;
}

void ps_log_reader_close(ps_log_reader_t *reader)
{
    if (reader == NULL)
        return;
    if (reader->fd >= 0)
        (void)close(reader->fd);
    psc_free(reader->path);
    psc_free(reader->body);
    psc_free(reader);
}

const ps_log_head_t *ps_log_reader_head(const ps_log_reader_t *reader)
{
    return &reader->head;
}

uint64_t ps_log_reader_bytes(const ps_log_reader_t *reader)
{
    return reader->size;
}

uint64_t ps_log_reader_beyond(const ps_log_reader_t *reader)
{
    return reader->beyond;
}

static bool is_head(const ps_log_reader_t *reader, const record_head_t *head, uint64_t offset)
{
    return head->mark == MARK &&
           head->head_sum == sum_head(head, seed_of(reader->head.number, offset)) &&
           head->n <= PS_LOG_RECORD_MAX;
}

/* Is there the head of a record behind the reader's place, at this offset or later, that says of
 * that place that it was on the disk? Counts those that say nothing of it. */
static psc_status_t search(ps_log_reader_t *reader, uint64_t offset, bool *found_out,
                           psc_error_t *error)
{
    uint8_t *bytes = psc_alloc(SEARCH_BYTES);
    psc_status_t st = bytes == NULL ? no_memory(error) : PSC_OK;
    *found_out = false;
    reader->beyond = 0;
    while (st == PSC_OK && !*found_out && offset + sizeof(record_head_t) <= reader->size) {
        const uint64_t left = reader->size - offset;
        const size_t n = left < SEARCH_BYTES ? (size_t)left : SEARCH_BYTES;
        st = read_at(reader, offset, bytes, n, error);
        for (size_t i = 0; st == PSC_OK && !*found_out && i + sizeof(record_head_t) <= n; i += 8) {
            record_head_t head;
            memcpy(&head, bytes + i, sizeof head);
            if (!is_head(reader, &head, offset + i))
                continue;
            *found_out = offset + i - reader->at > head.unsynced;
            reader->beyond++;
        }
        offset += n == left ? n : n - sizeof(record_head_t) + 8;
    }
    psc_free(bytes);
    return st;
}

static psc_status_t reserve(ps_log_reader_t *reader, size_t n, psc_error_t *error)
{
    if (n <= reader->room)
        return PSC_OK;
    uint8_t *grown = psc_realloc_array(reader->body, n, 1);
    if (grown == NULL)
        return no_memory(error);
    reader->body = grown;
    reader->room = n;
    return PSC_OK;
}

/* What is wrong with the record at the reader's place; NULL: nothing, and it has been read. cut: it
 * may be that the file ends too early, and that is all. */
static psc_status_t read_record(ps_log_reader_t *reader, record_head_t *head, const char **wrong,
                                bool *cut, psc_error_t *error)
{
    const uint64_t left = reader->size - reader->at;
    *wrong = NULL;
    *cut = left < sizeof *head;
    if (*cut) {
        *wrong = "the file ends in the middle of a record";
        return PSC_OK;
    }
    psc_status_t st = read_at(reader, reader->at, head, sizeof *head, error);
    if (st != PSC_OK)
        return st;
    if (!is_head(reader, head, reader->at)) {
        *wrong = "no record begins there";
        return PSC_OK;
    }
    *cut = left < ps_log_record_bytes(head->n);
    if (*cut) {
        *wrong = "the file ends in the middle of a record";
        return PSC_OK;
    }
    const size_t n = (size_t)(ps_log_record_bytes(head->n) - sizeof *head);
    st = reserve(reader, n + 1, error); /* bytes of none are somewhere too */
    if (st == PSC_OK)
        st = read_at(reader, reader->at + sizeof *head, reader->body, n, error);
    if (st != PSC_OK)
        return st;
    if (XXH3_64bits_withSeed(reader->body, (size_t)head->n,
                             seed_of(reader->head.number, reader->at)) != head->body_sum)
        *wrong = "the checksum of a record is another";
    for (size_t i = (size_t)head->n; i < n; i++) {
        if (reader->body[i] != 0)
            *wrong = "there are bytes between two records";
    }
    if (*wrong == NULL && (head->kind == 0 || head->kind > PS_LOG_KIND_LAST))
        return psc_error_set(error, PSC_UNSUPPORTED,
                             "the log %s has a record of kind %" PRIu32 " at offset %" PRIu64
                             ", which this release does not know",
                             reader->path, head->kind, reader->at);
    return PSC_OK;
}

psc_status_t ps_log_reader_next(ps_log_reader_t *reader, ps_log_tail_t tail,
                                ps_log_record_t *record_out, bool *more_out, uint64_t *end_out,
                                psc_error_t *error)
{
    record_head_t head;
    const char *wrong;
    bool cut, found = false;
    *more_out = false;
    if (end_out != NULL)
        *end_out = reader->at;
    if (reader->at == reader->size)
        return PSC_OK;
    psc_status_t st = read_record(reader, &head, &wrong, &cut, error);
    if (st != PSC_OK)
        return st;
    if (wrong == NULL) {
        *record_out = (ps_log_record_t){.kind = (ps_log_kind_t)head.kind,
                                        .offset = reader->at,
                                        .bytes = reader->body,
                                        .n = (size_t)head.n};
        *more_out = true;
        reader->at += ps_log_record_bytes(head.n);
        return PSC_OK;
    }
    if (tail == PS_LOG_TAIL_NONE || (tail == PS_LOG_TAIL_SHORT && !cut))
        return damaged(reader, reader->at, wrong, error);
    st = search(reader, reader->at + 8, &found, error);
    if (st == PSC_OK && found)
        st = damaged(reader, reader->at,
                     "a record behind what is not right says that it had been on the disk", error);
    return st;
}
