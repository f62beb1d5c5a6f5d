/* The table of message kinds, and how many rows fit into a message. */
#include "proto/message.h"
#include "proto/message_kinds.h"

#include "tests/support/cmocka.h"

static void every_request_has_its_reply(void **state)
{
    (void)state;
    for (uint32_t kind = PSP_HELLO; kind <= PSP_KIND_LAST; kind += 2) {
        assert_int_equal(psp_reply_kind(kind), kind + 1);
        assert_int_equal(psp_reply_kind(kind + 1), 0);
    }
    assert_int_equal(psp_reply_kind(0), 0);
    assert_int_equal(psp_reply_kind(PSP_KIND_LAST + 1), 0);
    assert_int_equal(psp_reply_kind(UINT32_MAX), 0);
}

static void every_kind_has_a_name_of_its_own(void **state)
{
    (void)state;
    for (uint32_t a = PSP_HELLO; a <= PSP_KIND_LAST; a++) {
        assert_string_not_equal(psp_kind_name(a), "unknown");
        for (uint32_t b = PSP_HELLO; b < a; b++)
            assert_string_not_equal(psp_kind_name(a), psp_kind_name(b));
    }
    assert_string_equal(psp_kind_name(0), "unknown");
    assert_string_equal(psp_kind_name(UINT32_MAX), "unknown");
}

static void bulk_fields_are_those_of_the_schema(void **state)
{
    (void)state;
    for (uint32_t kind = PSP_HELLO; kind <= PSP_KIND_LAST; kind++) {
        const psp_kind_info_t *info = psp_kind_info(kind);
        assert_non_null(info);
        const ProtobufCFieldDescriptor *header =
            protobuf_c_message_descriptor_get_field(info->descriptor, 1);
        assert_non_null(header);
        assert_string_equal(header->name, "header");
        for (size_t i = 0; i < PSP_BULK_MAX && info->bulk[i].number != 0; i++) {
            const ProtobufCFieldDescriptor *field =
                protobuf_c_message_descriptor_get_field(info->descriptor, info->bulk[i].number);
            assert_non_null(field);
            uint32_t item_bytes = field->type == PROTOBUF_C_TYPE_FIXED64   ? 8
                                  : field->type == PROTOBUF_C_TYPE_FIXED32 ? 4
                                                                           : 0;
            assert_int_equal(info->bulk[i].item_bytes, item_bytes);
            assert_true(item_bytes != 0 || field->type == PROTOBUF_C_TYPE_BYTES);
        }
    }
}

static void rows_fill_a_message_but_a_little(void **state)
{
    (void)state;
    /* 1 MiB holds 2,570 rows of 100 floats and an id; what is left is for the small fields. */
    size_t n = psp_rows_per_message(100, PSP_MAX_MESSAGE_BYTES);
    assert_true(n * 408 < PSP_MAX_MESSAGE_BYTES);
    assert_true(n * 408 > PSP_MAX_MESSAGE_BYTES - 2048);
    assert_int_equal(psp_rows_per_message(PSP_DIM_MAX, 0), 1);
    assert_int_equal(psp_rows_per_message(PSP_DIM_MAX, PSP_MAX_MESSAGE_BYTES), 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_request_has_its_reply),
        cmocka_unit_test(every_kind_has_a_name_of_its_own),
        cmocka_unit_test(bulk_fields_are_those_of_the_schema),
        cmocka_unit_test(rows_fill_a_message_but_a_little),
    };
    return cmocka_run_group_tests_name("message", tests, NULL, NULL);
}
