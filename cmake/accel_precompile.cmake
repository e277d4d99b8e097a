# Where nothing is cached (CI), the headers that most files of a target begin with are compiled once. Off by default: ccache
# does better, and the builds without it show that every file includes what it needs.
option(ACCEL_PRECOMPILE "Precompile the headers that take longest" OFF)
if(NOT ACCEL_PRECOMPILE)
  return()
endif()

target_precompile_headers(accel_transport PRIVATE <fmt/format.h> <chrono> <functional> <memory>
  <string> <variant> <vector>)
foreach(tests unit_tests tools_tests conformance_tests)
  if(TARGET ${tests})
    target_precompile_headers(${tests} PRIVATE <gmock/gmock.h> <gtest/gtest.h> <accel_transport/accel_transport.hpp>)
  endif()
endforeach()
