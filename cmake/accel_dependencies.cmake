# SPDX-License-Identifier: Apache-2.0
# What the library and its tools stand on. ZeroMQ, libibverbs, OpenSSL, spdlog and fmt are private: no public header
# includes them. ACCEL_ZMQ_FOUND and ACCEL_VERBS_FOUND say whether those two are built in; ACCEL_OPTIONAL_LIBRARIES are
# their targets.
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
find_package(spdlog REQUIRED)
find_package(fmt REQUIRED)
find_package(OpenSSL 3.0 REQUIRED COMPONENTS SSL Crypto)

# accel_optional_library(OPTION MODULE PREFIX SCHEMES): a library for some schemes, which a build may leave out.
macro(accel_optional_library option module prefix schemes)
  set(${option} "AUTO" CACHE STRING "${schemes}: ON (fail without ${module}), OFF, or AUTO")
  set_property(CACHE ${option} PROPERTY STRINGS AUTO ON OFF)
  set(${option}_FOUND OFF)
  if(NOT ${option} STREQUAL "OFF")
    pkg_check_modules(${prefix} QUIET IMPORTED_TARGET ${module})
    if(${prefix}_FOUND)
      set(${option}_FOUND ON)
      list(APPEND ACCEL_OPTIONAL_LIBRARIES PkgConfig::${prefix})
    elseif(${option} STREQUAL "ON")
      message(FATAL_ERROR "${option} is ON, but pkg-config does not find ${module}")
    endif()
  endif()
  if(NOT ${option}_FOUND)
    message(STATUS "${schemes}: left out")
  endif()
endmacro()
set(ACCEL_OPTIONAL_LIBRARIES "")
accel_optional_library(ACCEL_ZMQ "libzmq>=4.3" zmq "scheme zmq")
accel_optional_library(ACCEL_VERBS libibverbs ibverbs "schemes rdma, gdr, gpu")
option(ACCEL_VERBS_LOADED "Load libibverbs when it is first used, instead of linking with it" OFF)
if(ACCEL_VERBS_LOADED AND ACCEL_VERBS_FOUND)
  set_target_properties(PkgConfig::ibverbs PROPERTIES INTERFACE_LINK_LIBRARIES "${CMAKE_DL_LIBS}")
  set(ibverbs_LDFLAGS ${CMAKE_DL_LIBS})
endif()
if(ACCEL_ZMQ_FOUND)
  # CMake takes `-isystem FOLDER` for an include folder when pkg-config has just said it, and for an option when it
  # comes from the cache: without this the second configuration would have everything built anew.
  set(folders "${zmq_CFLAGS}")
  list(FILTER folders EXCLUDE REGEX "^-(isystem$|[^Ii])")
  list(TRANSFORM folders REPLACE "^-I" "")
  set_target_properties(PkgConfig::zmq PROPERTIES INTERFACE_COMPILE_OPTIONS "" INTERFACE_INCLUDE_DIRECTORIES
    "${folders}")
endif()

# accel_command_line(SOURCES...): files that parse arguments, and compute and measure nothing. CLI11 takes long to
# optimise, for nothing.
function(accel_command_line)
  set_source_files_properties(${ARGN} PROPERTIES COMPILE_OPTIONS -O0)
endfunction()
