/*
 * embps checkpoint prune: takes old checkpoints away while no server runs that writes there.
 *
 * Only what is whole counts, so the newest are read, each file against its checksum, until as many
 * as are to be kept were found good. What goes is older than these, but for two, as with servers'
 * own --keep: the newest whole one with a client's state, and the newest whole one with it of the
 * run that made the newest (that mostly is the same). What was found damaged stays, since somebody
 * may want to save something of it, and is named. With the lock taken, what a crash left goes too.
 *
 * Checkpoints share files by links, among each other and with data directories. Bytes are freed
 * when the last link goes, and told with the checkpoint with which that is.
 *
 * Threads: none. Cost: reads the checkpoints that stay once, and the folders of those that go.
 */
#include "common/alloc.h"
#include "common/file.h"
#include "common/output.h"
#include "proto/saved_change.h"
#include "worker/tool/checkpoint_files.h"
#include "worker/tool/hit_output.h"

#include <dirent.h>
#include <errno.h>
#include <fts.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* An entry of the folder. */
typedef struct item {
    char name[NAME_MAX + 1];
    bool goes, is_leftover;
    const char *why;
    json_t *faults; /* NULL: none, or they were printed */
    uint64_t freed;
} item_t;

typedef struct pruning {
    const char *folder;
    uint64_t keep;
    bool json, dry_run;
    item_t *items; /* leftovers, then checkpoints, oldest first */
    size_t n, n_faulty;
    psc_status_t first; /* fault */
} pruning_t;

/* A name of a file in what goes. */
typedef struct link_of {
    dev_t device;
    ino_t inode;
    nlink_t n_links; /* in all */
    uint64_t bytes;
    size_t item;
} link_of_t;

typedef struct links {
    link_of_t *all;
    size_t n, room;
} links_t;

static psc_status_t no_memory(const pruning_t *pruning, psc_error_t *error)
{
    return psc_error_set(error, PSC_NO_MEMORY, "out of memory for checkpoints in %s",
                         pruning->folder);
}

/* ---- what is there ---- */

static psc_status_t add_item(pruning_t *pruning, const char *name, bool is_leftover,
                             psc_error_t *error)
{
    item_t *grown = psc_realloc_array(pruning->items, pruning->n + 1, sizeof *pruning->items);
    if (grown == NULL)
        return no_memory(pruning, error);
    pruning->items = grown;
    item_t *item = &pruning->items[pruning->n++];
    *item = (item_t){.is_leftover = is_leftover, .goes = is_leftover, .why = "left by a crash"};
    (void)snprintf(item->name, sizeof item->name, "%s", name);
    return PSC_OK;
}

static psc_status_t list_items(pruning_t *pruning, psc_error_t *error)
{
    psp_saved_names_t names;
    const struct dirent *entry;
    DIR *entries = opendir(pruning->folder);
    psc_status_t st = PSC_OK;
    if (entries == NULL)
        return psc_error_set_errno(error, errno, "cannot read %s", pruning->folder);
    while (st == PSC_OK && (entry = readdir(entries)) != NULL) {
        if (psp_saved_is_leftover(entry->d_name))
            st = add_item(pruning, entry->d_name, true, error);
    }
    (void)closedir(entries);
    if (st == PSC_OK)
        st = psp_saved_list(pruning->folder, &names, error);
    if (st != PSC_OK)
        return st;
    for (size_t i = 0; st == PSC_OK && i < names.n; i++)
        st = add_item(pruning, names.all[i], false, error);
    psp_saved_names_clear(&names);
    return st;
}

/* ---- what stays ---- */

/* What those that were found good say of those that are older. */
typedef struct found {
    uint64_t n_whole, cluster; /* of the newest */
    bool state, own_state;
} found_t;

/* Whether a checkpoint is needed beside the newest ones, if it is whole; why. */
static const char *needed_for_state(const found_t *found, const psp_saved_manifest_t *manifest)
{
    if (manifest->state == NULL)
        return NULL;
    if (!found->state)
        return "the newest with a client's state";
    return !found->own_state && manifest->cluster == found->cluster
               ? "the newest run's newest with a client's state"
               : NULL;
}

static void call_damaged(pruning_t *pruning, item_t *item, psc_status_t st)
{
    item->goes = false;
    item->why = "damaged, does not count";
    pruning->n_faulty++;
    if (pruning->first == PSC_OK)
        pruning->first = st;
}

static void look_at(pruning_t *pruning, item_t *item, found_t *found)
{
    psw_checkpoint_faults_t faults = {.name = item->name,
                                      .all = pruning->json ? json_array() : NULL};
    psp_saved_t *saved = NULL;
    psc_error_t fault = PSC_ERROR_INIT;
    const bool among_newest = found->n_whole < pruning->keep;
    psc_status_t st = psp_saved_open(pruning->folder, item->name, &saved, &fault);
    item->faults = faults.all;
    item->goes = true;
    item->why = "too old";
    if (st != PSC_OK) {
        psw_checkpoint_take_fault(&faults, &fault);
        call_damaged(pruning, item, st);
        return;
    }
    const psp_saved_manifest_t *manifest = psp_saved_manifest(saved);
    const char *why = among_newest ? "among the newest" : needed_for_state(found, manifest);
    if (why != NULL)
        st = psp_saved_verify(pruning->folder, item->name, true, psw_checkpoint_take_fault, &faults,
                              &fault);
    if (st != PSC_OK) {
        call_damaged(pruning, item, st);
    } else if (why != NULL) {
        item->goes = false;
        item->why = why;
        if (found->n_whole++ == 0)
            found->cluster = manifest->cluster;
        found->state = found->state || manifest->state != NULL;
        found->own_state =
            found->own_state || (manifest->state != NULL && manifest->cluster == found->cluster);
    }
    psp_saved_destroy(saved);
}

static void choose(pruning_t *pruning)
{
    found_t found = {0};
    for (size_t i = pruning->n; i-- > 0;) {
        if (!pruning->items[i].is_leftover)
            look_at(pruning, &pruning->items[i], &found);
    }
    /* Then also a leftover may have something that somebody wants to save. */
    for (size_t i = 0; found.n_whole == 0 && i < pruning->n && pruning->items[i].is_leftover; i++) {
        pruning->items[i].goes = false;
        pruning->items[i].why = "no checkpoint is whole";
    }
}

/* ---- bytes ---- */

static psc_status_t add_link(links_t *links, const struct stat *status, size_t item)
{
    if (links->n == links->room) {
        const size_t room = links->room * 2 + 64;
        link_of_t *grown = psc_realloc_array(links->all, room, sizeof *links->all);
        if (grown == NULL)
            return PSC_NO_MEMORY;
        links->all = grown;
        links->room = room;
    }
    links->all[links->n++] = (link_of_t){.device = status->st_dev,
                                         .inode = status->st_ino,
                                         .n_links = status->st_nlink,
                                         .bytes = (uint64_t)status->st_size,
                                         .item = item};
    return PSC_OK;
}

/* All files of an item. */
static psc_status_t walk(const pruning_t *pruning, size_t item, links_t *links, psc_error_t *error)
{
    char *path = psp_saved_path(pruning->folder, pruning->items[item].name, NULL);
    if (path == NULL)
        return no_memory(pruning, error);
    char *const paths[] = {path, NULL};
    FTS *tree = fts_open(paths, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
    psc_status_t st =
        tree != NULL ? PSC_OK : psc_error_set_errno(error, errno, "cannot read %s", path);
    const FTSENT *entry;
    while (st == PSC_OK && (entry = fts_read(tree)) != NULL) {
        if (entry->fts_info == FTS_F && add_link(links, entry->fts_statp, item) != PSC_OK)
            st = no_memory(pruning, error);
        else if (entry->fts_info == FTS_DNR || entry->fts_info == FTS_ERR ||
                 entry->fts_info == FTS_NS)
            st = psc_error_set_errno(error, entry->fts_errno, "cannot read %s", entry->fts_path);
    }
    if (tree != NULL)
        (void)fts_close(tree);
    psc_free(path);
    return st;
}

static int compare_links(const void *left, const void *right)
{
    const link_of_t *a = left, *b = right;
    if (a->device != b->device)
        return a->device < b->device ? -1 : 1;
    if (a->inode != b->inode)
        return a->inode < b->inode ? -1 : 1;
    return (a->item > b->item) - (a->item < b->item);
}

static psc_status_t count_bytes(pruning_t *pruning, psc_error_t *error)
{
    links_t links = {0};
    psc_status_t st = PSC_OK;
    for (size_t i = 0; st == PSC_OK && i < pruning->n; i++) {
        if (pruning->items[i].goes)
            st = walk(pruning, i, &links, error);
    }
    if (links.n != 0)
        qsort(links.all, links.n, sizeof *links.all, compare_links);
    for (size_t i = 0, end; st == PSC_OK && i < links.n; i = end) {
        for (end = i; end < links.n && links.all[end].inode == links.all[i].inode &&
                      links.all[end].device == links.all[i].device;)
            end++;
        if (end - i >= links.all[i].n_links)
            pruning->items[links.all[end - 1].item].freed += links.all[i].bytes;
    }
    psc_free(links.all);
    return st;
}

/* ---- removing and telling ---- */

static psc_status_t remove_item(const pruning_t *pruning, const item_t *item, psc_error_t *error)
{
    if (!item->is_leftover)
        return psp_saved_remove(pruning->folder, item->name, error);
    char *path = psp_saved_path(pruning->folder, item->name, NULL);
    psc_status_t st = path == NULL ? no_memory(pruning, error) : psc_file_remove_all(path, error);
    psc_free(path);
    return st;
}

static void tell_item(const pruning_t *pruning, item_t *item, json_t *all)
{
    psw_shown_t shown;
    const char *gone = pruning->dry_run ? "would be removed" : "removed";
    if (all == NULL) {
        (void)printf("%-36s%-18s%16" PRIu64 "  %s\n", psw_show(item->name, &shown),
                     item->goes ? gone : "stays", item->freed, item->why);
        return;
    }
    (void)json_array_append_new(all, json_pack("{s:o, s:b, s:s, s:I, s:o}", "name",
                                               psw_json_text(item->name, strlen(item->name)),
                                               "goes", item->goes, "why", item->why, "bytes_freed",
                                               (json_int_t)item->freed, "faults",
                                               item->faults != NULL ? item->faults : json_array()));
    item->faults = NULL;
}

/* Removes what goes, the oldest first, and tells of each as it is gone; a failure ends that. */
static psc_status_t carry_out(pruning_t *pruning, psc_error_t *error)
{
    psc_status_t st = PSC_OK;
    json_t *all = pruning->json ? json_array() : NULL;
    size_t n_gone = 0, n_checkpoints = 0;
    uint64_t freed = 0;
    if (all == NULL)
        (void)printf("%-36s%-18s%16s\n", "checkpoint", "", "bytes freed");
    for (size_t i = 0; st == PSC_OK && i < pruning->n; i++) {
        item_t *item = &pruning->items[i];
        if (item->goes && !pruning->dry_run)
            st = remove_item(pruning, item, error);
        if (st != PSC_OK)
            continue;
        tell_item(pruning, item, all);
        n_gone += item->goes;
        n_checkpoints += !item->is_leftover;
        freed += item->freed;
    }
    if (all == NULL) {
        (void)printf("%zu %s, %" PRIu64 " bytes %s\n", n_gone,
                     pruning->dry_run ? "would be removed" : "removed", freed,
                     pruning->dry_run ? "would be freed" : "freed");
        if (st == PSC_OK)
            st = psc_output_flush(error);
    } else {
        psc_error_t fault = PSC_ERROR_INIT;
        psc_status_t printed =
            psw_json_print(json_pack("{s:b, s:I, s:o}", "dry_run", pruning->dry_run, "bytes_freed",
                                     (json_int_t)freed, "checkpoints", all),
                           &fault);
        if (st == PSC_OK && printed != PSC_OK && error != NULL)
            *error = fault;
        st = st == PSC_OK ? printed : st;
    }
    if (st != PSC_OK || pruning->first == PSC_OK)
        return st;
    return psw_checkpoint_sum_up(pruning->folder, pruning->first, pruning->n_faulty, n_checkpoints,
                                 error);
}

psc_status_t psw_checkpoint_prune(const psw_visit_t *visit, const char *folder, const char *name,
                                  psc_error_t *error)
{
    const psw_checkpoint_options_t *options = visit->own;
    pruning_t pruning = {.folder = folder,
                         .keep = options->keep,
                         .json = visit->options.json,
                         .dry_run = options->dry_run};
    psp_saved_names_t names;
    int lock_fd = -1;
    (void)name;
    if (options->keep == 0)
        return psc_error_set(error, PSC_INVALID_ARGUMENT,
                             "embps checkpoint prune: wants --keep N, how many stay");
    /* Before a lock is made in a folder that is none of checkpoints. */
    psc_status_t st = psw_checkpoint_names(folder, &names, error);
    if (st != PSC_OK)
        return st;
    psp_saved_names_clear(&names);
    st = psp_saved_lock(folder, &lock_fd, error);
    if (st == PSC_OK)
        st = list_items(&pruning, error);
    if (st == PSC_OK) {
        choose(&pruning);
        st = count_bytes(&pruning, error);
    }
    if (st == PSC_OK)
        st = carry_out(&pruning, error);
    if (lock_fd >= 0)
        (void)close(lock_fd);
    for (size_t i = 0; i < pruning.n; i++)
        json_decref(pruning.items[i].faults);
    psc_free(pruning.items);
    return st;
}
