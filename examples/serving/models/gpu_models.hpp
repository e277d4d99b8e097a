// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/models/model.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>

/// Models on a GPU that need no LibTorch. Their preprocessing is kernels, and all can be recorded for a GPU-resident
/// service: of requests of `iteration.input_bytes`, which are raw images or the table's inputs.
namespace accel::examples::serving {

/// Of how many streams a model keeps scratch memory; on more it answers `overloaded`. A recording has its own.
inline constexpr std::size_t gpu_model_streams = 512;

/// Before the first call of CUDA, and before other threads read the environment: sets CUDA_DEVICE_MAX_CONNECTIONS to
/// its largest value, 32, unless it is set. The streams of a process share so many queues of the GPU, 8 by default, and
/// wait for each other where they share one.
void use_all_gpu_queues() noexcept;

/// The digits network: bit by bit the scores of the host. Values out of range, and frames without a digit, are seen
/// after the answer is under way: their scores are all 0. `unsupported` says what is missing. May block.
[[nodiscard]] result<std::unique_ptr<model>> load_digits_gpu(std::int16_t gpu);

/// As `make_synthetic` of the pace `wait`: its stream is busy for `synthetic_duration` and then has the answer of
/// `synthetic_answer`. Inferences of all streams of a process follow each other, while one thread of the GPU spins.
/// `unsupported` says what is missing. May block.
[[nodiscard]] result<std::unique_ptr<model>> load_synthetic_gpu(const model_shapes& shapes, double gflops_per_second,
                                                                std::int16_t gpu);

/// The same model, its inferences recorded once per stream as a CUDA graph and replayed. On failure, which says why it
/// cannot be recorded, it stays in `what`. May block.
[[nodiscard]] result<std::unique_ptr<model>> replay_graphs(std::unique_ptr<model>& what);

}  // namespace accel::examples::serving
