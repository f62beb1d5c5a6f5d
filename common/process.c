/* Global state of a program: abort hook and log label. Set before threads start, read by all. */
#include "common/process.h"

#include <stdio.h>
#include <unistd.h>

static psc_abort_fn abort_hook;
static char process_label[32];

void psc_process_set_abort(psc_abort_fn hook)
{
    abort_hook = hook;
}

void psc_process_set_label(const char *label)
{
    (void)snprintf(process_label, sizeof process_label, "%s", label);
}

const char *psc_process_label(void)
{
    return process_label;
}

void psc_process_abort(psc_status_t code)
{
    if (abort_hook != NULL)
        abort_hook((int)code);
    _exit((int)code);
}
