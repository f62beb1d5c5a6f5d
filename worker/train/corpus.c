/*
 * Files as one stream, and readers of byte ranges of it.
 *
 * The stream is the files one after another; a file border ends a word and a line, and takes no
 * byte. A range owns the words and newlines whose first byte lies in it: a reader that begins in
 * the middle of a word skips that word's rest, one that ends in a word reads it to its end. The end
 * of a file is owned by the range that holds its last byte. So ranges that cover the stream give
 * every word and line end once.
 *
 * One buffer of 1 MiB whatever the length of lines; a word that crosses its end is moved to its
 * front. A separator stands behind the last byte, so that the inner loop tests one thing per byte.
 * Sizes are fixed when the corpus is opened; every pass opens the files anew and checks them, at
 * the start and at the end of each file, so that a file that changes its size under us is an error
 * and not other words than those of the vocabulary.
 *
 * Threads: a corpus is read-only after open; a reader belongs to one thread. Cost: about 2 ns a
 * byte.
 */
#include "worker/train/corpus.h"

#include "common/alloc.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BUFFER_BYTES ((size_t)1 << 20)

typedef struct corpus_file {
    char *path;
    uint64_t start; /* offset of its first byte in the stream */
    uint64_t size;
    dev_t device;
    ino_t inode;
} corpus_file_t;

struct psw_corpus {
    corpus_file_t *files;
    size_t n_files;
    uint64_t bytes;
    char name[256];
};

struct psw_reader {
    const psw_corpus_t *corpus;
    uint64_t begin, end;
    char *buffer;       /* BUFFER_BYTES + 1 */
    size_t used, next;  /* bytes in the buffer; index of the next one to look at */
    uint64_t base;      /* offset in the stream of buffer[0] */
    size_t file;        /* index of the open file, or of the next one to open */
    int fd;             /* -1: none open */
    bool owes_line_end; /* the file that was just finished ended without saying so */
    bool done;
    uint64_t long_words;
};

/* Which bytes separate words. */
static const bool separators[256] = {
    [' '] = true, ['\t'] = true, ['\r'] = true, ['\n'] = true, ['\v'] = true, ['\f'] = true,
};

bool psw_is_separator(unsigned char byte)
{
    return separators[byte];
}

/* ---- corpus ---- */

static psc_status_t look_at(corpus_file_t *file, psc_error_t *error)
{
    /* Not blocking: a pipe without a writer must be refused, not waited for. */
    int fd = open(file->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return psc_error_set_errno(error, errno, "corpus file %s cannot be read", file->path);
    struct stat info;
    psc_status_t st = PSC_OK;
    if (fstat(fd, &info) != 0)
        st = psc_error_set_errno(error, errno, "corpus file %s cannot be read", file->path);
    else if (!S_ISREG(info.st_mode))
        st =
            psc_error_set(error, PSC_INVALID_ARGUMENT,
                          "corpus file %s is no regular file: it is read once per epoch, so give a "
                          "file of plain text",
                          file->path);
    close(fd);
    if (st != PSC_OK)
        return st;
    file->size = (uint64_t)info.st_size;
    file->device = info.st_dev;
    file->inode = info.st_ino;
    return PSC_OK;
}

static psc_status_t add_files(psw_corpus_t *corpus, const char *const *paths, size_t n_paths,
                              psc_error_t *error)
{
    for (size_t i = 0; i < n_paths; i++) {
        corpus_file_t *file = &corpus->files[i];
        file->path = psc_strdup(paths[i]);
        if (file->path == NULL)
            return psc_error_set(error, PSC_NO_MEMORY, "out of memory opening corpus file %s",
                                 paths[i]);
        corpus->n_files = i + 1;
        psc_status_t st = look_at(file, error);
        if (st != PSC_OK)
            return st;
        file->start = corpus->bytes;
        corpus->bytes += file->size;
    }
    if (n_paths > 1)
        (void)snprintf(corpus->name, sizeof corpus->name, "%.200s and %zu more", paths[0],
                       n_paths - 1);
    else
        (void)snprintf(corpus->name, sizeof corpus->name, "%.250s", paths[0]);
    if (corpus->bytes == 0)
        return psc_error_set(error, PSC_INVALID_ARGUMENT, "corpus %s is empty", corpus->name);
    return PSC_OK;
}

psc_status_t psw_corpus_open(const char *const *paths, size_t n_paths, psw_corpus_t **corpus_out,
                             psc_error_t *error)
{
    if (n_paths == 0)
        return psc_error_set(error, PSC_INVALID_ARGUMENT, "the corpus has no file");
    psw_corpus_t *corpus = psc_alloc_zeroed(1, sizeof *corpus);
    if (corpus != NULL)
        corpus->files = psc_alloc_zeroed(n_paths, sizeof *corpus->files);
    if (corpus == NULL || corpus->files == NULL) {
        psw_corpus_close(corpus);
        return psc_error_set(error, PSC_NO_MEMORY, "out of memory opening the corpus");
    }
    psc_status_t st = add_files(corpus, paths, n_paths, error);
    if (st != PSC_OK) {
        psw_corpus_close(corpus);
        return st;
    }
    *corpus_out = corpus;
    return PSC_OK;
}

void psw_corpus_close(psw_corpus_t *corpus)
{
    if (corpus == NULL)
        return;
    for (size_t i = 0; corpus->files != NULL && i < corpus->n_files; i++)
        psc_free(corpus->files[i].path);
    psc_free(corpus->files);
    psc_free(corpus);
}

uint64_t psw_corpus_bytes(const psw_corpus_t *corpus)
{
    return corpus->bytes;
}

const char *psw_corpus_name(const psw_corpus_t *corpus)
{
    return corpus->name;
}

bool psw_corpus_has_file(const psw_corpus_t *corpus, const char *path)
{
    struct stat info;
    if (stat(path, &info) != 0)
        return false;
    for (size_t i = 0; i < corpus->n_files; i++) {
        if (corpus->files[i].device == info.st_dev && corpus->files[i].inode == info.st_ino)
            return true;
    }
    return false;
}

void psw_corpus_share(const psw_corpus_t *corpus, uint32_t worker, uint32_t n_workers,
                      uint64_t *begin_out, uint64_t *end_out)
{
    uint64_t each = corpus->bytes / n_workers, extra = corpus->bytes % n_workers;
    *begin_out = each * worker + (worker < extra ? worker : extra);
    *end_out = *begin_out + each + (worker < extra ? 1 : 0);
}

/* ---- reader ---- */

static void close_file(psw_reader_t *reader)
{
    if (reader->fd >= 0)
        close(reader->fd);
    reader->fd = -1;
}

psc_status_t psw_reader_create(const psw_corpus_t *corpus, uint64_t begin, uint64_t end,
                               psw_reader_t **reader_out, psc_error_t *error)
{
    psw_reader_t *reader = psc_alloc_zeroed(1, sizeof *reader);
    if (reader != NULL)
        reader->buffer = psc_alloc(BUFFER_BYTES + 1);
    if (reader == NULL || reader->buffer == NULL) {
        psc_free(reader);
        return psc_error_set(error, PSC_NO_MEMORY, "out of memory for a corpus reader");
    }
    reader->corpus = corpus;
    reader->begin = begin;
    reader->end = end < corpus->bytes ? end : corpus->bytes;
    reader->fd = -1;
    psw_reader_rewind(reader);
    *reader_out = reader;
    return PSC_OK;
}

void psw_reader_destroy(psw_reader_t *reader)
{
    if (reader == NULL)
        return;
    close_file(reader);
    psc_free(reader->buffer);
    psc_free(reader);
}

void psw_reader_rewind(psw_reader_t *reader)
{
    close_file(reader);
    const psw_corpus_t *corpus = reader->corpus;
    reader->file = 0;
    while (reader->file < corpus->n_files &&
           corpus->files[reader->file].start + corpus->files[reader->file].size <= reader->begin)
        reader->file++;
    reader->used = reader->next = 0;
    reader->base = reader->begin;
    reader->owes_line_end = false;
    reader->done = reader->begin >= reader->end;
    reader->long_words = 0;
}

uint64_t psw_reader_long_words(const psw_reader_t *reader)
{
    return reader->long_words;
}

static psc_status_t check_size(const psw_reader_t *reader, psc_error_t *error)
{
    const corpus_file_t *file = &reader->corpus->files[reader->file];
    struct stat info;
    if (fstat(reader->fd, &info) != 0)
        return psc_error_set_errno(error, errno, "corpus file %s cannot be read", file->path);
    if ((uint64_t)info.st_size != file->size)
        return psc_error_set(error, PSC_IO,
                             "corpus file %s changed while it was being read: %" PRIu64
                             " bytes at the start, %" PRIu64 " now",
                             file->path, file->size, (uint64_t)info.st_size);
    return PSC_OK;
}

/* Bytes of the open file that are not in the buffer yet. */
static uint64_t unread_bytes(const psw_reader_t *reader)
{
    const corpus_file_t *file = &reader->corpus->files[reader->file];
    return file->start + file->size - (reader->base + reader->used);
}

/*
 * Keeps the bytes from index keep on at the front and reads more behind them. Afterwards at least
 * one more byte is there. Only while unread_bytes() > 0.
 */
static psc_status_t refill(psw_reader_t *reader, size_t keep, psc_error_t *error)
{
    const corpus_file_t *file = &reader->corpus->files[reader->file];
    memmove(reader->buffer, reader->buffer + keep, reader->used - keep);
    reader->base += keep;
    reader->used -= keep;
    reader->next -= keep;
    size_t room = BUFFER_BYTES - reader->used;
    uint64_t unread = unread_bytes(reader);
    if (unread < room)
        room = (size_t)unread;
    uint64_t offset = reader->base + reader->used - file->start;
    ssize_t got;
    do
        got = pread(reader->fd, reader->buffer + reader->used, room, (off_t)offset);
    while (got < 0 && errno == EINTR);
    if (got < 0)
        return psc_error_set_errno(error, errno, "corpus file %s cannot be read", file->path);
    if (got == 0) {
        psc_status_t st = check_size(reader, error);
        return st != PSC_OK
                   ? st
                   : psc_error_set(error, PSC_IO,
                                   "corpus file %s ended early: at byte %" PRIu64 " of %" PRIu64,
                                   file->path, offset, file->size);
    }
    reader->used += (size_t)got;
    reader->buffer[reader->used] = ' ';
    return PSC_OK;
}

/* Moves next to the first separator at or after it; the bytes before it may be dropped. */
static psc_status_t skip_word(psw_reader_t *reader, psc_error_t *error)
{
    for (;;) {
        while (!separators[(unsigned char)reader->buffer[reader->next]])
            reader->next++;
        if (reader->next < reader->used || unread_bytes(reader) == 0)
            return PSC_OK;
        psc_status_t st = refill(reader, reader->used, error);
        if (st != PSC_OK)
            return st;
    }
}

/* Opens the next file; a reader that begins within a word goes to that word's end. */
static psc_status_t open_file(psw_reader_t *reader, psc_error_t *error)
{
    const corpus_file_t *file = &reader->corpus->files[reader->file];
    reader->fd = open(file->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (reader->fd < 0)
        return psc_error_set_errno(error, errno, "corpus file %s cannot be read", file->path);
    (void)posix_fadvise(reader->fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    psc_status_t st = check_size(reader, error);
    if (st != PSC_OK)
        return st;
    bool inside = reader->begin > file->start;
    reader->base = inside ? reader->begin - 1 : file->start;
    reader->used = reader->next = 0;
    if (unread_bytes(reader) == 0)
        return PSC_OK;
    st = refill(reader, 0, error);
    if (st != PSC_OK || !inside)
        return st;
    /* The byte before the range is looked at only to see whether a word is under way. */
    st = skip_word(reader, error);
    if (st == PSC_OK && reader->base + reader->next < reader->begin)
        reader->next++;
    return st;
}

/* The word that starts at next, if it is not too long. */
static psc_status_t read_word(psw_reader_t *reader, psw_token_t *token_out, bool *found_out,
                              psc_error_t *error)
{
    size_t start = reader->next;
    for (;;) {
        while (!separators[(unsigned char)reader->buffer[reader->next]])
            reader->next++;
        if (reader->next - start > PSW_WORD_MAX_BYTES) {
            reader->long_words++;
            *found_out = false;
            return skip_word(reader, error);
        }
        if (reader->next < reader->used || unread_bytes(reader) == 0)
            break;
        psc_status_t st = refill(reader, start, error);
        if (st != PSC_OK)
            return st;
        start = 0;
    }
    token_out->kind = PSW_TOKEN_WORD;
    token_out->bytes = reader->buffer + start;
    token_out->size = reader->next - start;
    *found_out = true;
    return PSC_OK;
}

/* At the end of the buffer: more of this file, the next file, or the end. */
static psc_status_t next_bytes(psw_reader_t *reader, psc_error_t *error)
{
    const psw_corpus_t *corpus = reader->corpus;
    if (reader->fd < 0) {
        if (reader->file == corpus->n_files || corpus->files[reader->file].start >= reader->end) {
            reader->done = true;
            return PSC_OK;
        }
        return open_file(reader, error);
    }
    if (unread_bytes(reader) > 0)
        return refill(reader, reader->used, error);
    psc_status_t st = check_size(reader, error);
    close_file(reader);
    const corpus_file_t *file = &corpus->files[reader->file];
    uint64_t file_end = file->start + file->size;
    reader->owes_line_end = file->size > 0 && file_end > reader->begin && file_end <= reader->end;
    reader->file++;
    reader->used = reader->next = 0;
    return st;
}

psc_status_t psw_reader_next(psw_reader_t *reader, psw_token_t *token_out, psc_error_t *error)
{
    for (;;) {
        if (reader->done) {
            token_out->kind = PSW_TOKEN_END;
            return PSC_OK;
        }
        if (reader->next == reader->used) {
            psc_status_t st = next_bytes(reader, error);
            if (st != PSC_OK)
                return st;
            if (reader->owes_line_end) {
                reader->owes_line_end = false;
                token_out->kind = PSW_TOKEN_LINE_END;
                return PSC_OK;
            }
            continue;
        }
        if (reader->base + reader->next >= reader->end) {
            reader->done = true;
            continue;
        }
        unsigned char byte = (unsigned char)reader->buffer[reader->next];
        if (!separators[byte]) {
            bool found;
            psc_status_t st = read_word(reader, token_out, &found, error);
            if (st != PSC_OK || found)
                return st;
        } else {
            reader->next++;
            if (byte == '\n') {
                token_out->kind = PSW_TOKEN_LINE_END;
                return PSC_OK;
            }
        }
    }
}
