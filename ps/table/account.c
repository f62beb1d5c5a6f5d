/*
 * Two independent counts: what is told comes from the clients, which count messages as they make
 * them (worker/core_parts.c); what was applied is counted where a push takes effect. So a message
 * that is lost, or that takes effect twice, is a difference.
 *
 * A worker's clock comes behind its pushes, so at that moment all that it tells has been applied or
 * is kept until the clock ends on all workers. Kept pushes are all of the shard's clock; those of a
 * worker that is past it were told.
 */
#include "ps/table/account.h"

#include <string.h>

void ps_account_hear(ps_session_t *session, psp_tally_t pushed)
{
    session->pushed = pushed;
}

void ps_account_apply(ps_account_t *account, size_t n_rows)
{
    account->applied.pushes++;
    account->applied.rows += n_rows;
}

psp_tally_t ps_account_told(const ps_account_t *account, const ps_sessions_t *sessions,
                            uint64_t clock)
{
    psp_tally_t sum = account->before;
    for (uint32_t i = 0; i < sessions->n; i++) {
        const ps_session_t *session = &sessions->all[i];
        sum.pushes += session->pushed.pushes;
        sum.rows += session->pushed.rows;
        const ps_request_t *kept = session->clock > clock ? session->deferred : NULL;
        for (; kept != NULL; kept = kept->next) {
            sum.pushes--;
            sum.rows -= kept->message.u.push.n;
        }
    }
    return sum;
}

void ps_account_add_saved(ps_account_t *account, const char *name, uint64_t value)
{
    const struct {
        const char *name;
        uint64_t *to;
    } all[] = {
        {PS_ACCOUNT_PUSHES, &account->before.pushes},
        {PS_ACCOUNT_ROWS, &account->before.rows},
        {PS_ACCOUNT_PUSHES_APPLIED, &account->applied.pushes},
        {PS_ACCOUNT_ROWS_APPLIED, &account->applied.rows},
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        if (strcmp(name, all[i].name) == 0)
            *all[i].to += value;
    }
}
