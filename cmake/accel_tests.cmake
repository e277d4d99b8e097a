# accel_test(NAME SOURCES... [TIMEOUT SECONDS] [LINK TARGETS...]): a GoogleTest program that may include the library's own
# headers ("core/..."); each of its tests becomes a ctest test of at most TIMEOUT (default 120) seconds.
function(accel_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "TIMEOUT" "LINK")
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  find_package(GTest REQUIRED)
  include(GoogleTest)
  add_executable(${name} ${arg_UNPARSED_ARGUMENTS})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(${name} PRIVATE accel_transport::accel_transport spdlog::spdlog fmt::fmt PkgConfig::zmq
    Threads::Threads ${arg_LINK} GTest::gmock_main GTest::gtest)
  accel_warnings(${name})
  gtest_discover_tests(${name} TEST_PREFIX ${name}. DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60
    PROPERTIES LABELS unit TIMEOUT ${arg_TIMEOUT})
endfunction()

# accel_fuzz(NAME SOURCES...): a libFuzzer program, NAME being fuzz_<subject>. `./run test fuzz` runs each from its
# corpus in tests/fuzz/corpus/<subject>/.
function(accel_fuzz name)
  add_executable(${name} ${ARGN})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(${name} PRIVATE accel_transport::accel_transport spdlog::spdlog fmt::fmt PkgConfig::zmq
    Threads::Threads)
  target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  accel_warnings(${name})
endfunction()
