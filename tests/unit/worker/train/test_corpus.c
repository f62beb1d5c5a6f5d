/*
 * The corpus reader against a plain scan of the bytes, for every split of a text over workers.
 */
#include "worker/train/corpus.h"

#include "common/alloc.h"
#include "common/clock.h"
#include "common/rng.h"
#include "tests/support/cmocka.h"
#include "tests/support/shared_data.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Tokens as text: words and, for a line end, one newline, each followed by a NUL-safe length. */
typedef struct tokens {
    char *bytes;
    size_t used, capacity;
    size_t n;
    uint64_t long_words;
} tokens_t;

static void tokens_add(tokens_t *tokens, const char *bytes, uint32_t size)
{
    size_t needed = tokens->used + size + sizeof size;
    if (needed > tokens->capacity) {
        tokens->capacity = needed * 2;
        tokens->bytes = psc_realloc_array(tokens->bytes, tokens->capacity, 1);
    }
    PSC_BUG_ON(tokens->bytes == NULL);
    memcpy(tokens->bytes + tokens->used, &size, sizeof size);
    memcpy(tokens->bytes + tokens->used + sizeof size, bytes, size);
    tokens->used = needed;
    tokens->n++;
}

static void tokens_free(tokens_t *tokens)
{
    psc_free(tokens->bytes);
    *tokens = (tokens_t){0};
}

static void assert_same_tokens(const tokens_t *a, const tokens_t *b)
{
    assert_int_equal(a->n, b->n);
    assert_int_equal(a->used, b->used);
    if (a->used > 0)
        assert_memory_equal(a->bytes, b->bytes, a->used);
    assert_int_equal(a->long_words, b->long_words);
}

/* The oracle: one file at a time, byte by byte. */
static void scan(tokens_t *tokens, const char *text, size_t size)
{
    size_t start = 0;
    for (size_t i = 0; i <= size; i++) {
        if (i < size && strchr(" \t\r\n\v\f", text[i]) == NULL)
            continue;
        if (i < size && text[i] == '\0')
            continue;
        if (i - start > PSW_WORD_MAX_BYTES)
            tokens->long_words++;
        else if (i > start)
            tokens_add(tokens, text + start, (uint32_t)(i - start));
        if ((i < size && text[i] == '\n') || (i == size && size > 0))
            tokens_add(tokens, "\n", 1);
        start = i + 1;
    }
}

typedef struct folder {
    char path[64];
    char files[4][96];
    const char *names[4];
    size_t n;
} folder_t;

static void folder_make(folder_t *folder)
{
    *folder = (folder_t){0};
    const char *base = getenv("TMPDIR");
    (void)snprintf(folder->path, sizeof folder->path, "%s/embps-corpus.XXXXXX",
                   base != NULL && strlen(base) < 32 ? base : "/tmp");
    assert_non_null(mkdtemp(folder->path));
}

static void folder_add(folder_t *folder, const char *text, size_t size)
{
    char *file = folder->files[folder->n], path[sizeof folder->path];
    memcpy(path, folder->path, sizeof path);
    (void)snprintf(file, sizeof folder->files[0], "%s/%zu.txt", path, folder->n);
    FILE *stream = fopen(file, "w");
    assert_non_null(stream);
    assert_int_equal(fwrite(text, 1, size, stream), size);
    assert_int_equal(fclose(stream), 0);
    folder->names[folder->n++] = file;
}

static void folder_remove(folder_t *folder)
{
    for (size_t i = 0; i < folder->n; i++)
        unlink(folder->files[i]);
    assert_int_equal(rmdir(folder->path), 0);
}

static void read_all(psw_reader_t *reader, tokens_t *tokens)
{
    psc_error_t error = PSC_ERROR_INIT;
    psw_token_t token;
    for (;;) {
        assert_int_equal(psw_reader_next(reader, &token, &error), PSC_OK);
        if (token.kind == PSW_TOKEN_END)
            break;
        if (token.kind == PSW_TOKEN_LINE_END)
            tokens_add(tokens, "\n", 1);
        else
            tokens_add(tokens, token.bytes, (uint32_t)token.size);
    }
    assert_int_equal(psw_reader_next(reader, &token, &error), PSC_OK);
    assert_int_equal(token.kind, PSW_TOKEN_END);
    tokens->long_words += psw_reader_long_words(reader);
}

static void read_range(const psw_corpus_t *corpus, uint64_t begin, uint64_t end, tokens_t *tokens)
{
    psw_reader_t *reader;
    assert_int_equal(psw_reader_create(corpus, begin, end, &reader, NULL), PSC_OK);
    read_all(reader, tokens);
    psw_reader_destroy(reader);
}

static psw_corpus_t *open_folder(const folder_t *folder)
{
    psw_corpus_t *corpus;
    psc_error_t error = PSC_ERROR_INIT;
    if (psw_corpus_open(folder->names, folder->n, &corpus, &error) != PSC_OK)
        fail_msg("%s", error.message);
    return corpus;
}

static void check_splits(const folder_t *folder, const tokens_t *expected, uint32_t max_workers)
{
    psw_corpus_t *corpus = open_folder(folder);
    for (uint32_t n = 1; n <= max_workers; n++) {
        tokens_t got = {0};
        uint64_t last = 0;
        for (uint32_t i = 0; i < n; i++) {
            uint64_t begin, end;
            psw_corpus_share(corpus, i, n, &begin, &end);
            assert_int_equal(begin, last);
            last = end;
            read_range(corpus, begin, end, &got);
        }
        assert_int_equal(last, psw_corpus_bytes(corpus));
        assert_same_tokens(&got, expected);
        tokens_free(&got);
    }
    psw_corpus_close(corpus);
}

static void check_texts(const char *const *texts, const size_t *sizes, size_t n,
                        uint32_t max_workers)
{
    folder_t folder;
    tokens_t expected = {0};
    folder_make(&folder);
    for (size_t i = 0; i < n; i++) {
        folder_add(&folder, texts[i], sizes[i]);
        scan(&expected, texts[i], sizes[i]);
    }
    check_splits(&folder, &expected, max_workers);
    tokens_free(&expected);
    folder_remove(&folder);
}

static uint64_t seed(void)
{
    const char *given = getenv("EMBPS_TEST_SEED");
    uint64_t value = given != NULL ? strtoull(given, NULL, 10) : psc_clock_us();
    printf("seed %llu\n", (unsigned long long)value);
    return value;
}

static void every_split_of_odd_texts_gives_the_same_words(void **state)
{
    (void)state;
    static const char nul[] = "a\0b c\0\0 \0";
    const char *texts[] = {"one two\r\nthree\tfour\v\f five", nul, "\n\n", "x"};
    const size_t sizes[] = {strlen(texts[0]), sizeof nul - 1, 2, 1};
    check_texts(texts, sizes, 4, 7);
    for (size_t i = 0; i < 4; i++)
        check_texts(texts + i, sizes + i, 1, 7);
    const char *with_empty[] = {"", "ab cd", "", "ef\n"};
    const size_t empty_sizes[] = {0, 5, 0, 3};
    check_texts(with_empty, empty_sizes, 4, 7);
}

static void every_cut_of_random_texts_gives_the_same_words(void **state)
{
    (void)state;
    uint64_t key = seed(), draw = 0;
    for (int round = 0; round < 30; round++) {
        char texts[3][40];
        size_t sizes[3];
        folder_t folder;
        tokens_t expected = {0};
        folder_make(&folder);
        for (size_t f = 0; f < 3; f++) {
            sizes[f] = 1 + psc_rng_at(key, draw++) % 39;
            for (size_t i = 0; i < sizes[f]; i++)
                texts[f][i] = "ab \n\t\0\xff"[psc_rng_at(key, draw++) % 7];
            folder_add(&folder, texts[f], sizes[f]);
            scan(&expected, texts[f], sizes[f]);
        }
        psw_corpus_t *corpus = open_folder(&folder);
        uint64_t bytes = psw_corpus_bytes(corpus);
        for (uint64_t cut = 0; cut <= bytes; cut++) {
            tokens_t got = {0};
            read_range(corpus, 0, cut, &got);
            read_range(corpus, cut, bytes, &got);
            assert_same_tokens(&got, &expected);
            tokens_free(&got);
        }
        psw_corpus_close(corpus);
        tokens_free(&expected);
        folder_remove(&folder);
    }
}

static void words_across_the_buffer_and_too_long_words_are_told_apart(void **state)
{
    (void)state;
    size_t size = ((size_t)5 << 20) / 2;
    char *text = psc_alloc(size);
    assert_non_null(text);
    uint64_t key = seed();
    size_t at = 0;
    for (uint64_t word = 0; at < size; word++) {
        static const size_t lengths[] = {1, 5, 4095, 4096, 4097, 9000, 1200000};
        uint64_t bits = psc_rng_at(key, word);
        size_t length = lengths[bits % 100 == 0 ? 6 : bits % 6];
        for (size_t i = 0; i < length && at < size; i++)
            text[at++] = (char)('a' + (word + i) % 26);
        if (at < size)
            text[at++] = bits & 4096 ? '\n' : ' ';
    }
    const char *texts[] = {text};
    check_texts(texts, &size, 1, 5);
    psc_free(text);
}

static void a_second_pass_reads_the_same(void **state)
{
    (void)state;
    folder_t folder;
    folder_make(&folder);
    folder_add(&folder, "a bb\nccc dddd", 13);
    psw_corpus_t *corpus = open_folder(&folder);
    psw_reader_t *reader;
    assert_int_equal(psw_reader_create(corpus, 3, 10, &reader, NULL), PSC_OK);
    tokens_t first = {0}, second = {0};
    read_all(reader, &first);
    psw_reader_rewind(reader);
    read_all(reader, &second);
    assert_int_equal(first.n, 3); /* the line end, ccc, dddd */
    assert_same_tokens(&first, &second);
    tokens_free(&first);
    tokens_free(&second);
    psw_reader_destroy(reader);
    psw_corpus_close(corpus);
    folder_remove(&folder);
}

static void a_file_that_changes_its_size_is_an_error_that_names_it(void **state)
{
    (void)state;
    for (int longer = 0; longer < 2; longer++) {
        folder_t folder;
        folder_make(&folder);
        folder_add(&folder, "some words here\n", 16);
        psw_corpus_t *corpus = open_folder(&folder);
        psw_reader_t *reader;
        assert_int_equal(psw_reader_create(corpus, 0, 16, &reader, NULL), PSC_OK);
        psw_token_t token;
        psc_error_t error = PSC_ERROR_INIT;
        assert_int_equal(psw_reader_next(reader, &token, &error), PSC_OK);
        assert_int_equal(truncate(folder.names[0], longer ? 20 : 8), 0);
        psc_status_t st;
        do
            st = psw_reader_next(reader, &token, &error);
        while (st == PSC_OK && token.kind != PSW_TOKEN_END);
        assert_int_equal(st, PSC_IO);
        assert_non_null(strstr(error.message, folder.names[0]));
        psw_reader_rewind(reader);
        assert_int_equal(psw_reader_next(reader, &token, &error), PSC_IO);
        psw_reader_destroy(reader);
        psw_corpus_close(corpus);
        folder_remove(&folder);
    }
}

static void what_cannot_be_a_corpus_is_refused_by_name(void **state)
{
    (void)state;
    folder_t folder;
    folder_make(&folder);
    folder_add(&folder, "", 0);
    psw_corpus_t *corpus = NULL;
    psc_error_t error = PSC_ERROR_INIT;
    assert_int_equal(psw_corpus_open(folder.names, 1, &corpus, &error), PSC_INVALID_ARGUMENT);
    assert_non_null(strstr(error.message, "empty"));
    assert_non_null(strstr(error.message, folder.names[0]));
    const char *missing[] = {"/nonexistent/text"};
    assert_int_equal(psw_corpus_open(missing, 1, &corpus, &error), PSC_NOT_FOUND);
    assert_non_null(strstr(error.message, missing[0]));
    const char *directory[] = {folder.path};
    assert_int_equal(psw_corpus_open(directory, 1, &corpus, &error), PSC_INVALID_ARGUMENT);
    assert_non_null(strstr(error.message, folder.path));
    char pipe_path[96];
    (void)snprintf(pipe_path, sizeof pipe_path, "%s/pipe", folder.path);
    assert_int_equal(mkfifo(pipe_path, 0600), 0);
    const char *pipes[] = {pipe_path};
    assert_int_equal(psw_corpus_open(pipes, 1, &corpus, &error), PSC_INVALID_ARGUMENT);
    unlink(pipe_path);
    assert_int_equal(psw_corpus_open(NULL, 0, &corpus, &error), PSC_INVALID_ARGUMENT);
    assert_null(corpus);
    folder_remove(&folder);
}

static void real_texts_in_116_languages_split_without_loss(void **state)
{
    (void)state;
    char path[512];
    if (!shared_data_path("unicode/corpusC.udhr.utf8.txt", path, sizeof path))
        skip();
    FILE *stream = fopen(path, "r");
    assert_non_null(stream);
    char *text = psc_alloc((size_t)4 << 20);
    assert_non_null(text);
    size_t size = fread(text, 1, (size_t)4 << 20, stream);
    (void)fclose(stream);
    const char *texts[] = {text};
    check_texts(texts, &size, 1, 7);
    psc_free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_split_of_odd_texts_gives_the_same_words),
        cmocka_unit_test(every_cut_of_random_texts_gives_the_same_words),
        cmocka_unit_test(words_across_the_buffer_and_too_long_words_are_told_apart),
        cmocka_unit_test(a_second_pass_reads_the_same),
        cmocka_unit_test(a_file_that_changes_its_size_is_an_error_that_names_it),
        cmocka_unit_test(what_cannot_be_a_corpus_is_refused_by_name),
        cmocka_unit_test(real_texts_in_116_languages_split_without_loss),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
