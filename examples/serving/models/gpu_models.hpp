// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/models/model.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>

/// Models on a GPU that need no LibTorch. Their preprocessing is kernels, and all can be recorded for a GPU-resident
/// service: of requests of `iteration.input_bytes`, which are raw images or the table's inputs.
namespace accel::examples::serving {

/// Of how many streams a model keeps scratch memory; on more it answers `overloaded`.
inline constexpr std::size_t gpu_model_streams = 256;

/// The digits network: bit by bit the scores of the host. Values out of range, and frames without a digit, are seen
/// after the answer is under way: their scores are all 0. `unsupported` says what is missing. May block.
[[nodiscard]] result<std::unique_ptr<model>> load_digits_gpu(std::int16_t gpu);

/// As `make_synthetic` of the pace `wait`: its stream is busy for `synthetic_duration` and then has the answer of
/// `synthetic_answer`. Inferences of all streams of a process follow each other, while one thread of the GPU spins.
/// `unsupported` says what is missing. May block.
[[nodiscard]] result<std::unique_ptr<model>> load_synthetic_gpu(const model_shapes& shapes, double gflops_per_second,
                                                                std::int16_t gpu);

}  // namespace accel::examples::serving
