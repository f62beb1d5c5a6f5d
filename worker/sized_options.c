/*
 * A size that is too large to be one was never set. What a program of a later header leaves at zero
 * it does not use, so a struct that is longer is taken where the rest is zeros; defaults of new
 * options are therefore zero. One thread; no state.
 */
#include "worker/sized_options.h"

#include <string.h>

#define BYTES_MAX 65536u /* no struct of options is larger */

psc_status_t psw_sized_copy(const psw_sized_t *sized, const void *options, void *out,
                            size_t out_bytes, psc_error_t *error)
{
    const unsigned char *bytes = options;
    if (sized->size < sized->least || sized->size > BYTES_MAX)
        return psc_error_set(error, PSC_INVALID_ARGUMENT,
                             "the options of %s have size %zu: begin with %s", sized->what,
                             sized->size, sized->begin_with);
    for (size_t i = out_bytes; i < sized->size; i++) {
        if (bytes[i] != 0)
            return psc_error_set(error, PSC_UNSUPPORTED,
                                 "the options of %s have %zu bytes, this library knows %zu: use "
                                 "the library that the program was compiled for",
                                 sized->what, sized->size, out_bytes);
    }
    memcpy(out, options, sized->size < out_bytes ? sized->size : out_bytes);
    return PSC_OK;
}
