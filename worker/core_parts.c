/*
 * Numbers of the pushes that a client sends to each server, and what it promises of them: so that
 * servers that make a checkpoint together can tell which messages are one call (ps/table/calls.h).
 * And how many there were, with numbers or without, for their account (ps/table/account.h).
 *
 * A call first promises how many messages it has for each server, and then numbers them in that
 * order. A call that fails on the way leaves a gap, which no server minds. All of it begins anew
 * with other servers.
 */
#include "worker/core_state.h"

bool psw_core_numbers_parts(const psw_core_t *core)
{
    return core->options.n_workers != 0 || core->client != 0;
}

void psw_core_set_client(psw_core_t *core, uint64_t client)
{
    core->client = client;
}

void psw_core_promise(psw_core_t *core, uint32_t server, uint64_t n_messages)
{
    core->servers[server].n_numbered = core->promised[server];
    core->promised[server] += n_messages;
}

void psw_core_number_part(psw_core_t *core, psw_part_t *part)
{
    part->header.part = ++core->servers[part->server].n_numbered;
}

void psw_core_tell_parts(const psw_core_t *core, psw_part_t *part)
{
    const uint32_t n = core->options.n_servers;
    bool any = false;
    for (uint32_t s = 0; s < n && !any; s++)
        any = core->promised[s] != 0;
    if (!any || !psw_core_numbers_parts(core))
        return;
    part->header.parts = core->promised;
    part->header.n_parts = n;
}

void psw_core_tally_push(psw_core_t *core, uint32_t server, size_t n_rows)
{
    psp_tally_t *made = &core->servers[server].made;
    made->pushes++;
    made->rows += n_rows;
}

void psw_core_untally_push(psw_core_t *core, uint32_t server, size_t n_rows)
{
    psp_tally_t *made = &core->servers[server].made;
    made->pushes--;
    made->rows -= n_rows;
}

psp_tally_t psw_core_tally(const psw_core_t *core, uint32_t server)
{
    return core->servers[server].made;
}
