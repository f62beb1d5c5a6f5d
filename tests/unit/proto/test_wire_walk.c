/* Walking over fields: what protobuf's encoding guide says, byte by byte. */
#include "proto/embps.pb-c.h"
#include "proto/wire_walk.h"

#include "tests/support/cmocka.h"

#include <stddef.h>
#include <string.h>

static psp_wire_t wire_of(const char *bytes, size_t size)
{
    return (psp_wire_t){.next = (const uint8_t *)bytes, .end = (const uint8_t *)bytes + size};
}

static void walks_over_every_wire_type(void **state)
{
    (void)state;
    const char bytes[] = "\x08\x96\x01"           /* field 1: varint 150 */
                         "\x12\x03"               /* field 2: three bytes */
                         "abc"                    /**/
                         "\x19\1\2\3\4\5\6\7\x08" /* field 3: 64 bits */
                         "\x25\1\2\3\4"           /* field 4: 32 bits */
                         "\xfa\xff\xff\xff\x0f\x00" /* field 2^29 - 1: no bytes */;
    const psp_field_t want[] = {{1, PSP_WIRE_VARINT, NULL, NULL, 2},
                                {2, PSP_WIRE_BYTES, NULL, NULL, 3},
                                {3, PSP_WIRE_64, NULL, NULL, 8},
                                {4, PSP_WIRE_32, NULL, NULL, 4},
                                {(1u << 29) - 1, PSP_WIRE_BYTES, NULL, NULL, 0},
                                {0, PSP_WIRE_VARINT, NULL, NULL, 0}};
    psp_wire_t wire = wire_of(bytes, sizeof bytes - 1);
    const uint8_t *end = wire.next;
    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++) {
        psp_field_t field;
        assert_null(psp_wire_next(&wire, &field));
        assert_int_equal(field.number, want[i].number);
        assert_int_equal(field.size, want[i].size);
        assert_ptr_equal(field.start, end); /* no byte between two fields */
        if (field.number == 0)
            break;
        assert_int_equal(field.type, want[i].type);
        end = field.payload + field.size;
        assert_ptr_equal(wire.next, end);
    }
    assert_ptr_equal(wire.next, wire.end);
}

static void every_cut_within_a_field_is_seen(void **state)
{
    (void)state;
    const char *fields[] = {"\x08\x96\x01", "\x12\x03xyz", "\x19\1\2\3\4\5\6\7\x08",
                            "\x25\1\2\3\4"};
    const size_t sizes[] = {3, 5, 9, 5};
    for (size_t i = 0; i < 4; i++) {
        for (size_t cut = 1; cut < sizes[i]; cut++) {
            psp_wire_t wire = wire_of(fields[i], cut);
            psp_field_t field;
            assert_non_null(psp_wire_next(&wire, &field));
        }
    }
}

static void varints_are_written_as_they_are_read(void **state)
{
    (void)state;
    for (unsigned int shift = 0; shift < 64; shift++) {
        for (int less = 0; less < 2; less++) {
            uint64_t value = (UINT64_C(1) << shift) - (uint64_t)less;
            uint8_t bytes[11] = {0x08};
            uint8_t *end = psp_varint_write(bytes + 1, value);
            size_t size = (size_t)(end - bytes) - 1;
            assert_int_equal(size, psp_varint_size(value));
            uint64_t read = 0;
            for (size_t i = size; i > 0; i--)
                read = read << 7 | (bytes[i] & 0x7fu);
            assert_true(read == value);
            psp_wire_t wire = {.next = bytes, .end = end};
            psp_field_t field;
            assert_null(psp_wire_next(&wire, &field));
            assert_int_equal(field.size, size);
        }
    }
    assert_int_equal(psp_varint_size(UINT64_MAX), 10);
    const char eleven[] = "\x08\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x00";
    psp_wire_t wire = wire_of(eleven, sizeof eleven - 1);
    psp_field_t field;
    assert_non_null(psp_wire_next(&wire, &field));
}

/* What the check says of the first field of bytes, as a field of an OpenTableRequest. */
static const char *check(const char *bytes, size_t size, const char **name_out)
{
    psp_wire_t wire = wire_of(bytes, size);
    psp_field_t field;
    assert_null(psp_wire_next(&wire, &field));
    const ProtobufCFieldDescriptor *known = protobuf_c_message_descriptor_get_field(
        &embps__v1__open_table_request__descriptor, field.number);
    assert_non_null(known);
    return psp_wire_check(known, &field, name_out);
}

static void fields_must_fit_their_schema(void **state)
{
    (void)state;
    const char *name = NULL;
    assert_null(check("\x12\x02hi", 4, &name));
    assert_non_null(check("\x12\x02h\0", 4, &name));
    assert_string_equal(name, "name");
    assert_non_null(check("\x10\x01", 2, &name));
    assert_null(check("\x18\x01", 2, &name));
    assert_non_null(check("\x1d\1\2\3\4", 5, &name));
    assert_string_equal(name, "dim");
    /* doubles: one, packed, packed to no whole number */
    assert_null(check("\x29\0\0\0\0\0\0\0\0", 9, &name));
    assert_null(check("\x2a\x08\0\0\0\0\0\0\0\0", 10, &name));
    assert_non_null(check("\x2a\x07\0\0\0\0\0\0\0", 9, &name));
    assert_string_equal(name, "init_params");
    /* within the header: cluster is a fixed64, unknown fields pass, cuts do not */
    assert_null(check("\x0a\x09\x11\0\0\0\0\0\0\0\0", 11, &name));
    assert_non_null(check("\x0a\x02\x10\x01", 4, &name));
    assert_string_equal(name, "cluster");
    assert_null(check("\x0a\x03\xf8\x07\x01", 5, &name));
    assert_non_null(check("\x0a\x01\x08", 3, &name));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(walks_over_every_wire_type),
        cmocka_unit_test(every_cut_within_a_field_is_seen),
        cmocka_unit_test(varints_are_written_as_they_are_read),
        cmocka_unit_test(fields_must_fit_their_schema),
    };
    return cmocka_run_group_tests_name("wire_walk", tests, NULL, NULL);
}
