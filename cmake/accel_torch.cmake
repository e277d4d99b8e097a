# SPDX-License-Identifier: Apache-2.0
# LibTorch, for examples. PyTorch carries it; its CMake package would ask for every CUDA library that it was built with,
# so it is found by its folder. ACCEL_TORCH_CUDA: it works on GPUs, and so does this build.
set(ACCEL_TORCH "" CACHE PATH "Folder of PyTorch or LibTorch, with include and lib; empty: that of a python's torch")
set(ACCEL_PYTHON "$ENV{ACCEL_PYTHON}" CACHE FILEPATH "The python whose torch is used; empty: python3")
set(folder "${ACCEL_TORCH}")
set(asked "ACCEL_TORCH")
if(NOT folder)
  if(ACCEL_PYTHON)
    set(asked "${ACCEL_PYTHON}")
  else()
    find_program(ACCEL_TORCH_PYTHON python3 HINTS "$ENV{VIRTUAL_ENV}/bin")
    set(asked "${ACCEL_TORCH_PYTHON}")
  endif()
  execute_process(COMMAND "${asked}" -c
    "import importlib.util as i; print(i.find_spec('torch').submodule_search_locations[0], end='')"
    OUTPUT_VARIABLE folder ERROR_QUIET)
endif()
if(NOT EXISTS "${folder}/include/torch/csrc/api/include/torch/nn.h")
  message(FATAL_ERROR "ACCEL_EXAMPLES_TORCH: there is no LibTorch in '${folder}' (asked: ${asked}). "
    "Install PyTorch there, name another python with ACCEL_PYTHON, or the folder of LibTorch with ACCEL_TORCH")
endif()
file(STRINGS "${folder}/lib/libc10.so" symbols LIMIT_COUNT 1 REGEX "torchCheckFail.*cxx11")
if(NOT symbols)
  message(FATAL_ERROR "ACCEL_EXAMPLES_TORCH: the LibTorch in '${folder}' has std::string from before C++11, as PyPI's "
    "has before 2.7: install a newer PyTorch")
endif()
set(cuda OFF)
if(ACCEL_CUDA_FOUND AND EXISTS "${folder}/lib/libtorch_cuda.so")
  set(cuda ON)
endif()
set(ACCEL_TORCH_FOLDER "${folder}" CACHE INTERNAL "")
set(ACCEL_TORCH_CUDA ${cuda} CACHE INTERNAL "")
message(STATUS "LibTorch: ${ACCEL_TORCH_FOLDER} (asked: ${asked}), GPUs: ${ACCEL_TORCH_CUDA}")

# LibTorch's objects go through this program's C++ library. A library of its own in the program ends it with "free():
# invalid pointer". What has kernels is linked by CUDA's host compiler.
set(probe [[
#include <dlfcn.h>
#include <exception>
#include <string>
int main() {
    Dl_info found{};
    if (dladdr(reinterpret_cast<void*>(&std::terminate), &found) == 0 || found.dli_fname == nullptr) return 1;
    return std::string(found.dli_fname).find("libstdc++.so") == std::string::npos ? 1 : 0;
}
]])
foreach(ending cpp cu)
  if(ending STREQUAL "cu" AND NOT ACCEL_TORCH_CUDA)
    break()
  endif()
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/torch_probe.${ending} CONTENT "${probe}" @ONLY)
  try_run(ACCEL_TORCH_STATUS_${ending} ACCEL_TORCH_BUILT_${ending}
    SOURCES ${CMAKE_BINARY_DIR}/torch_probe.${ending} LINK_LIBRARIES ${CMAKE_DL_LIBS})
  if(NOT ACCEL_TORCH_BUILT_${ending} OR NOT ACCEL_TORCH_STATUS_${ending} EQUAL 0)
    message(FATAL_ERROR "ACCEL_EXAMPLES_TORCH: the compiler of .${ending} files links the C++ library statically, and "
      "LibTorch needs the shared one. Configure a new folder with other compilers: CXX=/usr/bin/g++ "
      "CUDAHOSTCXX=/usr/bin/g++")
  endif()
endforeach()

# accel_use_torch(LIBRARY): the library's sources may include LibTorch's headers; programs that link it are linked with
# LibTorch.
function(accel_use_torch library)
  target_include_directories(${library} SYSTEM PRIVATE ${ACCEL_TORCH_FOLDER}/include
    ${ACCEL_TORCH_FOLDER}/include/torch/csrc/api/include ${CUDAToolkit_INCLUDE_DIRS})
  # Its libraries bring kernels, which nothing names. What they need themselves they find when they are loaded.
  set(libraries "")
  foreach(part torch_cpu c10)
    list(APPEND libraries "${ACCEL_TORCH_FOLDER}/lib/lib${part}.so")
  endforeach()
  if(ACCEL_TORCH_CUDA)
    foreach(part torch torch_cuda c10_cuda)
      list(APPEND libraries "${ACCEL_TORCH_FOLDER}/lib/lib${part}.so")
    endforeach()
  endif()
  target_link_libraries(${library} PUBLIC -Wl,--push-state,--no-as-needed ${libraries} -Wl,--pop-state)
  target_link_options(${library} INTERFACE LINKER:--allow-shlib-undefined)
  # They come with a CUDA runtime of their own, which must not meet ours.
  if(ACCEL_TORCH_CUDA)
    target_link_options(${library} INTERFACE LINKER:--exclude-libs,libcudart_static.a)
  endif()
endfunction()
