# SPDX-License-Identifier: Apache-2.0
# accel_suites(PROGRAM PREFIX PREFIX [APART] [FILTER FILTER] [TWINS PATTERNS] [LAUNCHER WORD...]
# [PROPERTIES NAME VALUE...]): each suite of a GoogleTest program becomes a ctest test PREFIX<suite>, which is one
# process; FILTER chooses cases, as --gtest_filter does. APART: each case is a test and a process of its own. TWINS:
# cases that go the ways of others, with bytes elsewhere or without keys; in sanitized builds they are
# PREFIXtwins.<suite>, with the label "weekly". In LAUNCHER, what the program is started with, @test@ stands for a short
# name that no other test has.
#
# ctest asks the program for its suites, so nothing is built for that. With ACCEL_TESTS_BY=case in its environment each
# case is a test, PREFIX<suite>.<case>, whose failure is its own.
set(ACCEL_LIST_SUITES ${CMAKE_CURRENT_LIST_DIR}/accel_list_suites.cmake)
function(accel_suites program)
  cmake_parse_arguments(PARSE_ARGV 1 arg "APART" "PREFIX;FILTER;TWINS" "LAUNCHER;PROPERTIES")
  set(file ${CMAKE_CURRENT_BINARY_DIR}/${program}_${arg_PREFIX}suites.cmake)
  if(NOT arg_FILTER)
    set(arg_FILTER *)
  endif()
  if(arg_TWINS AND ACCEL_SANITIZE)
    accel_suites(${program} PREFIX ${arg_PREFIX}twins. FILTER ${arg_TWINS} LAUNCHER ${arg_LAUNCHER}
      PROPERTIES ${arg_PROPERTIES} LABELS weekly)
    if(arg_FILTER MATCHES "-")
      string(APPEND arg_FILTER :${arg_TWINS})
    else()
      string(APPEND arg_FILTER -${arg_TWINS})
    endif()
  endif()
  set(launcher "${arg_LAUNCHER}")
  list(TRANSFORM launcher REPLACE "(.+)" "[==[\\1]==]")
  list(JOIN launcher " " launcher)
  set(properties ${arg_PROPERTIES} WORKING_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR})
  list(TRANSFORM properties REPLACE "(.+)" "[==[\\1]==]")
  list(JOIN properties " " properties)
  file(GENERATE OUTPUT ${file} CONTENT
"set(program [==[$<TARGET_FILE:${program}>]==])
set(launcher ${launcher})
set(prefix [==[${arg_PREFIX}]==])
set(filter [==[${arg_FILTER}]==])
set(apart ${arg_APART})
set(properties ${properties})
include([==[${ACCEL_LIST_SUITES}]==])
")
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${file})
endfunction()
