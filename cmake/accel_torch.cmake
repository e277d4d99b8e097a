# SPDX-License-Identifier: Apache-2.0
# LibTorch, for examples. PyTorch carries it; its CMake package would ask for every CUDA library that it was built with,
# so it is found by its folder.
set(ACCEL_TORCH "" CACHE PATH "Folder of PyTorch or LibTorch, with include and lib; empty: that of python3's torch")
if(NOT ACCEL_CUDA_FOUND)
  message(FATAL_ERROR "ACCEL_EXAMPLES_TORCH needs a CUDA toolkit (ACCEL_CUDA)")
endif()
set(ACCEL_TORCH_FOLDER "${ACCEL_TORCH}")
if(NOT ACCEL_TORCH_FOLDER)
  find_package(Python3 COMPONENTS Interpreter REQUIRED)
  execute_process(COMMAND ${Python3_EXECUTABLE} -c
    "import importlib.util as i; print(i.find_spec('torch').submodule_search_locations[0], end='')"
    OUTPUT_VARIABLE ACCEL_TORCH_FOLDER ERROR_QUIET)
endif()
if(NOT EXISTS "${ACCEL_TORCH_FOLDER}/include/torch/csrc/api/include/torch/nn.h")
  message(FATAL_ERROR "ACCEL_EXAMPLES_TORCH: there is no LibTorch in '${ACCEL_TORCH_FOLDER}'; set ACCEL_TORCH")
endif()
message(STATUS "LibTorch: ${ACCEL_TORCH_FOLDER}")

# accel_use_torch(LIBRARY): the library's sources may include LibTorch's headers; programs that link it are linked with
# LibTorch.
function(accel_use_torch library)
  target_include_directories(${library} SYSTEM PRIVATE ${ACCEL_TORCH_FOLDER}/include
    ${ACCEL_TORCH_FOLDER}/include/torch/csrc/api/include ${CUDAToolkit_INCLUDE_DIRS})
  # Its libraries bring kernels, which nothing names. What they need themselves they find when they are loaded.
  set(libraries "")
  foreach(part torch torch_cpu torch_cuda c10 c10_cuda)
    list(APPEND libraries "${ACCEL_TORCH_FOLDER}/lib/lib${part}.so")
  endforeach()
  target_link_libraries(${library} PUBLIC -Wl,--push-state,--no-as-needed ${libraries} -Wl,--pop-state)
  # They come with a CUDA runtime of their own, which must not meet ours.
  target_link_options(${library} INTERFACE LINKER:--allow-shlib-undefined LINKER:--exclude-libs,libcudart_static.a)
endfunction()
