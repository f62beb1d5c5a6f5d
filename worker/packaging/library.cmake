# libembps, shared and static, and what is installed with it: the header, a pkg-config file, a CMake
# package. Both libraries hold the objects of all folders that the client needs; the shared one
# exports the calls of embps.h and nothing else.
set(LIBRARY_PARTS psc psp psp_mpi psp_grpc ps_store ps_table ps_server psw)
set(LIBRARY_OBJECTS $<TARGET_OBJECTS:embps_schema>)
foreach(part ${LIBRARY_PARTS})
    list(APPEND LIBRARY_OBJECTS $<TARGET_OBJECTS:${part}>)
endforeach()
set(LIBRARY_LINK PkgConfig::PROTOBUF_C PkgConfig::OMPI PkgConfig::ROCKSDB PkgConfig::JANSSON
    PkgConfig::XXHASH PkgConfig::SSL PkgConfig::CRYPTO
    ${GRPC_LIBRARY} ${GPR_LIBRARY} Threads::Threads m)

add_library(embps_shared SHARED ${LIBRARY_OBJECTS})
add_library(embps_static STATIC ${LIBRARY_OBJECTS})
set_target_properties(embps_shared embps_static PROPERTIES OUTPUT_NAME embps LINKER_LANGUAGE C)
set_target_properties(embps_shared PROPERTIES
    VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR} EXPORT_NAME embps)
target_link_libraries(embps_shared PRIVATE ${LIBRARY_LINK})
target_link_libraries(embps_static PUBLIC ${LIBRARY_LINK})
set(EXPORTS ${PROJECT_SOURCE_DIR}/worker/packaging/exports.map)
target_link_options(embps_shared PRIVATE -Wl,--version-script=${EXPORTS})
set_target_properties(embps_shared PROPERTIES LINK_DEPENDS ${EXPORTS})
if(NOT EMBPS_SANITIZE)
    target_link_options(embps_shared PRIVATE -Wl,--no-undefined)
endif()

install(FILES worker/include/embps.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(TARGETS embps_shared embps_static EXPORT embpsTargets
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
        INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})

# Paths relative to where the file lies: the prefix may be chosen at install time.
set(PACKAGE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/embps)
file(RELATIVE_PATH PC_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" PC_PREFIX "${PC_PREFIX}")
configure_file(worker/packaging/embps.pc.in embps.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/embps.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

include(CMakePackageConfigHelpers)
configure_package_config_file(worker/packaging/embpsConfig.cmake.in embpsConfig.cmake
                              INSTALL_DESTINATION ${PACKAGE_DIR})
write_basic_package_version_file(embpsConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/embpsConfig.cmake ${PROJECT_BINARY_DIR}/embpsConfigVersion.cmake
        DESTINATION ${PACKAGE_DIR})
install(EXPORT embpsTargets NAMESPACE embps:: DESTINATION ${PACKAGE_DIR})
