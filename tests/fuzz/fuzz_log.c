/*
 * Fuzzing of a log: any bytes as a segment are refused as damaged, or of a later format, or give
 * records that lie in the file one behind the other; and records of any bytes, each with right
 * checksums, are replayed into a shard or refused as what does not fit.
 *
 * The first byte chooses what the others are: a file, or records: a kind, two bytes of length, the
 * body, and so on. The seeds in corpus/log are of a real log.
 */
#include "ps/log/log_replay.h"

#include "common/alloc.h"
#include "common/file.h"
#include "ps/serve/serve.h"
#include "ps/store/cold.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const ps_log_head_t head = {.lineage = 1, .n_servers = 1, .number = 1, .first = 1};

static void require(bool condition)
{
    if (!condition)
        abort();
}

static void append(const char *path, const void *bytes, size_t n)
{
    FILE *file = fopen(path, "ab");
    require(file != NULL && fwrite(bytes, 1, n, file) == n && fclose(file) == 0);
}

static void read_file(const char *path, ps_log_tail_t tail)
{
    ps_log_reader_t *reader = NULL;
    uint64_t at = PS_LOG_HEAD_BYTES, end = 0;
    bool more = true;
    psc_status_t st = ps_log_reader_open(path, 1, &reader, NULL);
    while (st == PSC_OK && more) {
        ps_log_record_t record;
        st = ps_log_reader_next(reader, tail, &record, &more, &end, NULL);
        if (st != PSC_OK || !more)
            break;
        require(record.offset == at && record.n <= PS_LOG_RECORD_MAX);
        at += ps_log_record_bytes(record.n);
        require(at <= ps_log_reader_bytes(reader));
    }
    require(st != PSC_OK || end == at);
    require(st == PSC_OK || st == PSC_CORRUPT || st == PSC_UNSUPPORTED || st == PSC_MISMATCH);
    ps_log_reader_close(reader);
}

static void write_records(const char *path, const uint8_t *data, size_t size)
{
    uint64_t at = PS_LOG_HEAD_BYTES;
    while (size >= 3) {
        uint8_t heads[PS_LOG_RECORD_HEAD_BYTES];
        const uint8_t zeros[8] = {0};
        size_t n = (size_t)data[1] | (size_t)data[2] << 8;
        n = n < size - 3 ? n : size - 3;
        const size_t rest = (size_t)(ps_log_record_bytes(n) - sizeof heads - n);
        ps_log_fill_head(heads, 1, at, 0, (ps_log_kind_t)(1 + data[0] % PS_LOG_KIND_LAST), data + 3,
                         n);
        append(path, heads, sizeof heads);
        append(path, data + 3, n);
        append(path, zeros, rest);
        at += ps_log_record_bytes(n);
        data += 3 + n;
        size -= 3 + n;
    }
}

static void no_reply(void *context, uint32_t peer, psp_buffer_t *buffer)
{
    (void)context;
    (void)peer;
    psp_buffer_put(buffer);
    abort(); /* nobody asked */
}

static void replay(char *folder)
{
    const ps_cold_faults_t faults = {0};
    ps_store_options_t of_store = {.memory_bytes = PS_STORE_MIN_MEMORY};
    ps_shard_options_t options = {.serve = ps_serve_functions,
                                  .reply = no_reply,
                                  .cluster = 1,
                                  .n_servers = 1,
                                  .n_guests = 2,
                                  .max_message_bytes = PSP_MAX_MESSAGE_BYTES};
    ps_log_chain_t chain = {.folder = folder, .from = 1, .to = 1};
    ps_log_replayed_t replayed;
    ps_shard_t *shard;
    psc_error_t error = PSC_ERROR_INIT;
    require(psp_pool_create((size_t)1 << 20, &options.pool, &error) == PSC_OK);
    require(ps_cold_memory_create(&faults, &of_store.cold, &error) == PSC_OK);
    require(ps_store_open(&of_store, &options.store, &error) == PSC_OK);
    require(ps_shard_create(&options, &shard, &error) == PSC_OK);
    const psc_status_t st = ps_log_replay(&chain, shard, &replayed, &error);
    require(st == PSC_OK || strstr(error.message, "cannot be replayed at offset") != NULL);
    ps_shard_destroy(shard);
    require(ps_store_close(options.store, true, &error) == PSC_OK);
    psp_pool_destroy(options.pool);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    const char *below = getenv("TMPDIR");
    char folder[256];
    (void)snprintf(folder, sizeof folder, "%s/embps-fuzz.XXXXXX", below != NULL ? below : "/tmp");
    require(mkdtemp(folder) != NULL);
    char *path = ps_log_path(folder, 1);
    require(path != NULL);
    if ((data[0] & 1) != 0) {
        append(path, data + 1, size - 1);
        for (int tail = PS_LOG_TAIL_NONE; tail <= PS_LOG_TAIL_ANY; tail++)
            read_file(path, (ps_log_tail_t)tail);
    } else {
        require(ps_log_make(folder, &head, NULL) == PSC_OK);
        write_records(path, data + 1, size - 1);
        replay(folder);
    }
    psc_free(path);
    require(psc_file_remove_all(folder, NULL) == PSC_OK);
    return 0;
}
