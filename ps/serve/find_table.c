/*
 * FindTable: how a table was made, for those who only know its name, or not even that. Nothing is
 * created. Tables are found by name, or one after another in the order of their numbers.
 */
#include "ps/serve/serve.h"

#include <string.h>

/* The table that is asked for; NULL: there is none. Of a list, only those that may be seen. */
static const ps_table_t *find(const ps_shard_t *shard, const ps_request_t *request)
{
    const psp_find_table_t *wanted = &request->message.u.find_table;
    for (uint32_t i = 1; i < shard->n_tables; i++) {
        const ps_table_t *table = shard->tables[i];
        const bool fits =
            wanted->name[0] == '\0'
                ? i > wanted->after && table != NULL &&
                      ps_permit_table(request, table->name, PSP_RIGHT_ANY, NULL) == PSC_OK
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
    const char *name = request->message.u.find_table.name;
    psc_status_t st = PSC_OK;
    if (name[0] != '\0')
        st = ps_permit_table(request, name, PSP_RIGHT_ANY, error);
    if (st != PSC_OK)
        return st;
    const ps_table_t *table = find(shard, request);
    psp_message_t reply = {.kind = PSP_FIND_TABLE_REPLY};
    psp_find_table_reply_t *to = &reply.u.find_table_reply;
    to->found = table != NULL;
    if (table != NULL) {
        ps_table_describe(table, &to->options);
        to->rows_created = table->created;
    }
    return ps_shard_reply(shard, request, &reply, error);
}
