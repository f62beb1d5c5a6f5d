/*
 * The cold tier in RocksDB: the only file that knows it.
 *
 * What is stored: one column family; the key says table, slot, id, so a table, and a slot in it, is
 * a key range; the value is a row record. Ids are spread by nothing but their order, so blocks hold
 * neighbours; reads are random points, but for those of an export, which follow a scan of their
 * keys and go along an iterator.
 *
 * Memory is bounded by what open is given, M: two thirds for memtables (two of a third each: one
 * filling, one being flushed; db_write_buffer_size over both), one third for the block cache, which
 * holds index and filter blocks as well. The cache has no strict limit: its refusal would be an
 * error in the middle of a read. Instead at most 64 keys are read at a time, so that it can go over
 * by 64 blocks at the most. Indexes and filters are partitioned into blocks of 4 KiB, or those of a
 * large file would fill a small cache alone. The table cache is bounded by max_open_files, and not
 * divided: of the 64 parts that it has by default each would keep one or two files open, and files
 * that meet in a part would be opened again and again. What comes on top is one batch being written
 * and the buffers of one compaction.
 *
 * The write-ahead log is written, not synced: rows survive the death of the process; sync() makes
 * them survive that of the machine. A write that RocksDB would hold up is refused (BUSY) and tried
 * again by the store. Checksums are verified on every read. Files are not mapped, although that
 * would save a copy: a damaged disk would end the process by a signal. Options that were measured
 * and what came of it: README.md, "RocksDB's options".
 *
 * Errors: text of RocksDB becomes a code here, and is freed here. One thread calls read, write and
 * sync (the store's I/O thread); RocksDB has two background threads of its own.
 */
#include "ps/store/cold.h"

#include "common/alloc.h"

#include <rocksdb/c.h>
#include <string.h>
#include <sys/resource.h>

#define MIB ((uint64_t)1 << 20)
#define READ_CHUNK 64
#define ALONG_MIN 8   /* keys that are worth an iterator */
#define ALONG_STEPS 8 /* from one of them to the next, before it seeks */
#define BLOCK_BYTES 4096
#define FILTER_BITS 10
#define MEMTABLE_FILTER_SHARE 0.01 /* of a write buffer */
#define MAX_BUFFER (64 * MIB)
#define WAL_BUFFERS 8 /* what the logs may hold, in write buffers */
/* What RocksDB adds: 8 bytes to a key, the lengths to a record; to a block its checksum, restart
   points, and a key with a handle in the index. */
#define RECORD_EXTRA 13
#define BLOCK_EXTRA 48

typedef struct rocks_tier {
    ps_cold_t cold;
    char *dir;
    rocksdb_options_t *options;
    rocksdb_readoptions_t *read_options, *scan_options;
    rocksdb_writeoptions_t *write_options;
    rocksdb_cache_t *cache;
    rocksdb_t *db;
    rocksdb_column_family_handle_t *family;
    rocksdb_writebatch_t *batch;
    uint8_t scanned[2][PS_COLD_KEY_BYTES]; /* the first and last key of the last scan */
    size_t n_scanned;                      /* 0: it found none */
} rocks_tier_t;

uint64_t ps_cold_rocks_memory(uint64_t memory_bytes)
{
    uint64_t bytes = memory_bytes / 8;
    if (bytes < 3 * MIB)
        bytes = 3 * MIB;
    if (bytes > 1024 * MIB)
        bytes = 1024 * MIB;
    return bytes;
}

static uint64_t buffer_bytes(uint64_t memory_bytes)
{
    uint64_t buffer = memory_bytes / 3;
    return buffer < MAX_BUFFER ? buffer : MAX_BUFFER;
}

/* A block is closed when the next record would go beyond its size; a larger record fills one. */
uint64_t ps_cold_rocks_row_bytes(size_t record_bytes)
{
    uint64_t bytes = PS_COLD_KEY_BYTES + RECORD_EXTRA + (uint64_t)record_bytes;
    uint64_t per_block = bytes < BLOCK_BYTES ? BLOCK_BYTES / bytes : 1;
    return bytes + (FILTER_BITS + 7) / 8 + BLOCK_EXTRA / per_block;
}

/*
 * Levels grow by 10, and the last may have less than the one before had: old versions of rows are
 * as many as the live ones at worst, usually a tenth; level 0, logs and a compaction's output come
 * on top.
 */
uint64_t ps_cold_rocks_disk(uint64_t memory_bytes, uint64_t live_bytes)
{
    return 2 * live_bytes + 2 * WAL_BUFFERS * buffer_bytes(memory_bytes) + 4 * MIB;
}

/* Translates and frees text. */
static psc_status_t rocks_error(psc_error_t *error, const char *what, const char *dir, char *text)
{
    psc_status_t code = PSC_IO;
    if (strstr(text, "No space left") != NULL || strstr(text, "Disk quota exceeded") != NULL)
        code = PSC_DISK_FULL;
    else if (strstr(text, "While lock file") != NULL || strstr(text, "lock hold by") != NULL)
        code = PSC_IN_USE;
    else if (strncmp(text, "Corruption", 10) == 0)
        code = PSC_CORRUPT;
    (void)psc_error_set(error, code, "%s %s: %s", what, dir, text);
    rocksdb_free(text);
    return code;
}

static psc_status_t wrong_size(const rocks_tier_t *tier, size_t size, size_t wanted,
                               psc_error_t *error)
{
    return psc_error_set(error, PSC_CORRUPT, "reading from %s: a row has %zu bytes, not %zu",
                         tier->dir, size, wanted);
}

/* Reads n <= READ_CHUNK sorted keys. */
static psc_status_t read_chunk(rocks_tier_t *tier, ps_cold_read_t *reads, size_t n,
                               psc_error_t *error)
{
    const char *keys[READ_CHUNK];
    size_t sizes[READ_CHUNK];
    rocksdb_pinnableslice_t *values[READ_CHUNK];
    char *texts[READ_CHUNK];
    for (size_t i = 0; i < n; i++) {
        keys[i] = (const char *)reads[i].key;
        sizes[i] = PS_COLD_KEY_BYTES;
        values[i] = NULL;
        texts[i] = NULL;
    }
    rocksdb_batched_multi_get_cf(tier->db, tier->read_options, tier->family, n, keys, sizes, values,
                                 texts, true);
    psc_status_t st = PSC_OK;
    for (size_t i = 0; i < n; i++) {
        if (texts[i] != NULL) {
            if (st == PSC_OK)
                st = rocks_error(error, "reading from", tier->dir, texts[i]);
            else
                rocksdb_free(texts[i]);
        }
        reads[i].found = values[i] != NULL;
        if (values[i] == NULL)
            continue;
        size_t size;
        const char *value = rocksdb_pinnableslice_value(values[i], &size);
        if (size == reads[i].size)
            ps_cold_read_fill(&reads[i], (const uint8_t *)value);
        else if (st == PSC_OK)
            st = wrong_size(tier, size, reads[i].size, error);
        rocksdb_pinnableslice_destroy(values[i]);
    }
    return st;
}

/* Goes to the first key from this one on. Returns whether it is the same. */
static bool step_to(rocksdb_iterator_t *at, const uint8_t *key)
{
    for (size_t steps = 0; rocksdb_iter_valid(at); steps++) {
        size_t size;
        const char *found = rocksdb_iter_key(at, &size);
        const int order = size == PS_COLD_KEY_BYTES ? memcmp(found, key, PS_COLD_KEY_BYTES) : -1;
        if (order >= 0)
            return order == 0;
        if (steps == ALONG_STEPS)
            rocksdb_iter_seek(at, (const char *)key, PS_COLD_KEY_BYTES);
        else
            rocksdb_iter_next(at);
    }
    return false;
}

/* Reads neighbours, sorted by key, as they lie: what each costs alone, filter, index and block, is
 * paid for a block of them. */
static psc_status_t read_along(rocks_tier_t *tier, ps_cold_read_t *reads, size_t n,
                               psc_error_t *error)
{
    rocksdb_readoptions_set_iterate_upper_bound(tier->scan_options, NULL, 0);
    rocksdb_iterator_t *at = rocksdb_create_iterator_cf(tier->db, tier->scan_options, tier->family);
    psc_status_t st = PSC_OK;
    rocksdb_iter_seek(at, (const char *)reads[0].key, PS_COLD_KEY_BYTES);
    for (size_t i = 0; i < n; i++) {
        reads[i].found = step_to(at, reads[i].key);
        if (!reads[i].found)
            continue;
        size_t size;
        const char *value = rocksdb_iter_value(at, &size);
        if (size == reads[i].size)
            ps_cold_read_fill(&reads[i], (const uint8_t *)value);
        else if (st == PSC_OK)
            st = wrong_size(tier, size, reads[i].size, error);
    }
    char *text = NULL;
    rocksdb_iter_get_error(at, &text);
    rocksdb_iter_destroy(at);
    if (text != NULL && st == PSC_OK)
        return rocks_error(error, "reading from", tier->dir, text);
    rocksdb_free(text);
    return st;
}

/* Whether all keys are among those of the last scan, whose rows are read next as a rule. */
static bool were_scanned(const rocks_tier_t *tier, const ps_cold_read_t *reads, size_t n)
{
    return n >= ALONG_MIN && n <= tier->n_scanned &&
           memcmp(reads[0].key, tier->scanned[0], PS_COLD_KEY_BYTES) >= 0 &&
           memcmp(reads[n - 1].key, tier->scanned[1], PS_COLD_KEY_BYTES) <= 0;
}

static psc_status_t rocks_read(ps_cold_t *cold, ps_cold_read_t *reads, size_t n, psc_error_t *error)
{
    rocks_tier_t *tier = (rocks_tier_t *)(void *)cold;
    psc_status_t st = PSC_OK;
    if (were_scanned(tier, reads, n))
        return read_along(tier, reads, n, error);
    for (size_t i = 0; st == PSC_OK && i < n; i += READ_CHUNK)
        st = read_chunk(tier, reads + i, n - i < READ_CHUNK ? n - i : READ_CHUNK, error);
    return st;
}

static psc_status_t rocks_write(ps_cold_t *cold, const ps_cold_write_t *writes, size_t n,
                                psc_error_t *error)
{
    rocks_tier_t *tier = (rocks_tier_t *)(void *)cold;
    rocksdb_writebatch_clear(tier->batch);
    for (size_t i = 0; i < n; i++) {
        const char *key = (const char *)writes[i].key;
        if (writes[i].record != NULL)
            rocksdb_writebatch_put_cf(tier->batch, tier->family, key, PS_COLD_KEY_BYTES,
                                      (const char *)writes[i].record, writes[i].size);
        else
            rocksdb_writebatch_delete_cf(tier->batch, tier->family, key, PS_COLD_KEY_BYTES);
    }
    char *text = NULL;
    rocksdb_write(tier->db, tier->write_options, tier->batch, &text);
    if (text == NULL)
        return PSC_OK;
    if (strstr(text, "Write stall") != NULL) {
        rocksdb_free(text);
        return psc_error_set(error, PSC_BUSY, "writing to %s has to wait for compactions",
                             tier->dir);
    }
    return rocks_error(error, "writing to", tier->dir, text);
}

/* What an iterator reads is not kept in the cache: point reads need it more. */
static psc_status_t rocks_scan(ps_cold_t *cold, ps_cold_scan_t *scan, psc_error_t *error)
{
    rocks_tier_t *tier = (rocks_tier_t *)(void *)cold;
    rocksdb_readoptions_set_iterate_upper_bound(tier->scan_options, (const char *)scan->to,
                                                PS_COLD_KEY_BYTES);
    rocksdb_iterator_t *at = rocksdb_create_iterator_cf(tier->db, tier->scan_options, tier->family);
    psc_status_t st = PSC_OK;
    rocksdb_iter_seek(at, (const char *)scan->from, PS_COLD_KEY_BYTES);
    scan->n = 0;
    while (rocksdb_iter_valid(at) && scan->n < scan->max) {
        size_t size;
        const char *value = rocksdb_iter_value(at, &size);
        if (!ps_cold_scan_fits(scan, size)) {
            st = wrong_size(tier, size, scan->head_bytes, error);
            break;
        }
        memcpy(scan->heads + scan->n++ * scan->head_bytes, value, scan->head_bytes);
        const char *key = rocksdb_iter_key(at, &size);
        if (size == PS_COLD_KEY_BYTES)
            memcpy(tier->scanned[scan->n != 1], key, size);
        rocksdb_iter_next(at);
    }
    scan->end = !rocksdb_iter_valid(at);
    tier->n_scanned = scan->n > 1 ? scan->n : 0;
    char *text = NULL;
    rocksdb_iter_get_error(at, &text);
    rocksdb_iter_destroy(at);
    if (text != NULL && st == PSC_OK)
        return rocks_error(error, "reading from", tier->dir, text);
    rocksdb_free(text);
    return st;
}

static psc_status_t rocks_sync(ps_cold_t *cold, psc_error_t *error)
{
    rocks_tier_t *tier = (rocks_tier_t *)(void *)cold;
    char *text = NULL;
    rocksdb_flush_wal(tier->db, 1, &text);
    return text == NULL ? PSC_OK : rocks_error(error, "syncing", tier->dir, text);
}

/* Takes what was made so far. Handles before the database: it would abort otherwise. */
static void rocks_destroy(ps_cold_t *cold)
{
    if (cold == NULL)
        return;
    rocks_tier_t *tier = (rocks_tier_t *)(void *)cold;
    if (tier->batch != NULL)
        rocksdb_writebatch_destroy(tier->batch);
    if (tier->family != NULL)
        rocksdb_column_family_handle_destroy(tier->family);
    if (tier->db != NULL)
        rocksdb_close(tier->db);
    if (tier->read_options != NULL)
        rocksdb_readoptions_destroy(tier->read_options);
    if (tier->scan_options != NULL)
        rocksdb_readoptions_destroy(tier->scan_options);
    if (tier->write_options != NULL)
        rocksdb_writeoptions_destroy(tier->write_options);
    if (tier->options != NULL)
        rocksdb_options_destroy(tier->options);
    if (tier->cache != NULL)
        rocksdb_cache_destroy(tier->cache);
    psc_free(tier->dir);
    psc_free(tier);
}

/* Flushes, so that no log need be copied; the other files are linked. */
static psc_status_t rocks_save(ps_cold_t *cold, const char *folder, psc_error_t *error)
{
    rocks_tier_t *tier = (rocks_tier_t *)(void *)cold;
    char *text = NULL;
    rocksdb_checkpoint_t *checkpoint = rocksdb_checkpoint_object_create(tier->db, &text);
    if (text == NULL)
        rocksdb_checkpoint_create(checkpoint, folder, 0, &text);
    if (checkpoint != NULL)
        rocksdb_checkpoint_object_destroy(checkpoint);
    return text == NULL ? PSC_OK : rocks_error(error, "saving to", folder, text);
}

static const ps_cold_ops_t rocks_ops = {
    .name = "RocksDB",
    .read = rocks_read,
    .write = rocks_write,
    .scan = rocks_scan,
    .sync = rocks_sync,
    .save = rocks_save,
    .destroy = rocks_destroy,
};

/* Files that RocksDB may hold open: each costs 10 to 20 KiB of memory and a descriptor. */
static int max_open_files(uint64_t memory_bytes)
{
    uint64_t n = 96 + memory_bytes / MIB * 4;
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
        n > limit.rlim_cur / 4)
        n = limit.rlim_cur / 4;
    if (n > 2048)
        n = 2048;
    return n < 24 ? 24 : (int)n;
}

/* How tables (files) look: for random reads of single rows. */
static rocksdb_block_based_table_options_t *table_options(rocksdb_cache_t *cache)
{
    rocksdb_block_based_table_options_t *table = rocksdb_block_based_options_create();
    /* A read fetches one row: the smaller the block, the less is read for nothing; below 4 KiB the
       index grows and the disk reads 4 KiB anyway. A larger row gets a block of its own. */
    rocksdb_block_based_options_set_block_size(table, BLOCK_BYTES);
    /* 10 bits a key: 1% of the reads of absent rows touch data. Taken by the options. */
    rocksdb_block_based_options_set_filter_policy(
        table, rocksdb_filterpolicy_create_bloom_full(FILTER_BITS));
    rocksdb_block_based_options_set_format_version(table, 5);
    rocksdb_block_based_options_set_block_cache(table, cache);
    rocksdb_block_based_options_set_cache_index_and_filter_blocks(table, 1);
    rocksdb_block_based_options_set_cache_index_and_filter_blocks_with_high_priority(table, 1);
    rocksdb_block_based_options_set_index_type(
        table, rocksdb_block_based_table_index_type_two_level_index_search);
    rocksdb_block_based_options_set_partition_filters(table, 1);
    rocksdb_block_based_options_set_metadata_block_size(table, BLOCK_BYTES);
    rocksdb_block_based_options_set_pin_top_level_index_and_filter(table, 1);
    return table;
}

static void set_options(rocksdb_options_t *options, uint64_t memory_bytes)
{
    uint64_t buffer = buffer_bytes(memory_bytes);
    rocksdb_options_set_create_if_missing(options, 1);
    rocksdb_options_set_paranoid_checks(options, 1);
    rocksdb_options_set_compression(options, rocksdb_no_compression); /* floats do not shrink */
    rocksdb_options_set_write_buffer_size(options, (size_t)buffer);
    rocksdb_options_set_max_write_buffer_number(options, 2);
    rocksdb_options_set_db_write_buffer_size(options, (size_t)(2 * buffer));
    /* Most rows that are read are not in a memtable: a filter of 10 to 20 bits a key says so. */
    rocksdb_options_set_memtable_whole_key_filtering(options, 1);
    rocksdb_options_set_memtable_prefix_bloom_size_ratio(options, MEMTABLE_FILTER_SHARE);
    /* Level 1 holds as much as level 0 gets before it is compacted, times two, so that a compaction
       of these never rewrites much more than it brings; files grow with the level, so that there
       are few of them. */
    rocksdb_options_set_level0_file_num_compaction_trigger(options, 4);
    rocksdb_options_set_level0_slowdown_writes_trigger(options, 20);
    rocksdb_options_set_level0_stop_writes_trigger(options, 36);
    rocksdb_options_set_max_bytes_for_level_base(options, 8 * buffer);
    rocksdb_options_set_target_file_size_base(options,
                                              4 * buffer < 64 * MIB ? 4 * buffer : 64 * MIB);
    rocksdb_options_set_target_file_size_multiplier(options, 2);
    rocksdb_options_set_max_total_wal_size(options, WAL_BUFFERS * buffer);
    rocksdb_options_set_max_background_jobs(options, 2);
    rocksdb_options_set_max_open_files(options, max_open_files(memory_bytes));
    rocksdb_options_set_table_cache_numshardbits(options, 0);
    rocksdb_options_set_max_file_opening_threads(options, 1);
    rocksdb_options_set_skip_stats_update_on_db_open(options, 1);
    /* Its log: warnings only, two files of 1 MiB. */
    rocksdb_options_set_info_log_level(options, 2);
    rocksdb_options_set_max_log_file_size(options, MIB);
    rocksdb_options_set_keep_log_file_num(options, 2);
    rocksdb_options_set_stats_dump_period_sec(options, 0);
    rocksdb_options_set_stats_persist_period_sec(options, 0);
}

static rocksdb_cache_t *create_cache(uint64_t bytes)
{
    rocksdb_lru_cache_options_t *options = rocksdb_lru_cache_options_create();
    rocksdb_lru_cache_options_set_capacity(options, (size_t)bytes);
    /* One reader and a compaction: shards would only divide a small cache further. */
    rocksdb_lru_cache_options_set_num_shard_bits(options, 0);
    rocksdb_cache_t *cache = rocksdb_cache_create_lru_opts(options);
    rocksdb_lru_cache_options_destroy(options);
    return cache;
}

static bool is_empty(rocks_tier_t *tier)
{
    rocksdb_iterator_t *iterator =
        rocksdb_create_iterator_cf(tier->db, tier->read_options, tier->family);
    rocksdb_iter_seek_to_first(iterator);
    char *text = NULL;
    rocksdb_iter_get_error(iterator, &text);
    bool empty = !rocksdb_iter_valid(iterator) && text == NULL;
    rocksdb_free(text); /* an error will show up again at the first read */
    rocksdb_iter_destroy(iterator);
    return empty;
}

/* A tier whose database is not open yet. */
static psc_status_t create_tier(const char *dir, uint64_t memory_bytes, rocks_tier_t **tier_out,
                                psc_error_t *error)
{
    rocks_tier_t *tier = psc_alloc_zeroed(1, sizeof *tier);
    if (tier == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "out of memory for a RocksDB tier");
    tier->cold.ops = &rocks_ops;
    tier->dir = psc_strdup(dir);
    if (tier->dir == NULL) {
        rocks_destroy(&tier->cold);
        return psc_error_set(error, PSC_NO_MEMORY, "out of memory for a RocksDB tier");
    }
    if (memory_bytes < 3 * MIB)
        memory_bytes = 3 * MIB;
    tier->cache = create_cache(memory_bytes - 2 * buffer_bytes(memory_bytes));
    tier->options = rocksdb_options_create();
    set_options(tier->options, memory_bytes);
    rocksdb_block_based_table_options_t *table = table_options(tier->cache);
    rocksdb_options_set_block_based_table_factory(tier->options, table);
    rocksdb_block_based_options_destroy(table);
    tier->read_options = rocksdb_readoptions_create();
    rocksdb_readoptions_set_verify_checksums(tier->read_options, 1);
    tier->scan_options = rocksdb_readoptions_create();
    rocksdb_readoptions_set_verify_checksums(tier->scan_options, 1);
    rocksdb_readoptions_set_fill_cache(tier->scan_options, 0);
    tier->write_options = rocksdb_writeoptions_create();
    rocksdb_writeoptions_set_no_slowdown(tier->write_options, 1);
    tier->batch = rocksdb_writebatch_create();
    *tier_out = tier;
    return PSC_OK;
}

/* Opens its database. Takes tier. */
static psc_status_t open_tier(rocks_tier_t *tier, bool to_read, ps_cold_t **cold_out,
                              psc_error_t *error)
{
    const char *names[] = {"default"};
    const rocksdb_options_t *family_options[] = {tier->options};
    char *text = NULL;
    tier->db = to_read ? rocksdb_open_for_read_only_column_families(tier->options, tier->dir, 1,
                                                                    names, family_options,
                                                                    &tier->family, 0, &text)
                       : rocksdb_open_column_families(tier->options, tier->dir, 1, names,
                                                      family_options, &tier->family, &text);
    if (text != NULL) {
        psc_status_t st = rocks_error(error, "opening", tier->dir, text);
        tier->db = NULL;
        tier->family = NULL;
        rocks_destroy(&tier->cold);
        return st;
    }
    tier->cold.was_empty = is_empty(tier);
    *cold_out = &tier->cold;
    return PSC_OK;
}

psc_status_t ps_cold_rocks_open(const char *dir, uint64_t memory_bytes, ps_cold_t **cold_out,
                                psc_error_t *error)
{
    rocks_tier_t *tier;
    psc_status_t st = create_tier(dir, memory_bytes, &tier, error);
    return st == PSC_OK ? open_tier(tier, false, cold_out, error) : st;
}

/* A tier to read from, whose database is not open yet. */
static psc_status_t create_reader(const char *dir, const char *log_dir, uint64_t memory_bytes,
                                  rocks_tier_t **tier_out, psc_error_t *error)
{
    psc_status_t st = create_tier(dir, memory_bytes, tier_out, error);
    if (st != PSC_OK)
        return st;
    rocksdb_options_set_create_if_missing((*tier_out)->options, 0);
    rocksdb_options_set_db_log_dir((*tier_out)->options, log_dir);
    return PSC_OK;
}

psc_status_t ps_cold_rocks_open_to_read(const char *dir, const char *log_dir, uint64_t memory_bytes,
                                        ps_cold_t **cold_out, psc_error_t *error)
{
    rocks_tier_t *tier;
    psc_status_t st = create_reader(dir, log_dir, memory_bytes, &tier, error);
    return st == PSC_OK ? open_tier(tier, true, cold_out, error) : st;
}

psc_status_t ps_cold_rocks_check(const char *dir, const char *log_dir, uint64_t memory_bytes,
                                 ps_cold_record_fn fn, void *context, psc_error_t *error)
{
    rocks_tier_t *tier;
    ps_cold_t *cold;
    psc_status_t st = create_reader(dir, log_dir, memory_bytes, &tier, error);
    if (st != PSC_OK)
        return st;
    /* A log of one that was closed has no torn end. */
    rocksdb_options_set_wal_recovery_mode(tier->options, rocksdb_absolute_consistency_recovery);
    st = open_tier(tier, true, &cold, error);
    if (st != PSC_OK)
        return st;
    rocksdb_iterator_t *at = rocksdb_create_iterator_cf(tier->db, tier->scan_options, tier->family);
    for (rocksdb_iter_seek_to_first(at); st == PSC_OK && rocksdb_iter_valid(at);
         rocksdb_iter_next(at)) {
        size_t n_key, size;
        const char *key = rocksdb_iter_key(at, &n_key), *record = rocksdb_iter_value(at, &size);
        st = fn(context, (const uint8_t *)key, n_key, (const uint8_t *)record, size, error);
    }
    char *text = NULL;
    rocksdb_iter_get_error(at, &text);
    rocksdb_iter_destroy(at);
    if (text != NULL && st == PSC_OK)
        st = rocks_error(error, "reading from", tier->dir, text);
    else
        rocksdb_free(text);
    rocks_destroy(cold);
    return st;
}
