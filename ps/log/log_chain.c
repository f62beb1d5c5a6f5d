/*
 * Chains. A run that goes on from a checkpoint and from its log makes the next segment of the same
 * chain. One that goes on from a checkpoint alone, or from nothing, begins a chain, whose head
 * names that checkpoint: nothing before it counts any more. Numbers are never given again.
 *
 * A checkpoint's part names the segment that began at its cut. If that is in the last chain, or the
 * chain follows that very checkpoint, the log has what came after it. Any other checkpoint is
 * refused as long as the log has records: it would be rows of one history with changes of another.
 */
#include "ps/log/log_chain.h"

#include "common/alloc.h"
#include "common/file.h"
#include "common/log.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* What the log of one server is. */
typedef struct found {
    ps_log_numbers_t numbers;
    ps_log_head_t last; /* of the last segment, if there is any */
    uint64_t from;      /* the first one that counts behind the checkpoint */
    bool records;       /* there is anything from there on */
    bool fits;          /* the chain follows the checkpoint */
} found_t;

static psc_status_t no_memory(psc_error_t *error)
{
    return psc_error_set(error, PSC_NO_MEMORY, "out of memory for a log");
}

/* Bytes of records in segments from `from` on; what cannot be looked at counts as some. */
static uint64_t bytes_from(const char *folder, const ps_log_numbers_t *numbers, uint64_t from)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < numbers->n; i++) {
        struct stat status = {.st_size = 0};
        char *path = numbers->all[i] >= from ? ps_log_path(folder, numbers->all[i]) : NULL;
        if (path == NULL)
            continue;
        if (stat(path, &status) != 0)
            bytes++;
        else if ((uint64_t)status.st_size != PS_LOG_HEAD_BYTES)
            bytes += (uint64_t)status.st_size;
        psc_free(path);
    }
    return bytes;
}

/* The head of a segment, which must be this server's. */
static psc_status_t read_head(const ps_log_start_t *start, const char *folder, uint32_t server,
                              uint64_t number, ps_log_head_t *head_out, psc_error_t *error)
{
    ps_log_reader_t *reader = NULL;
    char *path = ps_log_path(folder, number);
    if (path == NULL)
        return no_memory(error);
    psc_status_t st = ps_log_reader_open(path, number, &reader, error);
    if (st == PSC_OK) {
        *head_out = *ps_log_reader_head(reader);
        if (head_out->lineage != start->lineage)
            st = psc_error_set(error, PSC_MISMATCH,
                               "the log %s is of other checkpoints (lineage %016" PRIx64
                               ") than %s has (%016" PRIx64 "): put the right one there",
                               path, head_out->lineage, start->checkpoints, start->lineage);
        else if (head_out->rank != server)
            st = psc_error_set(error, PSC_MISMATCH,
                               "the log %s is of server %" PRIu32 ", not of server %" PRIu32
                               ": put the right one there",
                               path, head_out->rank, server);
    }
    ps_log_reader_close(reader);
    psc_free(path);
    return st;
}

static psc_status_t look(const ps_log_start_t *start, const char *folder, uint32_t server,
                         found_t *found, psc_error_t *error)
{
    *found = (found_t){.fits = true};
    psc_status_t st = ps_log_list(folder, &found->numbers, error);
    if (st != PSC_OK || found->numbers.n == 0)
        return st;
    const uint64_t last = found->numbers.all[found->numbers.n - 1];
    const uint64_t cut =
        start->cut_segment != NULL && server < start->n_before ? start->cut_segment[server] : 0;
    st = read_head(start, folder, server, last, &found->last, error);
    if (st != PSC_OK)
        return st;
    if (strcmp(found->last.base, start->base) == 0)
        found->from = found->last.first;
    else if (cut >= found->last.first)
        found->from = cut;
    else
        found->fits = false;
    found->records =
        bytes_from(folder, &found->numbers, found->fits ? found->from : found->last.first) != 0;
    return PSC_OK;
}

/* What a log has must follow the checkpoint, and be of as many servers as there are. */
static psc_status_t check(const ps_log_start_t *start, const char *folder, const found_t *found,
                          psc_error_t *error)
{
    const char *follows = found->last.base;
    if (!found->records)
        return PSC_OK;
    if (found->last.n_servers != start->n_servers)
        return psc_error_set(
            error, PSC_MISMATCH,
            "%s has changes that no checkpoint has yet, of %" PRIu32 " servers, and there are "
            "%" PRIu32 " now: start %" PRIu32 " once more, which replay them, and let them end in "
            "order or make a checkpoint; any number goes on from that. --resume NAME goes on from "
            "a checkpoint without them",
            folder, found->last.n_servers, start->n_servers, found->last.n_servers);
    if (!found->fits)
        return psc_error_set(
            error, PSC_MISMATCH,
            "%s has changes that no checkpoint has yet, made after %s, but the newest checkpoint "
            "is %s: move those that are newer away to go on with the changes, or say --resume %s "
            "to go on without them",
            folder, follows[0] != '\0' ? follows : "a start without a checkpoint",
            start->base[0] != '\0' ? start->base : "none",
            start->base[0] != '\0' ? start->base : "none");
    return PSC_OK;
}

/* UINT32_MAX: it is no server's folder. */
static uint32_t server_of(const char *name)
{
    static const char prefix[] = "server-";
    const char *digits = name + sizeof prefix - 1;
    char *end;
    if (strncmp(name, prefix, sizeof prefix - 1) != 0 || *digits < '0' || *digits > '9')
        return UINT32_MAX;
    const unsigned long number = strtoul(digits, &end, 10);
    return *end == '\0' && number <= PSP_SAVED_SERVERS_MAX ? (uint32_t)number : UINT32_MAX;
}

/* Other servers' logs, those of numbers that this run does not have included. */
static psc_status_t check_others(const ps_log_start_t *start, psc_error_t *error)
{
    char *logs = ps_log_folder(start->checkpoints, UINT32_MAX);
    if (logs == NULL)
        return no_memory(error);
    DIR *entries = opendir(logs);
    psc_status_t st = PSC_OK;
    const struct dirent *entry;
    if (entries == NULL && errno != ENOENT)
        st = psc_error_set_errno(error, errno, "cannot read %s", logs);
    while (st == PSC_OK && entries != NULL && (entry = readdir(entries)) != NULL) {
        found_t found = {.fits = true};
        const uint32_t server = server_of(entry->d_name);
        if (server == UINT32_MAX || server == start->rank)
            continue;
        char *folder = ps_log_folder(start->checkpoints, server);
        st = folder == NULL ? no_memory(error) : look(start, folder, server, &found, error);
        if (st == PSC_OK)
            st = check(start, folder, &found, error);
        psc_free(found.numbers.all);
        psc_free(folder);
    }
    if (entries != NULL)
        (void)closedir(entries);
    psc_free(logs);
    return st;
}

/* The segments to replay: all there, and each as long as the next one says. */
static psc_status_t check_whole(const ps_log_start_t *start, const ps_log_chain_t *chain,
                                psc_error_t *error)
{
    uint64_t expected = 0;
    psc_status_t st = PSC_OK;
    for (uint64_t number = chain->to; st == PSC_OK && number >= chain->from; number--) {
        ps_log_head_t head;
        struct stat status;
        char *path = ps_log_path(chain->folder, number);
        st = path == NULL ? no_memory(error)
                          : read_head(start, chain->folder, start->rank, number, &head, error);
        if (st == PSC_OK && number != chain->to &&
            (stat(path, &status) != 0 || (uint64_t)status.st_size != expected))
            st = psc_error_set(error, PSC_CORRUPT,
                               "the log %s is damaged: it is not as long as it was, %" PRIu64
                               " bytes",
                               path, expected);
        psc_free(path);
        if (st == PSC_OK)
            expected = head.previous_bytes;
    }
    return st;
}

static uint64_t highest_cut(const ps_log_start_t *start)
{
    uint64_t highest = 0;
    for (uint32_t i = 0; start->cut_segment != NULL && i < start->n_before; i++)
        highest = start->cut_segment[i] > highest ? start->cut_segment[i] : highest;
    return highest;
}

/* The checkpoint says that this server has a log, which is not there. */
static psc_status_t check_there(const ps_log_start_t *start, const char *folder,
                                const found_t *found, psc_error_t *error)
{
    if (found->numbers.n != 0 || start->cut_segment == NULL ||
        start->n_before != start->n_servers || start->cut_segment[start->rank] == 0)
        return PSC_OK;
    return psc_error_set(error, PSC_NOT_FOUND,
                         "%s is missing: checkpoint %s was made by servers with a log of what "
                         "followed. Put it back, or say --resume %s to go on without it",
                         folder, start->base, start->base);
}

psc_status_t ps_log_chain_find(const ps_log_start_t *start, ps_log_chain_t *chain_out,
                               psc_error_t *error)
{
    ps_log_chain_t chain = {.from = 1};
    found_t found = {.fits = true};
    chain.folder = ps_log_folder(start->checkpoints, start->rank);
    psc_status_t st = chain.folder == NULL ? no_memory(error)
                                           : look(start, chain.folder, start->rank, &found, error);
    if (st == PSC_OK && start->replay)
        st = check_there(start, chain.folder, &found, error);
    if (st == PSC_OK && start->replay)
        st = check(start, chain.folder, &found, error);
    if (st == PSC_OK && start->replay)
        st = check_others(start, error);
    if (st != PSC_OK) {
        psc_free(found.numbers.all);
        psc_free(chain.folder);
        return st;
    }
    const uint64_t last = found.numbers.n != 0 ? found.numbers.all[found.numbers.n - 1] : 0;
    const uint64_t cut = highest_cut(start);
    chain.follows = found.numbers.n != 0;
    chain.head = (ps_log_head_t){.lineage = start->lineage,
                                 .rank = start->rank,
                                 .n_servers = start->n_servers,
                                 .number = (last > cut ? last : cut) + 1};
    ps_log_boot(chain.head.boot);
    chain.head.first = chain.head.number;
    (void)snprintf(chain.head.base, sizeof chain.head.base, "%s", start->base);
    if (start->replay && found.fits && last != 0 && found.from <= last &&
        found.last.n_servers == start->n_servers) {
        chain.from = found.from;
        chain.to = last;
        chain.replay_bytes = bytes_from(chain.folder, &found.numbers, found.from);
        chain.head.number = last + 1;
        chain.head.first = found.last.first;
        memcpy(chain.head.base, found.last.base, sizeof chain.head.base);
        st = check_whole(start, &chain, error);
    } else if (last != 0 && !start->replay) {
        chain.dropped_bytes =
            bytes_from(chain.folder, &found.numbers, found.fits ? found.from : found.last.first);
    }
    psc_free(found.numbers.all);
    if (st == PSC_OK)
        *chain_out = chain;
    else
        psc_free(chain.folder);
    return st;
}

void ps_log_chain_clear(ps_log_chain_t *chain)
{
    psc_free(chain->folder);
    chain->folder = NULL;
}

/* What stays does no harm. */
static void remove_leftovers(const char *folder)
{
    DIR *entries = opendir(folder);
    const struct dirent *entry;
    while (entries != NULL && (entry = readdir(entries)) != NULL) {
        if (ps_log_is_leftover(entry->d_name) && unlinkat(dirfd(entries), entry->d_name, 0) != 0)
            psc_log(PSC_LOG_WARN, "%s/%s, which a crash left, stays", folder, entry->d_name);
    }
    if (entries != NULL)
        (void)closedir(entries);
}

psc_status_t ps_log_chain_begin(const ps_log_chain_t *chain, const char *checkpoints,
                                psc_error_t *error)
{
    char *logs = ps_log_folder(checkpoints, UINT32_MAX);
    psc_status_t st = logs == NULL ? no_memory(error) : PSC_OK;
    const char *folders[] = {logs, chain->folder};
    for (size_t i = 0; st == PSC_OK && i < 2; i++) {
        if (mkdir(folders[i], 0777) != 0 && errno != EEXIST)
            st = psc_error_set_errno(error, errno, "cannot make the folder of logs %s", folders[i]);
    }
    if (st == PSC_OK)
        remove_leftovers(chain->folder);
    if (st == PSC_OK)
        st = ps_log_make(chain->folder, &chain->head, error);
    if (st == PSC_OK)
        st = psc_file_sync_dir(logs, error);
    if (st == PSC_OK)
        st = psc_file_sync_dir(checkpoints, error);
    psc_free(logs);
    return st;
}

static void remove_segment(const ps_log_chain_t *chain, uint64_t number)
{
    char *path = ps_log_path(chain->folder, number);
    if (path != NULL && unlink(path) != 0)
        psc_log(PSC_LOG_WARN, "the log %s, which counts no more, stays", path);
    psc_free(path);
}

void ps_log_chain_discard(const ps_log_chain_t *chain)
{
    char *logs = NULL, *end;
    remove_segment(chain, chain->head.number);
    /* Folders that are empty were made by this start. */
    if (rmdir(chain->folder) == 0 && (logs = psc_strdup(chain->folder)) != NULL) {
        end = strrchr(logs, '/');
        *end = '\0';
        (void)rmdir(logs);
    }
    psc_free(logs);
}

void ps_log_chain_prune(const ps_log_chain_t *chain)
{
    ps_log_numbers_t numbers;
    const uint64_t counts = chain->from <= chain->to ? chain->from : chain->head.number;
    psc_error_t fault = PSC_ERROR_INIT;
    if (ps_log_list(chain->folder, &numbers, &fault) != PSC_OK) {
        psc_log(PSC_LOG_WARN, "old logs stay: %s", fault.message);
        return;
    }
    for (size_t i = 0; i < numbers.n && numbers.all[i] < counts; i++)
        remove_segment(chain, numbers.all[i]);
    psc_free(numbers.all);
}
