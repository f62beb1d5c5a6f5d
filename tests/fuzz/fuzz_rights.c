/*
 * Files of tokens: any bytes are read or refused, a refusal quotes nothing of them, and what a file
 * says can be asked for. The first byte says how much of the rest is a file; what follows it is a
 * token and the name of a table.
 */
#include "proto/rights.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    psc_error_t error = PSC_ERROR_INIT;
    psp_rights_t *rights = NULL;
    char name[64];
    if (size == 0)
        return 0;
    const char *text = (const char *)data + 1;
    const size_t length = (size - 1) * data[0] / 255, rest = size - 1 - length;
    const size_t n = rest < sizeof name - 1 ? rest : sizeof name - 1;
    if (n != 0)
        memcpy(name, text + length, n);
    name[n] = '\0';
    if (psp_rights_parse(text, length, "file", &rights, &error) != PSC_OK) {
        if (rights != NULL || strncmp(error.message, "file:", 5) != 0)
            abort();
        return 0;
    }
    const psp_grant_t *grant = psp_rights_find(rights, text + length, rest);
    if (grant != NULL &&
        (psp_grant_id(grant) == 0 || (psp_grant_allows_all(grant, PSP_RIGHT_READ) &&
                                      !psp_grant_allows(grant, name, PSP_RIGHT_READ))))
        abort();
    psp_rights_put(rights);
    return 0;
}
