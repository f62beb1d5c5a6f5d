/*
 * Fuzzing of the reader of row files: any bytes are refused in words, or give rows of which every
 * byte is there. Each input is read twice, the second time with a header that is rightly signed, so
 * that what its check stops is reached.
 *
 * The file lies in memory (memfd), so that nothing touches a disk.
 */
#include "worker/tool/row_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <xxhash.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void touch(const void *bytes, size_t size)
{
    static volatile uint8_t sink;
    for (size_t i = 0; i < size; i++)
        sink = (uint8_t)(sink ^ ((const uint8_t *)bytes)[i]);
}

static void read_all(const char *path)
{
    psw_row_reader_t *reader;
    embps_block_t block;
    psc_error_t error = PSC_ERROR_INIT;
    psc_status_t st = psw_row_reader_open(path, &reader, &error);
    if (st != PSC_OK) {
        if (error.message[0] == '\0')
            abort();
        return;
    }
    touch(psw_row_reader_options(reader)->optimizer,
          strlen(psw_row_reader_options(reader)->optimizer));
    do {
        st = psw_row_reader_next(reader, &block, &error);
        if (st != PSC_OK)
            break;
        touch(block.ids, block.n * sizeof *block.ids);
        touch(block.rows, block.n * block.dim * sizeof *block.rows);
        touch(block.state, block.n * block.state_floats * sizeof *block.state);
        touch(block.counts, block.counts != NULL ? block.n * 2 * sizeof *block.counts : 0);
    } while (block.n != 0);
    psw_row_reader_close(reader);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum { HEADER = 28 };
    uint32_t n_options = 0;
    char path[64];
    const int fd = memfd_create("rows", MFD_CLOEXEC);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size)
        abort();
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    read_all(path);
    if (size >= HEADER)
        memcpy(&n_options, data + HEADER - 4, 4);
    if (size >= HEADER && n_options <= size - HEADER) { /* the header, rightly signed */
        const uint64_t check = XXH3_64bits(data, HEADER + n_options);
        if (pwrite(fd, &check, 8, HEADER + (off_t)n_options) != 8)
            abort();
        read_all(path);
    }
    close(fd);
    return 0;
}
