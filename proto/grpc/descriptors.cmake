# The schema of all services of the door, as protoc writes it (a FileDescriptorSet), as an array in C
# (descriptors.h): DESCRIPTOR_SOURCE. The standard services' files lie where their names say, in
# KNOWN_PROTOS, as everybody else's copies of them do.
set(KNOWN_PROTOS ${GENERATED}/known)
set(DESCRIPTOR_SOURCE ${GENERATED}/proto/descriptor_bytes.c)
set(KNOWN_FILES grpc/health/v1/health.proto grpc/reflection/v1/reflection.proto
                grpc/reflection/v1alpha/reflection.proto)
list(TRANSFORM KNOWN_FILES PREPEND ${KNOWN_PROTOS}/ OUTPUT_VARIABLE KNOWN_PATHS)
list(TRANSFORM KNOWN_PATHS REPLACE "/[^/]*$" "" OUTPUT_VARIABLE KNOWN_FOLDERS)
file(MAKE_DIRECTORY ${KNOWN_FOLDERS})
add_custom_command(
    OUTPUT ${KNOWN_PATHS} ${DESCRIPTOR_SOURCE}
    COMMAND ${CMAKE_COMMAND} -E copy proto/grpc/health.proto ${KNOWN_PROTOS}/grpc/health/v1
    COMMAND ${CMAKE_COMMAND} -E copy proto/grpc/reflection.proto ${KNOWN_PROTOS}/grpc/reflection/v1
    COMMAND sed "s/^package grpc.reflection.v1\;/package grpc.reflection.v1alpha\;/"
            proto/grpc/reflection.proto > ${KNOWN_PROTOS}/grpc/reflection/v1alpha/reflection.proto
    COMMAND ${PROTOC_C} -I${PROJECT_SOURCE_DIR} -I${KNOWN_PROTOS} --include_imports
            --descriptor_set_out=${GENERATED}/proto/descriptor_set proto/embps.proto ${KNOWN_FILES}
    COMMAND ${CMAKE_COMMAND} -DIN=${GENERATED}/proto/descriptor_set -DOUT=${DESCRIPTOR_SOURCE}
            -P proto/grpc/embed.cmake
    DEPENDS proto/embps.proto proto/grpc/health.proto proto/grpc/reflection.proto
            proto/grpc/embed.cmake
    WORKING_DIRECTORY ${PROJECT_SOURCE_DIR}
    VERBATIM)
