# cmake -DIN=FILE -DOUT=FILE.c -P embed.cmake: the bytes of IN as the array of descriptors.h.
file(READ ${IN} BYTES HEX)
string(LENGTH "${BYTES}" DIGITS)
math(EXPR SIZE "${DIGITS} / 2")
string(REGEX REPLACE "(................................)" "\\1\n" BYTES "${BYTES}")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," BYTES "${BYTES}")
file(WRITE ${OUT} "#include \"proto/grpc/descriptors.h\"

const size_t psp_descriptor_size = ${SIZE};
const uint8_t psp_descriptor_bytes[] = {
${BYTES}
};
")
