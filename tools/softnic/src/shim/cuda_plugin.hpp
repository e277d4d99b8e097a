// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "dma/engine.hpp"
#include "model/settings.hpp"

namespace accel::softnic {

/// Knows memory of CUDA GPUs, by libsoftnic_cuda.so beside this library. That is loaded at the first
/// registration after the program has loaded a CUDA driver, and never in a program without one.
[[nodiscard]] std::shared_ptr<dma_plugin> make_cuda_plugin(const settings& chosen);

}  // namespace accel::softnic
