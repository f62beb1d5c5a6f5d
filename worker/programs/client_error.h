/* Errors of the public library as errors of this tree; the reverse of psw_error_export. */
#ifndef WORKER_PROGRAMS_CLIENT_ERROR_H
#define WORKER_PROGRAMS_CLIENT_ERROR_H

#include "common/status.h"
#include "embps.h"

/* Fills to (may be NULL) and returns the code. */
static inline psc_status_t psw_error_import(const embps_error_t *from, psc_error_t *to)
{
    psc_status_t code = psc_status_from_number((uint32_t)from->code);
    if (to != NULL) {
        (void)psc_error_set(to, code, "%s", from->message);
        to->rank = from->rank;
        to->id = from->id;
    }
    return code;
}

#endif
