/*
 * Raw RocksDB, called as well as it can be from C.
 *
 * The options come from the OPTIONS file that RocksDB keeps beside its data, so they are those of
 * the store whatever these are, and cannot drift away from them. Two are not in there: the block
 * cache, and the filters, of which a program in C leaves only the name behind: without a policy
 * the filters in the files are not used, which saves a reader work as long as all rows that he asks
 * for exist, as here. No store can know that; so raw reads have an advantage, unless filters are
 * asked for. Reads verify checksums and writes go through the log, unsynced, as the store's do.
 * Keys are read READ_CHUNK at a time: RocksDB itself works in groups of 32, and fewer pinned blocks
 * at a time stay in the processor's caches (measured: no slower than a whole batch at once).
 */
#include "tests/bench/bench_rocks.h"

#include "common/alloc.h"
#include "ps/store/cold.h"

#include <rocksdb/c.h>
#include <string.h>

#define READ_CHUNK 128
#define FILTERS "block_based_table_factory={filter_policy=bloomfilter:10:false}"

struct bench_rocks {
    rocksdb_t *db;
    rocksdb_column_family_handle_t *family;
    rocksdb_readoptions_t *read_options;
    rocksdb_writeoptions_t *write_options;
    rocksdb_writebatch_t *batch;
    rocksdb_cache_t *cache;
    uint64_t write_buffer;
    size_t value_bytes;
};

static psc_status_t failed(const char *what, char *text, psc_error_t *error)
{
    psc_status_t st = psc_error_set(error, PSC_IO, "RocksDB: %s: %s", what, text);
    rocksdb_free(text);
    return st;
}

static psc_status_t open_db(bench_rocks_t *rocks, const char *dir, bool filters, psc_error_t *error)
{
    rocksdb_env_t *env = rocksdb_create_default_env();
    rocksdb_options_t *options = NULL;
    rocksdb_options_t **family_options = NULL;
    char **names = NULL;
    size_t n = 0;
    char *text = NULL;
    rocksdb_load_latest_options(dir, env, false, rocks->cache, &options, &n, &names,
                                &family_options, &text);
    rocksdb_env_destroy(env);
    if (text != NULL)
        return failed("reading options", text, error);
    rocks->write_buffer = rocksdb_options_get_write_buffer_size(family_options[0]);
    if (filters)
        rocksdb_get_options_from_string(family_options[0], FILTERS, family_options[0], &text);
    if (n == 1 && text == NULL)
        rocks->db = rocksdb_open_column_families(options, dir, 1, (const char *const *)names,
                                                 (const rocksdb_options_t *const *)family_options,
                                                 &rocks->family, &text);
    rocksdb_load_latest_options_destroy(options, names, family_options, n);
    if (text != NULL) {
        rocks->db = NULL;
        rocks->family = NULL;
        return failed("opening", text, error);
    }
    if (rocks->db == NULL)
        return psc_error_set(error, PSC_UNSUPPORTED, "%.200s has %zu column families", dir, n);
    return PSC_OK;
}

psc_status_t bench_rocks_open(const bench_rocks_options_t *options, bench_rocks_t **rocks_out,
                              psc_error_t *error)
{
    bench_rocks_t *rocks = psc_alloc_zeroed(1, sizeof *rocks);
    if (rocks == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "out of memory for RocksDB");
    rocks->value_bytes = options->value_bytes;
    rocksdb_lru_cache_options_t *cache = rocksdb_lru_cache_options_create();
    rocksdb_lru_cache_options_set_capacity(cache, (size_t)options->cache_bytes);
    rocksdb_lru_cache_options_set_num_shard_bits(cache, 0); /* one reader, as the store's */
    rocks->cache = rocksdb_cache_create_lru_opts(cache);
    rocksdb_lru_cache_options_destroy(cache);
    rocks->read_options = rocksdb_readoptions_create();
    rocksdb_readoptions_set_verify_checksums(rocks->read_options, 1);
    rocks->write_options = rocksdb_writeoptions_create();
    rocks->batch = rocksdb_writebatch_create();
    psc_status_t st = open_db(rocks, options->dir, options->filters, error);
    if (st != PSC_OK) {
        bench_rocks_close(rocks);
        return st;
    }
    *rocks_out = rocks;
    return PSC_OK;
}

void bench_rocks_close(bench_rocks_t *rocks)
{
    if (rocks == NULL)
        return;
    rocksdb_writebatch_destroy(rocks->batch);
    if (rocks->family != NULL) /* before the database: it would abort otherwise */
        rocksdb_column_family_handle_destroy(rocks->family);
    if (rocks->db != NULL)
        rocksdb_close(rocks->db);
    rocksdb_readoptions_destroy(rocks->read_options);
    rocksdb_writeoptions_destroy(rocks->write_options);
    rocksdb_cache_destroy(rocks->cache);
    psc_free(rocks);
}

uint64_t bench_rocks_write_buffer(const bench_rocks_t *rocks)
{
    return rocks->write_buffer;
}

psc_status_t bench_rocks_copy(bench_rocks_t *rocks, const char *to, psc_error_t *error)
{
    char *text = NULL;
    rocksdb_checkpoint_t *checkpoint = rocksdb_checkpoint_object_create(rocks->db, &text);
    if (text == NULL) {
        rocksdb_checkpoint_create(checkpoint, to, 0, &text);
        rocksdb_checkpoint_object_destroy(checkpoint);
    }
    return text == NULL ? PSC_OK : failed("copying", text, error);
}

static psc_status_t read_chunk(bench_rocks_t *rocks, const uint8_t *keys, size_t n, size_t from,
                               size_t out_bytes, uint8_t *out, psc_error_t *error)
{
    const char *starts[READ_CHUNK];
    size_t sizes[READ_CHUNK];
    rocksdb_pinnableslice_t *values[READ_CHUNK];
    char *texts[READ_CHUNK];
    for (size_t i = 0; i < n; i++) {
        starts[i] = (const char *)keys + i * PS_COLD_KEY_BYTES;
        sizes[i] = PS_COLD_KEY_BYTES;
        texts[i] = NULL;
    }
    rocksdb_batched_multi_get_cf(rocks->db, rocks->read_options, rocks->family, n, starts, sizes,
                                 values, texts, true);
    psc_status_t st = PSC_OK;
    for (size_t i = 0; i < n; i++) {
        if (texts[i] != NULL) {
            st = failed("reading", texts[i], error);
            continue;
        }
        if (values[i] == NULL) {
            st = psc_error_set(error, PSC_NOT_FOUND, "RocksDB: a row is not there");
            continue;
        }
        size_t size;
        const char *value = rocksdb_pinnableslice_value(values[i], &size);
        if (size == rocks->value_bytes)
            memcpy(out + i * out_bytes, value + from, out_bytes);
        else
            st = psc_error_set(error, PSC_CORRUPT, "RocksDB: a row has %zu bytes, not %zu", size,
                               rocks->value_bytes);
        rocksdb_pinnableslice_destroy(values[i]);
    }
    return st;
}

psc_status_t bench_rocks_read(bench_rocks_t *rocks, const uint8_t *keys, size_t n, size_t from,
                              size_t out_bytes, uint8_t *out, psc_error_t *error)
{
    psc_status_t st = PSC_OK;
    for (size_t i = 0; st == PSC_OK && i < n; i += READ_CHUNK)
        st =
            read_chunk(rocks, keys + i * PS_COLD_KEY_BYTES, n - i < READ_CHUNK ? n - i : READ_CHUNK,
                       from, out_bytes, out + i * out_bytes, error);
    return st;
}

psc_status_t bench_rocks_load(bench_rocks_t *rocks, const uint8_t *keys, size_t n, uint8_t *values,
                              psc_error_t *error)
{
    return bench_rocks_read(rocks, keys, n, 0, rocks->value_bytes, values, error);
}

psc_status_t bench_rocks_store(bench_rocks_t *rocks, const uint8_t *keys, size_t n,
                               const uint8_t *values, psc_error_t *error)
{
    rocksdb_writebatch_clear(rocks->batch);
    for (size_t i = 0; i < n; i++)
        rocksdb_writebatch_put_cf(
            rocks->batch, rocks->family, (const char *)keys + i * PS_COLD_KEY_BYTES,
            PS_COLD_KEY_BYTES, (const char *)values + i * rocks->value_bytes, rocks->value_bytes);
    char *text = NULL;
    rocksdb_write(rocks->db, rocks->write_options, rocks->batch, &text);
    return text == NULL ? PSC_OK : failed("writing", text, error);
}
