/* What common/options.c and common/options_help.c share: values and bounds as a person reads them.
 */
#ifndef COMMON_OPTIONS_HELP_H
#define COMMON_OPTIONS_HELP_H

#include "common/options.h"

/* "1 to 4096", "at least 8M", "0 or more", or "" without bounds. Room: 64 bytes. */
void psc_option_format_bounds(const psc_option_t *option, char *text, size_t size);

/* The type in words: "whole number", "size in bytes; K, M, G, T are powers of 1024", ... Static. */
const char *psc_option_type_text(const psc_option_t *option);

#endif
