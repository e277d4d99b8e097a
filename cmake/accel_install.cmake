# SPDX-License-Identifier: Apache-2.0
# What `cmake --install` puts where: library, headers, CMake package, pkg-config file, tools, licence, docs, examples.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

install(TARGETS accel_transport EXPORT accel_transportTargets FILE_SET HEADERS FILE_SET asio)
# Only what was built: `./run demo` builds less than `./run build`.
foreach(tool accel_perf accel_doctor accel_keys)
  if(TARGET ${tool})
    install(TARGETS ${tool} OPTIONAL)
  endif()
endforeach()
install(FILES LICENSE README.md CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY docs examples DESTINATION ${CMAKE_INSTALL_DOCDIR} PATTERN Doxyfile EXCLUDE)

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

# A user of the static library links what it stands on; of the shared one, nothing more. The libraries are named, not
# required by pkg-config: required packages add flags of their own (-DSPDLOG_…, -isystem of krb5), which users need not
# know, and Debian's libzmq.pc cannot be linked with `pkg-config --static`. -lpthread, because nvcc refuses -pthread.
set(accel_pc_cflags "")
set(accel_pc_libs "")
if(NOT BUILD_SHARED_LIBS)
  set(accel_pc_cflags " -DACCEL_STATIC")
  set(accel_pc_libs -lspdlog -lfmt -lssl -lcrypto)
  if(ACCEL_ZMQ_FOUND)
    list(APPEND accel_pc_libs ${zmq_LDFLAGS})
  endif()
  if(ACCEL_VERBS_FOUND)
    list(APPEND accel_pc_libs ${ibverbs_LDFLAGS})
  endif()
  if(ACCEL_CUDA_FOUND)
    list(APPEND accel_pc_libs -L${CUDAToolkit_LIBRARY_DIR} -lcudart_static -ldl -lrt)
  endif()
  list(APPEND accel_pc_libs -lpthread)
  list(JOIN accel_pc_libs " " accel_pc_libs)
  string(PREPEND accel_pc_libs " ")
endif()
# The prefix is found from where the file lies, so that `cmake --install --prefix` may choose another.
file(RELATIVE_PATH accel_pc_prefix ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
configure_file(${PROJECT_SOURCE_DIR}/cmake/accel_transport.pc.in accel_transport.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/accel_transport.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
