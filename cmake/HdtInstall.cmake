# The files that `cmake --install` brings besides the programs: libhdt, libhdtplan and libhdttrain, their
# headers, and what find_package(hdt) and pkg-config need. All paths in there are relative, so an installed
# tree can be moved.
include(CMakePackageConfigHelpers)

get_target_property(HDT_SOVERSION hdt SOVERSION)
install(TARGETS hdt hdtplan hdttrain LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/libclient/include/hdt ${PROJECT_SOURCE_DIR}/training/plan/include/hdt
  ${PROJECT_SOURCE_DIR}/training/api/include/hdt
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})

set(HDT_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/hdt)
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/hdtConfig.cmake.in
                              ${PROJECT_BINARY_DIR}/hdtConfig.cmake
  INSTALL_DESTINATION ${HDT_CMAKE_DIR}
  PATH_VARS CMAKE_INSTALL_LIBDIR CMAKE_INSTALL_INCLUDEDIR)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/hdtConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/hdtConfig.cmake ${PROJECT_BINARY_DIR}/hdtConfigVersion.cmake
  DESTINATION ${HDT_CMAKE_DIR})

set(HDT_PKGCONFIG_DIR ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
file(RELATIVE_PATH HDT_PREFIX_FROM_PKGCONFIG /${HDT_PKGCONFIG_DIR} /)
configure_file(${CMAKE_CURRENT_LIST_DIR}/hdt.pc.in ${PROJECT_BINARY_DIR}/hdt.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/hdt.pc DESTINATION ${HDT_PKGCONFIG_DIR})

# The daemon as a service: its unit, its user, the folder of its socket, and drop-ins for sites to copy.
set(HDT_DIST ${PROJECT_SOURCE_DIR}/dist)
install(FILES ${HDT_DIST}/hdtcommd.service DESTINATION lib/systemd/system)
install(FILES ${HDT_DIST}/hdt.sysusers DESTINATION lib/sysusers.d RENAME hdt.conf)
install(FILES ${HDT_DIST}/hdt.tmpfiles DESTINATION lib/tmpfiles.d RENAME hdt.conf)
install(FILES ${HDT_DIST}/rdma.conf ${HDT_DIST}/ucx.conf DESTINATION share/hdt/hdtcommd.service.d)
