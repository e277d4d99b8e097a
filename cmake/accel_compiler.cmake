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

if(PROJECT_IS_TOP_LEVEL AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  find_program(ACCEL_CCACHE ccache)
  if(ACCEL_CCACHE)
    set(CMAKE_CXX_COMPILER_LAUNCHER "${ACCEL_CCACHE}")
  endif()
endif()

if(ACCEL_SANITIZE)
  add_compile_options(-fsanitize=${ACCEL_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${ACCEL_SANITIZE})
endif()
if(ACCEL_BUILD_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()

set(ACCEL_WARNINGS -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion -Wold-style-cast
    -Wnon-virtual-dtor -Wextra-semi)

# accel_warnings(TARGET): the warnings that our own code compiles without.
function(accel_warnings target)
  target_compile_options(${target} PRIVATE
    "$<$<COMPILE_LANGUAGE:CXX>:${ACCEL_WARNINGS};$<$<BOOL:${ACCEL_WARNINGS_AS_ERRORS}>:-Werror>>"
    "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra;$<$<BOOL:${ACCEL_WARNINGS_AS_ERRORS}>:-Werror=all-warnings;-Xcompiler=-Werror>>")
endfunction()
