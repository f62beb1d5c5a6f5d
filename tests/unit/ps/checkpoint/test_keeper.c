/*
 * The vocabulary of the checkpoint at which a run stands goes into the next one only as far as its
 * file is, at that moment, what the manifest says; of the keeper's folder the rest is in
 * test_restore.c.
 */
#include "tests/support/cmocka.h"
#include "tests/support/scratch.h"

#include "common/file.h"
#include "ps/checkpoint/keeper.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

static const char words[] = "the 12\nof 7\nand 5\n";
#define WORDS_BYTES (sizeof words - 1)

typedef struct home {
    char *folder;
    char saved[256], before[512], now[512]; /* the folder; vocabularies in it */
    char name[PSP_SAVED_NAME_MAX + 1];
    ps_keeper_t *keeper;
} home_t;

/* A run that stands at "first", which has a manifest and a vocabulary, and has begun another. */
static home_t begin_home(void)
{
    home_t home = {.folder = test_scratch_create()};
    psc_error_t error = PSC_ERROR_INIT;
    char path[512], name[] = "first", file[] = "vocabulary", host[] = "here";
    psp_saved_manifest_t manifest = EMBPS__CHECKPOINT__V1__MANIFEST__INIT;
    psp_saved_part_file_t part = EMBPS__CHECKPOINT__V1__PART_FILE__INIT, *parts[] = {&part};
    psp_saved_file_t vocabulary = EMBPS__CHECKPOINT__V1__FILE__INIT;
    uint64_t size, checksum;
    const ps_keeper_options_t options = {
        .folder = test_path(home.saved, sizeof home.saved, home.folder, "saved"),
        .n_servers = 1,
        .cluster = 1};
    assert_int_equal(ps_keeper_open(&options, &home.keeper, &error), PSC_OK);
    assert_int_equal(mkdir(test_path(path, sizeof path, home.saved, name), 0777), 0);
    (void)test_path(home.before, sizeof home.before, home.saved, "first/vocabulary");
    assert_int_equal(psc_file_write(home.before, words, WORDS_BYTES, &error), PSC_OK);
    part.host = host;
    vocabulary.name = file;
    vocabulary.size = WORDS_BYTES;
    vocabulary.checksum = XXH3_64bits(words, WORDS_BYTES);
    manifest.name = name;
    manifest.n_servers = 1;
    manifest.n_parts = 1;
    manifest.parts = parts;
    manifest.vocabulary = &vocabulary;
    (void)test_path(path, sizeof path, home.saved, "first/manifest");
    assert_int_equal(psp_saved_write(path, PSP_SAVED_MANIFEST, NULL, 0, &manifest.base, &size,
                                     &checksum, &error),
                     PSC_OK);
    ps_keeper_stand_at(home.keeper, name, true);
    assert_int_equal(ps_keeper_begin(home.keeper, home.name, &error), PSC_OK);
    (void)snprintf(home.now, sizeof home.now, "%s/%s%s/vocabulary", home.saved, home.name,
                   PSP_SAVED_PARTIAL);
    return home;
}

static void end_home(home_t *home)
{
    ps_keeper_close(home->keeper);
    test_scratch_destroy(home->folder);
}

static bool is_linked(const home_t *home, uint64_t size, uint64_t checksum)
{
    psc_error_t error = PSC_ERROR_INIT;
    bool linked = true;
    const psc_status_t st =
        ps_keeper_link_vocabulary(home->keeper, home->name, size, checksum, &linked, &error);
    if (st != PSC_OK)
        fail_msg("%s", error.message);
    assert_int_equal(access(home->now, F_OK) == 0, linked);
    return linked;
}

static void a_vocabulary_that_is_whole_is_linked(void **state)
{
    (void)state;
    home_t home = begin_home();
    struct stat before, now;
    const uint64_t checksum = XXH3_64bits(words, WORDS_BYTES);
    assert_false(is_linked(&home, WORDS_BYTES, checksum + 1));
    assert_false(is_linked(&home, WORDS_BYTES + 1, checksum));
    assert_true(is_linked(&home, WORDS_BYTES, checksum));
    assert_int_equal(stat(home.before, &before), 0);
    assert_int_equal(stat(home.now, &now), 0);
    assert_true(before.st_ino == now.st_ino);
    end_home(&home);
}

static void one_that_is_damaged_or_missing_is_not_linked(void **state)
{
    (void)state;
    home_t home = begin_home();
    psc_error_t error = PSC_ERROR_INIT;
    const uint64_t checksum = XXH3_64bits(words, WORDS_BYTES);
    char bytes[WORDS_BYTES];
    for (size_t i = 0; i < WORDS_BYTES; i++) {
        memcpy(bytes, words, WORDS_BYTES);
        bytes[i] = (char)(bytes[i] ^ 1);
        assert_int_equal(psc_file_write(home.before, bytes, WORDS_BYTES, &error), PSC_OK);
        assert_false(is_linked(&home, WORDS_BYTES, checksum));
    }
    assert_int_equal(psc_file_write(home.before, words, WORDS_BYTES - 1, &error), PSC_OK);
    assert_false(is_linked(&home, WORDS_BYTES, checksum));
    assert_int_equal(unlink(home.before), 0);
    assert_false(is_linked(&home, WORDS_BYTES, checksum));
    assert_int_equal(psc_file_write(home.before, words, WORDS_BYTES, &error), PSC_OK);
    assert_true(is_linked(&home, WORDS_BYTES, checksum));
    end_home(&home);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_vocabulary_that_is_whole_is_linked),
        cmocka_unit_test(one_that_is_damaged_or_missing_is_not_linked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
