/*
 * Links and copies. A link costs nothing and shares the bytes, so only files that nobody ever
 * writes again may be linked: RocksDB's tables, "*.sst". Across file systems a link fails, and the
 * file is copied. What is linked was synced by whoever wrote it; a copy is synced here. Threads:
 * none.
 */
#include "ps/checkpoint/place_file.h"

#include "common/alloc.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define COPY_BYTES ((size_t)1 << 20)

bool ps_place_is_constant(const char *name)
{
    const char *end = strrchr(name, '.');
    return end != NULL && strcmp(end, ".sst") == 0;
}

int ps_place_bytes(int fd, const uint8_t *bytes, size_t n)
{
    for (size_t done = 0; done < n;) {
        const ssize_t put = write(fd, bytes + done, n - done);
        if (put < 0 && errno != EINTR)
            return errno;
        done += put > 0 ? (size_t)put : 0;
    }
    return 0;
}

/* 0, or errno of whichever side failed. */
static int copy_bytes(int from, int to)
{
    uint8_t *bytes = psc_alloc(COPY_BYTES);
    int failed = bytes == NULL ? ENOMEM : 0;
    while (failed == 0) {
        const ssize_t got = read(from, bytes, COPY_BYTES);
        if (got == 0)
            break;
        if (got > 0)
            failed = ps_place_bytes(to, bytes, (size_t)got);
        else if (errno != EINTR)
            failed = errno;
    }
    psc_free(bytes);
    return failed == 0 && fsync(to) != 0 ? errno : failed;
}

psc_status_t ps_place_file(const char *from, const char *to, bool constant, psc_error_t *error)
{
    if (constant && link(from, to) == 0)
        return PSC_OK;
    const int in = open(from, O_RDONLY | O_CLOEXEC);
    if (in < 0)
        return psc_error_set_errno(error, errno, "cannot read %s", from);
    const int out = open(to, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0666);
    int failed = out < 0 ? errno : copy_bytes(in, out);
    if (out >= 0 && close(out) != 0 && failed == 0)
        failed = errno;
    (void)close(in);
    return failed == 0 ? PSC_OK : psc_error_set_errno(error, failed, "cannot write %s", to);
}
