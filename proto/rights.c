/*
 * Tokens, their rights, and the file that has them.
 *
 * Kept are digests, whichever of the two the file has, so that nothing here can give a token away
 * and all are of one length. A token is looked for by its digest among all, each compared whole, so
 * that time tells nothing of how much of it was right. Tokens are grants; each line adds its
 * patterns to the grant of its token.
 *
 * Hostile files: lengths and counts have limits, and errors say where, never what. Reading is one
 * pass over words that lie in a copy of the file, which the patterns go on using; the words that
 * are tokens are wiped from it.
 *
 * Threads: a parsed file does not change but for the count of its owners. Cost of finding: one
 * SHA-256 and TOKENS_MAX comparisons of 32 bytes at most; of a right: one pass over the grant's
 * patterns.
 */
#include "proto/rights.h"

#include "common/alloc.h"
#include "common/hash.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <stdatomic.h>
#include <string.h>
#include <xxhash.h>

#define TOKENS_MAX 1024u
#define PATTERNS_MAX 16384u
#define PATTERN_MAX 255u
#define DIGEST_MARK "sha256:"

typedef struct pattern {
    const char *text; /* in rights->text */
    unsigned rights;
    const struct pattern *next; /* of the same grant */
} pattern_t;

struct psp_grant {
    const pattern_t *patterns;
    uint8_t digest[SHA256_DIGEST_LENGTH];
    uint64_t id;
};

struct psp_rights {
    atomic_uint owners;
    char *text;
    pattern_t *patterns; /* [n_patterns] */
    uint32_t n_patterns;
    uint32_t n_grants;
    psp_grant_t grants[TOKENS_MAX];
};

/* ---- words ---- */

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

/* The next word of a line, made one that ends with NUL; NULL: there is none. */
static char *next_word(char **line)
{
    char *word = *line;
    while (is_blank(*word))
        word++;
    if (*word == '\0' || *word == '#')
        return NULL;
    char *end = word;
    while (*end != '\0' && !is_blank(*end))
        end++;
    *line = *end != '\0' ? end + 1 : end;
    *end = '\0';
    return word;
}

bool psp_token_is_one(const char *token, size_t length)
{
    static const char allowed[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~+/";
    size_t n = length;
    if (length < PSP_TOKEN_MIN || length > PSP_TOKEN_MAX)
        return false;
    while (n > 1 && token[n - 1] == '=')
        n--;
    for (size_t i = 0; i < n; i++) {
        if (token[i] == '\0' || strchr(allowed, token[i]) == NULL)
            return false;
    }
    return true;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* False: OpenSSL could not, for want of memory. */
static bool digest_of(const void *bytes, size_t size, uint8_t digest_out[SHA256_DIGEST_LENGTH])
{
    return SHA256(bytes, size, digest_out) != NULL;
}

/* Of a token, or of what stands for it. */
static bool read_digest(const char *word, uint8_t digest_out[SHA256_DIGEST_LENGTH])
{
    const size_t mark = sizeof DIGEST_MARK - 1;
    if (strncmp(word, DIGEST_MARK, mark) != 0)
        return psp_token_is_one(word, strlen(word)) && digest_of(word, strlen(word), digest_out);
    if (strlen(word) != mark + 2 * (size_t)SHA256_DIGEST_LENGTH)
        return false;
    for (size_t i = 0; i < SHA256_DIGEST_LENGTH; i++) {
        const int high = hex_digit(word[mark + 2 * i]), low = hex_digit(word[mark + 2 * i + 1]);
        if (high < 0 || low < 0)
            return false;
        digest_out[i] = (uint8_t)(high * 16 + low);
    }
    return true;
}

static const char *const right_names[] = {"read", "write", "admin"}; /* by bit */
enum { N_RIGHTS = sizeof right_names / sizeof right_names[0] };

const char *psp_right_name(unsigned right)
{
    for (size_t i = 0; i < N_RIGHTS; i++) {
        if (right == 1u << i)
            return right_names[i];
    }
    return "any right";
}

/* 0: no rights are written there. */
static unsigned read_rights(const char *word)
{
    unsigned rights = 0;
    for (;;) {
        const size_t length = strcspn(word, ",");
        unsigned one = 0;
        for (size_t i = 0; i < N_RIGHTS; i++) {
            if (strlen(right_names[i]) == length && strncmp(word, right_names[i], length) == 0)
                one = 1u << i;
        }
        if (one == 0)
            return 0;
        rights |= one;
        if (word[length] == '\0')
            return (rights & PSP_RIGHT_ADMIN) != 0 ? PSP_RIGHT_ANY : rights;
        word += length + 1;
    }
}

/* ---- reading ---- */

/* Its number; n_grants: there is none. */
static uint32_t find_digest(const psp_rights_t *rights, const uint8_t *digest)
{
    uint32_t found = rights->n_grants;
    for (uint32_t i = 0; i < rights->n_grants; i++) {
        const uint8_t *known = rights->grants[i].digest;
        found = CRYPTO_memcmp(known, digest, SHA256_DIGEST_LENGTH) == 0 ? i : found;
    }
    return found;
}

static psc_status_t refuse(const char *name, size_t line, const char *what, psc_error_t *error)
{
    return psc_error_set(error, PSC_INVALID_ARGUMENT, "%s:%zu: %s", name, line, what);
}

/* The grant of a digest; NULL: there are too many (or OpenSSL has no memory). */
static psp_grant_t *find_or_add(psp_rights_t *rights, const uint8_t *digest)
{
    const uint32_t found = find_digest(rights, digest);
    if (found == TOKENS_MAX)
        return NULL;
    psp_grant_t *grant = &rights->grants[found];
    if (found < rights->n_grants)
        return grant;
    uint8_t again[SHA256_DIGEST_LENGTH]; /* so that the id says nothing of the digest either */
    if (!digest_of(digest, SHA256_DIGEST_LENGTH, again))
        return NULL;
    rights->n_grants++;
    memcpy(grant->digest, digest, sizeof grant->digest);
    memcpy(&grant->id, again, sizeof grant->id);
    grant->id |= 1;
    return grant;
}

static psc_status_t read_line(psp_rights_t *rights, char *line, const char *name, size_t number,
                              psc_error_t *error)
{
    char *word = next_word(&line);
    if (word == NULL)
        return PSC_OK;
    uint8_t digest[SHA256_DIGEST_LENGTH];
    const bool fine = read_digest(word, digest);
    explicit_bzero(word, strlen(word));
    if (!fine)
        return refuse(name, number,
                      "the first word is a token of 16 to 256 letters, digits and -._~+/, or "
                      "sha256: and the 64 hexadecimal digits of its SHA-256",
                      error);
    psp_grant_t *grant = find_or_add(rights, digest);
    if (grant == NULL)
        return refuse(name, number, "more than 1024 tokens", error);
    const char *listed = next_word(&line);
    const unsigned allowed = listed != NULL ? read_rights(listed) : 0;
    if (allowed == 0)
        return refuse(name, number,
                      "the second word lists rights: read, write, admin, with commas between them",
                      error);
    const uint32_t before = rights->n_patterns;
    while ((word = next_word(&line)) != NULL) {
        if (rights->n_patterns == PATTERNS_MAX)
            return refuse(name, number, "more than 16384 tables", error);
        if (strlen(word) > PATTERN_MAX)
            return refuse(name, number, "a table's name has at most 255 bytes", error);
        pattern_t *pattern = &rights->patterns[rights->n_patterns++];
        *pattern = (pattern_t){.text = word, .rights = allowed, .next = grant->patterns};
        grant->patterns = pattern;
    }
    return rights->n_patterns != before
               ? PSC_OK
               : refuse(name, number,
                        "no tables: after the rights come their names, or * for all of them",
                        error);
}

static psc_status_t read_lines(psp_rights_t *rights, size_t size, const char *name,
                               psc_error_t *error)
{
    size_t number = 0;
    psc_status_t st = PSC_OK;
    for (char *line = rights->text; st == PSC_OK && line < rights->text + size;) {
        const size_t rest = (size_t)(rights->text + size - line);
        char *end = memchr(line, '\n', rest);
        const size_t length = end != NULL ? (size_t)(end - line) : rest;
        number++;
        line[length] = '\0';
        if (memchr(line, '\0', length) != NULL)
            return refuse(name, number, "a zero byte: this is no text file", error);
        st = read_line(rights, line, name, number, error);
        line += length + 1;
    }
    if (st == PSC_OK && rights->n_grants == 0)
        return psc_error_set(error, PSC_INVALID_ARGUMENT,
                             "%s: no token in it: nobody could come in", name);
    return st;
}

psc_status_t psp_rights_parse(const char *text, size_t size, const char *name,
                              psp_rights_t **rights_out, psc_error_t *error)
{
    psp_rights_t *rights = psc_alloc_zeroed(1, sizeof *rights);
    if (rights == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "out of memory for tokens");
    atomic_init(&rights->owners, 1);
    rights->text = psc_alloc_zeroed(size + 1, 1);
    rights->patterns = psc_alloc_array(PATTERNS_MAX, sizeof *rights->patterns);
    psc_status_t st = PSC_OK;
    if (rights->text == NULL || rights->patterns == NULL)
        st = psc_error_set(error, PSC_NO_MEMORY, "out of memory for tokens");
    if (st == PSC_OK) {
        memcpy(rights->text, text, size);
        st = read_lines(rights, size, name, error);
    }
    if (st != PSC_OK) {
        if (rights->text != NULL)
            explicit_bzero(rights->text, size);
        psp_rights_put(rights);
        return st;
    }
    *rights_out = rights;
    return PSC_OK;
}

void psp_rights_share(psp_rights_t *rights)
{
    atomic_fetch_add(&rights->owners, 1);
}

void psp_rights_put(psp_rights_t *rights)
{
    if (rights == NULL || atomic_fetch_sub(&rights->owners, 1) != 1)
        return;
    psc_free(rights->patterns);
    psc_free(rights->text);
    psc_free(rights);
}

/* ---- asking ---- */

const psp_grant_t *psp_rights_find(const psp_rights_t *rights, const char *token, size_t length)
{
    uint8_t digest[SHA256_DIGEST_LENGTH];
    if (!digest_of(token, length, digest))
        return NULL;
    const uint32_t found = find_digest(rights, digest);
    return found < rights->n_grants ? &rights->grants[found] : NULL;
}

/* Goes back to the last * when what follows it does not fit. */
static bool fits(const char *pattern, const char *name)
{
    const char *star = NULL, *behind = NULL;
    while (*name != '\0') {
        if (*pattern == '*') {
            star = pattern++;
            behind = name;
        } else if (*pattern == *name) {
            pattern++;
            name++;
        } else if (star != NULL) {
            pattern = star + 1;
            name = ++behind;
        } else {
            return false;
        }
    }
    while (*pattern == '*')
        pattern++;
    return *pattern == '\0';
}

bool psp_grant_allows(const psp_grant_t *grant, const char *table, unsigned right)
{
    if (grant == NULL)
        return true;
    const pattern_t *pattern = grant->patterns;
    while (pattern != NULL && ((pattern->rights & right) == 0 || !fits(pattern->text, table)))
        pattern = pattern->next;
    return pattern != NULL;
}

bool psp_grant_allows_all(const psp_grant_t *grant, unsigned right)
{
    if (grant == NULL)
        return true;
    const pattern_t *pattern = grant->patterns;
    while (pattern != NULL && ((pattern->rights & right) == 0 || strcmp(pattern->text, "*") != 0))
        pattern = pattern->next;
    return pattern != NULL;
}

uint64_t psp_grant_id(const psp_grant_t *grant)
{
    return grant != NULL ? grant->id : 0;
}

uint64_t psp_grant_rights_id(const psp_grant_t *grant)
{
    uint64_t sum = 0; /* of all patterns, so that their order does not matter */
    for (const pattern_t *pattern = grant != NULL ? grant->patterns : NULL; pattern != NULL;
         pattern = pattern->next)
        sum +=
            psc_mix64(XXH3_64bits_withSeed(pattern->text, strlen(pattern->text), pattern->rights));
    return grant != NULL ? sum | 1 : 0;
}
