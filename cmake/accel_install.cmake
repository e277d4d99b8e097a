# What `cmake --install` puts where: library, headers, CMake package, pkg-config file, tools.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

install(TARGETS accel_transport EXPORT accel_transportTargets)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/accel_transport DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
foreach(tool accel_perf accel_doctor accel_keys)
  if(TARGET ${tool})
    install(TARGETS ${tool})
  endif()
endforeach()

set(accel_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/accel_transport)
install(EXPORT accel_transportTargets NAMESPACE accel_transport:: DESTINATION ${accel_package_dir})
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/accel_transportConfig.cmake.in accel_transportConfig.cmake
  INSTALL_DESTINATION ${accel_package_dir} NO_SET_AND_CHECK_MACRO)
# While the major version is 0, a minor version may break users.
write_basic_package_version_file(accel_transportConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES
  ${CMAKE_CURRENT_BINARY_DIR}/accel_transportConfig.cmake
  ${CMAKE_CURRENT_BINARY_DIR}/accel_transportConfigVersion.cmake
  DESTINATION ${accel_package_dir})

# A user of the static library links what it stands on; of the shared one, nothing more. They are `Requires`, not
# `Requires.private`, because Debian's libzmq.pc cannot be linked with `pkg-config --static`.
if(BUILD_SHARED_LIBS)
  set(accel_pc_requires "")
  set(accel_pc_cflags "")
  set(accel_pc_libs "")
else()
  set(accel_pc_requires "libzmq >= 4.3, libibverbs, libssl >= 3.0, libcrypto >= 3.0, spdlog, fmt")
  set(accel_pc_cflags " -DACCEL_STATIC")
  set(accel_pc_libs " -pthread")
  if(ACCEL_CUDA_FOUND)
    string(APPEND accel_pc_libs " -L${CUDAToolkit_LIBRARY_DIR} -lcudart_static -ldl -lrt")
  endif()
endif()
# The prefix is found from where the file lies, so that `cmake --install --prefix` may choose another.
file(RELATIVE_PATH accel_pc_prefix ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
configure_file(${PROJECT_SOURCE_DIR}/cmake/accel_transport.pc.in accel_transport.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/accel_transport.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
