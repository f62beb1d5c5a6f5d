/* Files of a checkpoint: what is written is read, and nothing else is. */
#include "proto/saved.h"

#include "common/alloc.h"
#include "common/file.h"
#include "common/slots.h"
#include "tests/support/cmocka.h"
#include "tests/support/scratch.h"

#include <string.h>
#include <xxhash.h>

static char host[] = "here", name[] = "checkpoint-1", file_name[] = "rocksdb/000012.sst",
            words[] = "vocabulary";

/* Both messages, whole. */
typedef struct messages {
    psp_saved_part_file_t part_file, *part_files[1];
    psp_saved_manifest_t manifest;
    psp_saved_file_t file, *all_files[1];
    uint16_t owners[PSC_SLOT_COUNT];
    psp_saved_part_t part;
} messages_t;

static messages_t *make_messages(void)
{
    static messages_t m;
    memset(&m, 0, sizeof m);
    embps__checkpoint__v1__part_file__init(&m.part_file);
    m.part_file.host = host;
    m.part_files[0] = &m.part_file;
    embps__checkpoint__v1__manifest__init(&m.manifest);
    m.manifest.name = name;
    m.manifest.n_servers = 1;
    m.manifest.n_parts = 1;
    m.manifest.parts = m.part_files;
    embps__checkpoint__v1__file__init(&m.file);
    m.file.name = file_name;
    m.all_files[0] = &m.file;
    embps__checkpoint__v1__part__init(&m.part);
    m.part.name = name;
    m.part.host = host;
    m.part.n_servers = 1;
    m.part.slot_owners = (ProtobufCBinaryData){.len = sizeof m.owners, .data = (uint8_t *)m.owners};
    m.part.n_files = 1;
    m.part.files = m.all_files;
    return &m;
}

static psc_status_t write_and_read(const char *path, psp_saved_kind_t kind,
                                   const ProtobufCMessage *message, psc_error_t *error)
{
    uint64_t size, sum;
    psp_saved_t *saved = NULL;
    assert_int_equal(psp_saved_write(path, kind, NULL, 0, message, &size, &sum, error), PSC_OK);
    psc_status_t st = psp_saved_read(path, kind, &saved, error);
    psp_saved_destroy(saved);
    return st;
}

static void what_is_written_is_read(void **state)
{
    char path[256];
    uint64_t size = 0, sum = 0, found_size = 0, found_sum = 0;
    psp_saved_t *saved = NULL;
    messages_t *m = make_messages();
    (void)test_path(path, sizeof path, *state, "manifest");
    m->manifest.cluster = UINT64_MAX;
    assert_int_equal(
        psp_saved_write(path, PSP_SAVED_MANIFEST, NULL, 0, &m->manifest.base, &size, &sum, NULL),
        PSC_OK);
    assert_int_equal(psp_saved_sum(path, &found_size, &found_sum, NULL), PSC_OK);
    assert_true(found_size == size && found_sum == sum);
    assert_int_equal(psp_saved_read(path, PSP_SAVED_MANIFEST, &saved, NULL), PSC_OK);
    assert_string_equal(psp_saved_manifest(saved)->name, name);
    assert_string_equal(psp_saved_manifest(saved)->parts[0]->host, host);
    assert_true(psp_saved_manifest(saved)->cluster == UINT64_MAX);
    psp_saved_destroy(saved);
    psp_saved_destroy(NULL);
}

static void a_message_in_two_pieces_is_one(void **state)
{
    char path[256];
    uint8_t first[PSC_SLOT_COUNT * 2 + 1024];
    uint64_t size, sum;
    psp_saved_t *saved = NULL;
    messages_t *m = make_messages();
    psp_saved_part_t rest = EMBPS__CHECKPOINT__V1__PART__INIT;
    char later[] = "checkpoint-2";
    (void)test_path(path, sizeof path, *state, "part");
    const size_t n = protobuf_c_message_pack(&m->part.base, first);
    rest.name = later;
    rest.n_files = 1;
    rest.files = m->all_files;
    assert_int_equal(psp_saved_write(path, PSP_SAVED_PART, first, n, &rest.base, &size, &sum, NULL),
                     PSC_OK);
    assert_int_equal(psp_saved_read(path, PSP_SAVED_PART, &saved, NULL), PSC_OK);
    assert_string_equal(psp_saved_part(saved)->name, later);
    assert_int_equal(psp_saved_part(saved)->n_files, 2);
    psp_saved_destroy(saved);
}

static void any_bit_that_is_changed_is_noticed(void **state)
{
    char path[256], *bytes = NULL;
    size_t size = 0;
    psc_error_t error = PSC_ERROR_INIT;
    messages_t *m = make_messages();
    psp_saved_t *saved = NULL;
    (void)test_path(path, sizeof path, *state, "manifest");
    assert_int_equal(write_and_read(path, PSP_SAVED_MANIFEST, &m->manifest.base, &error), PSC_OK);
    assert_int_equal(psc_file_read(path, 1 << 20, &bytes, &size, NULL), PSC_OK);
    uint8_t *raw = (uint8_t *)bytes;
    for (size_t bit = 0; bit < size * 8; bit++) {
        raw[bit / 8] = (uint8_t)(raw[bit / 8] ^ 1u << bit % 8);
        psc_status_t st = psp_saved_parse(path, PSP_SAVED_MANIFEST, raw, size, &saved, &error);
        assert_true(st == PSC_CORRUPT || st == PSC_UNSUPPORTED);
        assert_non_null(strstr(error.message, path));
        raw[bit / 8] = (uint8_t)(raw[bit / 8] ^ 1u << bit % 8);
    }
    for (size_t n = 0; n < size; n++)
        assert_int_equal(psp_saved_parse(path, PSP_SAVED_MANIFEST, raw, n, &saved, &error),
                         PSC_CORRUPT);
    assert_int_equal(psp_saved_parse(path, PSP_SAVED_PART, raw, size, &saved, &error), PSC_CORRUPT);
    raw[8] = PSP_SAVED_FORMAT + 1; /* of a release to come, whole */
    const uint64_t sum = XXH3_64bits(raw, size - sizeof sum);
    memcpy(raw + size - sizeof sum, &sum, sizeof sum);
    assert_int_equal(psp_saved_parse(path, PSP_SAVED_MANIFEST, raw, size, &saved, &error),
                     PSC_UNSUPPORTED);
    psc_free(bytes);
}

static void what_makes_no_sense_is_damaged(void **state)
{
    static char *const bad[] = {"", "..", "../up", "a/b/c", "/a", "a/", ".hidden", "a/..", "a b"};
    char path[256];
    psc_error_t error = PSC_ERROR_INIT;
    (void)test_path(path, sizeof path, *state, "part");
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        messages_t *m = make_messages();
        m->file.name = bad[i];
        assert_int_equal(write_and_read(path, PSP_SAVED_PART, &m->part.base, &error), PSC_CORRUPT);
        m = make_messages();
        m->manifest.name = bad[i];
        assert_int_equal(write_and_read(path, PSP_SAVED_MANIFEST, &m->manifest.base, &error),
                         PSC_CORRUPT);
        assert_false(psp_saved_is_name(bad[i]));
    }
    messages_t *m = make_messages();
    m->owners[77] = 1; /* there is server 0 alone */
    assert_int_equal(write_and_read(path, PSP_SAVED_PART, &m->part.base, &error), PSC_CORRUPT);
    m = make_messages();
    m->part.server = 1;
    assert_int_equal(write_and_read(path, PSP_SAVED_PART, &m->part.base, &error), PSC_CORRUPT);
    m = make_messages();
    m->part.slot_owners.len -= 2;
    assert_int_equal(write_and_read(path, PSP_SAVED_PART, &m->part.base, &error), PSC_CORRUPT);
    m = make_messages();
    m->manifest.n_servers = 2;
    assert_int_equal(write_and_read(path, PSP_SAVED_MANIFEST, &m->manifest.base, &error),
                     PSC_CORRUPT);
    m = make_messages();
    m->manifest.state = &m->file;
    assert_int_equal(write_and_read(path, PSP_SAVED_MANIFEST, &m->manifest.base, &error),
                     PSC_CORRUPT);
    m = make_messages();
    m->manifest.vocabulary = &m->file;
    assert_int_equal(write_and_read(path, PSP_SAVED_MANIFEST, &m->manifest.base, &error),
                     PSC_CORRUPT);
    assert_non_null(strstr(error.message, "the vocabulary has another name"));
    m->file.name = words;
    assert_int_equal(write_and_read(path, PSP_SAVED_MANIFEST, &m->manifest.base, &error), PSC_OK);
}

static int set_up(void **state)
{
    *state = test_scratch_create();
    return 0;
}

static int tear_down(void **state)
{
    test_scratch_destroy(*state);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_is_read),
        cmocka_unit_test(a_message_in_two_pieces_is_one),
        cmocka_unit_test(any_bit_that_is_changed_is_noticed),
        cmocka_unit_test(what_makes_no_sense_is_damaged),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
