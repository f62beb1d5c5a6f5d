/*
 * Digests against those of FIPS 180-4's own examples and of coreutils' sha256sum, over every length
 * around a block, where padding takes one block more.
 */
#include "common/sha256.h"

#include "tests/support/cmocka.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void expect(const void *bytes, size_t size, const char *hex)
{
    uint8_t digest[PSC_SHA256_BYTES];
    char text[2 * PSC_SHA256_BYTES + 1];
    psc_sha256(bytes, size, digest);
    for (size_t i = 0; i < PSC_SHA256_BYTES; i++)
        (void)snprintf(text + 2 * i, 3, "%02x", digest[i]);
    assert_string_equal(text, hex);
}

static void the_standards_examples_have_their_digests(void **state)
{
    (void)state;
    expect("", 0, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    expect("abc", 3, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    expect("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 56,
           "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    char *million = malloc(1000000);
    assert_non_null(million);
    memset(million, 'a', 1000000);
    expect(million, 1000000, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    free(million);
}

/* Where the length no longer fits behind the bytes of the last block. */
static void lengths_around_a_block_are_padded_right(void **state)
{
    (void)state;
    static const struct {
        size_t n; /* letters a */
        const char *hex;
    } cases[] = {
        {55, "9f4390f8d30c2dd92ec9f095b65e2b9ae9b0a925a5258e241c9f1e910f734318"},
        {56, "b35439a4ac6f0948b6d6f9e3c6af0f5f590ce20f1bde7090ef7970686ec6738a"},
        {63, "7d3e74a05d7db15bce4ad9ec0658ea98e3f06eeecf16b4c6fff2da457ddc2f34"},
        {64, "ffe054fe7ae0cb6dc65c3af9b61d5209f439851db43d0ba5997337df154668eb"},
        {65, "635361c48bb9eab14198e76ea8ab7f1a41685d6ad62aa9146d301d4f17eb0ae0"},
        {119, "31eba51c313a5c08226adf18d4a359cfdfd8d2e816b13f4af952f7ea6584dcfb"},
        {120, "2f3d335432c70b580af0e8e1b3674a7c020d683aa5f73aaaedfdc55af904c21c"},
        {128, "6836cf13bac400e9105071cd6af47084dfacad4e5e302c94bfed24e013afb73e"},
    };
    char bytes[130];
    memset(bytes, 'a', sizeof bytes);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        expect(bytes, cases[i].n, cases[i].hex);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_standards_examples_have_their_digests),
        cmocka_unit_test(lengths_around_a_block_are_padded_right),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
