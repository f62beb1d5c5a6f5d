/*
 * The table of request kinds. A new kind is a message in proto/, a file here and a line below; the
 * shard knows none of them by name, so that ps/table never includes ps/serve. Threads: all is
 * const.
 */
#include "ps/serve/serve.h"

const ps_serve_fn ps_serve_functions[PS_KINDS] = {
    [PSP_HELLO] = ps_serve_hello,
    [PSP_OPEN_TABLE] = ps_serve_open_table,
    [PSP_PULL] = ps_serve_pull,
    [PSP_PUSH] = ps_serve_push,
    [PSP_CLOCK] = ps_serve_clock,
    [PSP_BARRIER] = ps_serve_barrier,
    [PSP_STATS] = ps_serve_stats,
    [PSP_GOODBYE] = ps_serve_goodbye,
    [PSP_PREFETCH] = ps_serve_prefetch,
    [PSP_ATTACH] = ps_serve_attach,
    [PSP_TOUCHES] = ps_serve_touches,
    [PSP_FIND_TABLE] = ps_serve_find_table,
    [PSP_EXPORT] = ps_serve_export,
    [PSP_IMPORT] = ps_serve_import,
    [PSP_CHECKPOINT] = ps_serve_checkpoint,
    [PSP_WATCH] = ps_serve_watch,
};
