/*
 * Letters of UTF-8 as Unicode allows them (The Unicode Standard, table 3-7): no overlong forms, no
 * surrogates, nothing above U+10FFFF. Of these some are not for a terminal: C0 and C1 controls, the
 * line and paragraph separators (U+2028, U+2029), and the marks that embed, override or isolate a
 * direction (U+202A to U+202E, U+2066 to U+2069), by which a name can look like another one. A
 * backslash is shown as itself: what is shown is for eyes, not for reading back. Any thread.
 */
#include "common/text.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static bool is_hidden(uint32_t letter)
{
    return letter < 0x20 || (letter >= 0x7f && letter < 0xa0) ||
           (letter >= 0x2028 && letter <= 0x202e) || (letter >= 0x2066 && letter <= 0x2069);
}

size_t psc_text_letter(const char *text, size_t size)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000}; /* of a letter of n bytes */
    const uint8_t lead = (uint8_t)text[0];
    const size_t n = lead < 0x80 ? 1 : lead < 0xc0 ? 0 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    if (n == 0 || lead > 0xf4 || n > size)
        return 0;
    uint32_t letter = n == 1 ? lead : lead & (0x7fu >> n);
    for (size_t i = 1; i < n; i++) {
        if (((uint8_t)text[i] & 0xc0u) != 0x80u)
            return 0;
        letter = letter << 6 | ((uint8_t)text[i] & 0x3fu);
    }
    const bool none =
        letter < least[n] || letter > 0x10ffff || (letter >= 0xd800 && letter < 0xe000);
    return none || is_hidden(letter) ? 0 : n;
}

size_t psc_text_find_hidden(const char *text, size_t size)
{
    size_t at = 0;
    for (size_t n = 1; at < size && n != 0; at += n)
        n = psc_text_letter(text + at, size - at);
    return at;
}

char *psc_text_show(const char *text, size_t size, char *out, size_t out_size)
{
    size_t used = 0;
    for (size_t at = 0; at < size;) {
        char escape[5];
        const size_t n = psc_text_letter(text + at, size - at);
        const char *from = n != 0 ? text + at : escape;
        const size_t wide = n != 0 ? n : sizeof escape - 1;
        if (wide >= out_size - used)
            break;
        if (n == 0)
            (void)snprintf(escape, sizeof escape, "\\x%02x", (unsigned)(uint8_t)text[at]);
        memcpy(out + used, from, wide);
        used += wide;
        at += n != 0 ? n : 1;
    }
    out[used] = '\0';
    return out;
}
