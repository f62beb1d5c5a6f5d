/*
 * FindTable: how a table was made, for those who only know its name, or not even that. Nothing is
 * created. Tables are found by name, or one after another in the order of their numbers.
 */
#include "ps/serve/serve.h"

#include <string.h>

/* The table that is asked for; NULL: there is none. */
static const ps_table_t *find(const ps_shard_t *shard, const psp_find_table_t *wanted)
{
    for (uint32_t i = 1; i < shard->n_tables; i++) {
        const ps_table_t *table = shard->tables[i];
        const bool fits = wanted->name[0] == '\0'
                              ? i > wanted->after
                              : table != NULL && strcmp(table->name, wanted->name) == 0;
        if (table != NULL && fits)
            return table;
    }
    return NULL;
}

psc_status_t ps_serve_find_table(ps_shard_t *shard, ps_session_t *session, ps_request_t *request,
                                 psc_error_t *error)
{
    (void)session;
    const ps_table_t *table = find(shard, &request->message.u.find_table);
    psp_message_t reply = {.kind = PSP_FIND_TABLE_REPLY};
    psp_find_table_reply_t *to = &reply.u.find_table_reply;
    to->found = table != NULL;
    if (table != NULL) {
        ps_table_describe(table, &to->options);
        to->rows_created = table->created;
    }
    return ps_shard_reply(shard, request, &reply, error);
}
