# SPDX-License-Identifier: Apache-2.0
# Which RDMA device the tests of verbs use: "softnic", which emulates one and is built here; a path to a softnic built
# elsewhere (a sanitized program is run with one that is not); or "machine", whatever this machine has.
set(ACCEL_TEST_NIC "softnic" CACHE STRING "RDMA device of the tests: softnic, a path to softnic, or machine")

# Where sanitized builds run tests of single parts, the optimised build need not. OFF: they are built by name alone.
option(ACCEL_TESTS_OF_PARTS "Tests of single parts" ON)

# How much slower than a release build the sanitized ones are; tests read it from their environment
# (tests/patience.hpp).
set(ACCEL_TEST_TIME_FACTOR 1)
if(ACCEL_SANITIZE)
  set(ACCEL_TEST_TIME_FACTOR 4)
endif()

# accel_weekly(TEST... [BUILD release|sanitized|address|thread]): labels them "weekly", in builds of that kind or in
# all: `./run test --all` leaves them out, because others that it runs find the same.
function(accel_weekly)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "BUILD" "")
  set(this release)
  if(ACCEL_SANITIZE)
    set(this sanitized ${ACCEL_SANITIZE})
  endif()
  if(NOT arg_BUILD OR "${this}" MATCHES "${arg_BUILD}")
    foreach(test IN LISTS arg_UNPARSED_ARGUMENTS)
      if(TEST ${test})
        set_property(TEST ${test} APPEND PROPERTY LABELS weekly)
      endif()
    endforeach()
  endif()
endfunction()

# accel_nic_launcher(VARIABLE FABRIC): what a test that needs an RDMA device is started with, on an emulated network of
# its own. VARIABLE_MISSING says why there is none.
function(accel_nic_launcher variable fabric)
  set(launcher "")
  set(missing "")
  if(NOT ACCEL_VERBS_FOUND)
    set(missing "ACCEL_VERBS is OFF")
  elseif(ACCEL_TEST_NIC STREQUAL "softnic")
    set(launcher $<TARGET_FILE:softnic_cli> run --fabric ${fabric} --)
    if(NOT TARGET softnic_cli)
      set(missing "softnic is not built")
    elseif(ACCEL_SANITIZE)
      set(missing "a sanitized softnic cannot be preloaded; give the path of another as ACCEL_TEST_NIC")
    endif()
  elseif(NOT ACCEL_TEST_NIC STREQUAL "machine")
    set(launcher ${ACCEL_TEST_NIC} run --fabric ${fabric} --)
  endif()
  set(${variable} "${launcher}" PARENT_SCOPE)
  set(${variable}_MISSING "${missing}" PARENT_SCOPE)
endfunction()

# accel_house(HOUSE FOLDER...): the tests of this folder and of those below have the label HOUSE. Their sources include
# headers of tests by their paths in FOLDERs of tests/, and in tests/ itself.
macro(accel_house house)
  set(CMAKE_DIRECTORY_LABELS ${house})
  set(ACCEL_TEST_ROOTS ${ARGN})
  list(TRANSFORM ACCEL_TEST_ROOTS PREPEND ${PROJECT_SOURCE_DIR}/tests/)
  list(APPEND ACCEL_TEST_ROOTS ${PROJECT_SOURCE_DIR}/tests)
endmacro()

# accel_test(NAME SOURCES... [NIC] [GPU] [APART] [PART] [PREFIX PREFIX] [FILTER FILTER] [TWINS PATTERNS]
# [TIMEOUT SECONDS] [LINK TARGETS...]): a GoogleTest program that may include the library's own headers ("core/...");
# each of its suites becomes a ctest test PREFIX<suite> (default: NAME.), as accel_suites() says, which ends after
# TIMEOUT (default 600) seconds: that is for hangs.
# NIC: on an RDMA device. GPU: its kernels stay on the GPU. Nothing runs beside them, because processes share a GPU by
# slices of time. The program is one ctest test then, because a process needs seconds to open a GPU; with APART each of
# its cases still has a process of its own. PART: it tests a single part (ACCEL_TESTS_OF_PARTS).
function(accel_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "NIC;GPU;APART;PART" "TIMEOUT;PREFIX;FILTER;TWINS" "LINK")
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 600)
  endif()
  set(fabric @test@)
  if(arg_PREFIX)
    set(fabric ${name}_@test@)  # another program may have the same prefix
  else()
    set(arg_PREFIX ${name}.)
  endif()
  find_package(GTest REQUIRED)
  add_executable(${name} ${arg_UNPARSED_ARGUMENTS})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/src ${ACCEL_TEST_ROOTS})
  target_link_libraries(${name} PRIVATE accel_transport::accel_transport fmt::fmt ${ACCEL_OPTIONAL_LIBRARIES}
    Threads::Threads ${arg_LINK} GTest::gmock_main GTest::gtest)
  accel_warnings(${name})
  if(arg_PART AND NOT ACCEL_TESTS_OF_PARTS)
    set_target_properties(${name} PROPERTIES EXCLUDE_FROM_ALL ON)
    return()
  endif()
  set(launcher "")
  if(arg_NIC)
    accel_nic_launcher(launcher ${fabric})
    if(launcher_MISSING)
      message(STATUS "${name} is built but not run: ${launcher_MISSING}")
      return()
    endif()
  endif()
  set(properties LABELS unit TIMEOUT ${arg_TIMEOUT} ENVIRONMENT ACCEL_TEST_TIME_FACTOR=${ACCEL_TEST_TIME_FACTOR})
  if(arg_GPU)
    list(APPEND properties RUN_SERIAL TRUE)
  elseif(arg_NIC AND NOT launcher)
    # They name queue pairs by number: on a network that they share, one process at a time.
    list(APPEND properties RESOURCE_LOCK nic)
  endif()
  if(arg_GPU AND NOT arg_APART)
    list(TRANSFORM launcher REPLACE "@test@" ${name})
    add_test(NAME ${name} COMMAND ${launcher} $<TARGET_FILE:${name}>)
    set_tests_properties(${name} PROPERTIES SKIP_REGULAR_EXPRESSION "there is no (GPU|NVIDIA driver)" ${properties})
    return()
  endif()
  # A keyword with an empty value would be a warning of newer CMakes.
  set(chosen "")
  if(arg_APART)
    list(APPEND chosen APART)
  endif()
  foreach(keyword FILTER TWINS)
    if(arg_${keyword})
      list(APPEND chosen ${keyword} "${arg_${keyword}}")
    endif()
  endforeach()
  accel_suites(${name} PREFIX ${arg_PREFIX} ${chosen} LAUNCHER ${launcher} PROPERTIES ${properties})
endfunction()

# accel_fuzz(SUBJECT [LINK TARGETS...]): fuzz_SUBJECT.cpp of this folder, whose corpus is corpus/SUBJECT. With
# ACCEL_BUILD_FUZZ a libFuzzer program, fuzz_SUBJECT; with ACCEL_BUILD_TESTS a test that runs the same object over the
# corpus (tests/fuzz/replay_main.cpp).
function(accel_fuzz subject)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "LINK")
  set(target fuzz_${subject}_target)
  add_library(${target} OBJECT fuzz_${subject}.cpp)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/tests/fuzz
    ${ACCEL_TEST_ROOTS})
  target_link_libraries(${target} PUBLIC accel_transport::accel_transport fmt::fmt ${ACCEL_OPTIONAL_LIBRARIES}
    Threads::Threads ${arg_LINK})
  accel_warnings(${target})
  accel_fuzzed(${target})
  if(ACCEL_BUILD_FUZZ)
    add_executable(fuzz_${subject})
    target_link_libraries(fuzz_${subject} PRIVATE ${target} ${arg_LINK})
    target_link_options(fuzz_${subject} PRIVATE -fsanitize=fuzzer)
    add_dependencies(fuzz_programs fuzz_${subject})
  endif()
  if(ACCEL_BUILD_TESTS)
    add_executable(replay_${subject})
    target_link_libraries(replay_${subject} PRIVATE fuzz_replay ${target} ${arg_LINK})
    add_test(NAME fuzz.replay.${subject} COMMAND replay_${subject} ${CMAKE_CURRENT_SOURCE_DIR}/corpus/${subject})
    set_tests_properties(fuzz.replay.${subject} PROPERTIES LABELS fuzz TIMEOUT 600)
  endif()
endfunction()

# accel_seeds(HOUSE SOURCES...): the program HOUSE_seeds, which writes the seeds of the house's corpora.
function(accel_seeds house)
  if(ACCEL_BUILD_TESTS)
    add_executable(${house}_seeds ${ARGN} ${PROJECT_SOURCE_DIR}/tests/fuzz/seeds_main.cpp)
    target_include_directories(${house}_seeds PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/tests/fuzz)
    target_link_libraries(${house}_seeds PRIVATE accel_transport::accel_transport fmt::fmt ${ACCEL_OPTIONAL_LIBRARIES}
      Threads::Threads)
    accel_warnings(${house}_seeds)
  endif()
endfunction()

# accel_misuses(FOLDER): each source in FOLDER is a test that it does not compile. They are compiled without sanitizers:
# once for each compiler is enough, and gcc's are in the release build.
function(accel_misuses folder)
  if(ACCEL_SANITIZE AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    message(STATUS "misuse is not compiled: it is with the same compiler in builds without sanitizers")
    return()
  endif()
  file(GLOB misuses CONFIGURE_DEPENDS ${folder}/*.cpp)
  foreach(source IN LISTS misuses)
    cmake_path(GET source STEM name)
    add_test(NAME misuse.${name} COMMAND ${CMAKE_COMMAND}
      -D COMPILER=${CMAKE_CXX_COMPILER} -D SOURCE=${source} -D INCLUDE=${PROJECT_SOURCE_DIR}/include
      -P ${PROJECT_SOURCE_DIR}/tests/transport/interface/rejects.cmake)
    accel_weekly(misuse.${name} BUILD sanitized)
  endforeach()
endfunction()
