/*
 * Text that came from elsewhere, shown to a person: names of tables, messages of other processes,
 * words of files. Bytes that a terminal would obey, or that would begin a line of their own, are
 * shown as \xNN; so are those that are no UTF-8.
 *
 *     char shown[PSC_TEXT_SHOWN(PSP_NAME_MAX)];
 *     printf("%-24s\n", psc_text_show(name, strlen(name), shown, sizeof shown));
 */
#ifndef COMMON_TEXT_H
#define COMMON_TEXT_H

#include <stddef.h>

/* Bytes of the letter that text begins with, 1 to 4; 0 when its first byte is not to be shown: a
 * control character (also those above 0x7f, line separators, marks that turn the direction of what
 * follows), or no UTF-8. size > 0. */
size_t psc_text_letter(const char *text, size_t size);

/* Where in text the first byte is that is not to be shown; size when there is none. */
size_t psc_text_find_hidden(const char *text, size_t size);

/* Room for n bytes, whatever they are, and a NUL. */
#define PSC_TEXT_SHOWN(n) (4 * (size_t)(n) + 1)

/* Writes text as it may be shown, and a NUL; what does not fit into out_size > 0 bytes is cut off
 * before a whole letter. Returns out. */
char *psc_text_show(const char *text, size_t size, char *out, size_t out_size);

#endif
