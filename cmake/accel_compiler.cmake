# SPDX-License-Identifier: Apache-2.0
# How our own targets are compiled: the language, warnings, hidden visibility, sanitizers.
set(ACCEL_SANITIZE "" CACHE STRING "Sanitizers for every target, as for -fsanitize= (address,undefined or thread)")
option(ACCEL_WARNINGS_AS_ERRORS "Treat warnings as errors" ${PROJECT_IS_TOP_LEVEL})

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
# LibTorch looks for members of std::string in the program, which has its own where the compiler's library is static.
if(ACCEL_EXAMPLES_TORCH)
  set(CMAKE_VISIBILITY_INLINES_HIDDEN OFF)
endif()
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

# ccache, where it is installed, keeps compiled objects. A fresh clone in another folder finds them: paths of the clone
# are no part of what is compared. CCACHE_BASEDIR and CCACHE_NOHASHDIR take them out of commands, the prefix map out of
# __FILE__ and debug information. The compiler is identified by its content.
if(PROJECT_IS_TOP_LEVEL AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  find_program(ACCEL_CCACHE ccache)
  if(ACCEL_CCACHE)
    set(CMAKE_CXX_COMPILER_LAUNCHER "${CMAKE_COMMAND}" -E env "CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}" CCACHE_NOHASHDIR=1
      CCACHE_COMPILERCHECK=content "${ACCEL_CCACHE}")
  endif()
endif()
if(PROJECT_IS_TOP_LEVEL)
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-ffile-prefix-map=${PROJECT_SOURCE_DIR}/=>")
endif()

# A unity build compiles several sources as one, and reads the headers that they share once: a build from nothing takes
# a third of the time. It stays on with ccache too, for the build that finds the cache empty. Names in
# anonymous namespaces must differ between the sources of a target. -DCMAKE_UNITY_BUILD=ON|OFF overrides the choice.
# Since 3.29 CMake would join CUDA sources too, which are few and have names in common.
if(PROJECT_IS_TOP_LEVEL AND NOT DEFINED CMAKE_UNITY_BUILD AND CMAKE_VERSION VERSION_LESS 3.29)
  set(CMAKE_UNITY_BUILD ON CACHE BOOL "Compile several sources at once")
endif()
# Larger batches take less of the processors' time, but more memory.
if(NOT DEFINED CMAKE_UNITY_BUILD_BATCH_SIZE)
  set(CMAKE_UNITY_BUILD_BATCH_SIZE 24)
endif()
# There gcc takes a source for a header, whose types must not use anonymous namespaces; and a local name may be that of
# another source's anonymous namespace, so that -Wshadow is for other builds.
if(CMAKE_UNITY_BUILD)
  add_compile_options($<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-subobject-linkage>)
endif()

# gcc looks for memory that it no longer needs, again and again. Up to 2 GB it does not have to: that takes a tenth of
# its time (30.7 s to 28.0 s a source of the conformance suite, with 830 MB instead of 680).
if(PROJECT_IS_TOP_LEVEL)
  add_compile_options("$<$<COMPILE_LANG_AND_ID:CXX,GNU>:--param=ggc-min-expand=1000;--param=ggc-min-heapsize=2000000>")
endif()

if(ACCEL_SANITIZE)
  add_compile_options(-fsanitize=${ACCEL_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${ACCEL_SANITIZE})
  # Not the check of what a virtual call is called on: it opens a pipe to see whether it may read the object, and
  # reports a fault where there are no descriptors left, which some tests are about.
  if("${ACCEL_SANITIZE}" MATCHES undefined)
    add_compile_options(-fno-sanitize=vptr)
  endif()
  # The usual linker takes two seconds a program under AddressSanitizer, lld a fifth of that.
  find_program(ACCEL_LLD ld.lld)
  if(ACCEL_LLD)
    add_link_options(-fuse-ld=lld)
  endif()
endif()
# accel_unoptimised(): for the targets of this folder. What AddressSanitizer and UndefinedBehaviorSanitizer add takes
# clang three times as long to optimise as it saves. accel_computes(TARGET): not for this one, which computes.
macro(accel_unoptimised)
  if(ACCEL_SANITIZE)
    add_compile_options("$<$<COMPILE_LANG_AND_ID:CXX,Clang>:-O0>")
  endif()
endmacro()
function(accel_computes target)
  if(ACCEL_SANITIZE)
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-O1>)
  endif()
endfunction()

# accel_fuzzed(TARGET): with ACCEL_BUILD_FUZZ, libFuzzer sees which way its code goes.
function(accel_fuzzed target)
  if(ACCEL_BUILD_FUZZ)
    target_compile_options(${target} PRIVATE -fsanitize=fuzzer-no-link)
  endif()
endfunction()

set(ACCEL_WARNINGS -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion -Wold-style-cast
    -Wnon-virtual-dtor -Wextra-semi)
if(CMAKE_UNITY_BUILD)
  list(REMOVE_ITEM ACCEL_WARNINGS -Wshadow)
endif()

# accel_warnings(TARGET): the warnings that our own code compiles without.
function(accel_warnings target)
  target_compile_options(${target} PRIVATE
    "$<$<COMPILE_LANGUAGE:CXX>:${ACCEL_WARNINGS};$<$<BOOL:${ACCEL_WARNINGS_AS_ERRORS}>:-Werror>>"
    "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra>"
    "$<$<AND:$<COMPILE_LANGUAGE:CUDA>,$<BOOL:${ACCEL_WARNINGS_AS_ERRORS}>>:-Werror=all-warnings;-Xcompiler=-Werror>")
endfunction()
