# SPDX-License-Identifier: Apache-2.0
# MLPerf's LoadGen, from the sources that scripts/loadgen.sh fetches: the target mlperf_loadgen, where they are there.
set(ACCEL_LOADGEN "AUTO" CACHE STRING "MLPerf's LoadGen in `load`: ON (fail without its sources), OFF, or AUTO")
set_property(CACHE ACCEL_LOADGEN PROPERTY STRINGS AUTO ON OFF)
set(ACCEL_LOADGEN_SOURCES "${PROJECT_SOURCE_DIR}/build/loadgen/sources" CACHE PATH
  "Where LoadGen's sources are (scripts/loadgen.sh)")
if(ACCEL_LOADGEN STREQUAL "OFF" OR (ACCEL_LOADGEN STREQUAL "AUTO" AND ACCEL_SANITIZE))
  message(STATUS "LoadGen: left out")
  return()
elseif(NOT EXISTS ${ACCEL_LOADGEN_SOURCES}/loadgen.cc)
  if(ACCEL_LOADGEN STREQUAL "ON")
    message(FATAL_ERROR "ACCEL_LOADGEN is ON, but ${ACCEL_LOADGEN_SOURCES} has no LoadGen: run scripts/loadgen.sh")
  endif()
  message(STATUS "LoadGen: left out (scripts/loadgen.sh fetches its sources)")
  return()
endif()
message(STATUS "LoadGen: ${ACCEL_LOADGEN_SOURCES}")
set(files early_stopping issue_query_controller loadgen logging results test_settings_internal utils version
  generated/version_generated)
list(TRANSFORM files PREPEND "${ACCEL_LOADGEN_SOURCES}/")
list(TRANSFORM files APPEND ".cc")
# Its warnings are its own.
add_library(mlperf_loadgen STATIC ${files})
target_compile_features(mlperf_loadgen PUBLIC cxx_std_17)
target_compile_options(mlperf_loadgen PRIVATE -w)
target_include_directories(mlperf_loadgen SYSTEM PUBLIC ${ACCEL_LOADGEN_SOURCES})
target_link_libraries(mlperf_loadgen PUBLIC Threads::Threads)
set_target_properties(mlperf_loadgen PROPERTIES UNITY_BUILD OFF)
