/*
 * Stdout is written late, at the latest when the process ends, and then nobody learns that the disk
 * was full or the descriptor closed. So every program asks at its end, here, whatever it printed:
 * help, a version, a report. One that prints again and again, or that has more to do after it
 * printed, asks itself on the way; the stream remembers an error, so that it counts whenever it is
 * asked for. A reader that has left ends a program by SIGPIPE, as it ends any other.
 */
#include "common/output.h"

#include "common/log.h"

#include <errno.h>
#include <stdio.h>

psc_status_t psc_output_flush(psc_error_t *error)
{
    errno = 0;
    if (fflush(stdout) != 0 || ferror(stdout))
        return psc_error_set_errno(error, errno != 0 ? errno : EIO, "cannot write the output");
    return PSC_OK;
}

int psc_output_end(int status)
{
    psc_error_t error = PSC_ERROR_INIT;
    if (status == 0 && psc_output_flush(&error) != PSC_OK) {
        psc_log(PSC_LOG_ERROR, "%s", error.message);
        return (int)error.code;
    }
    return status;
}
