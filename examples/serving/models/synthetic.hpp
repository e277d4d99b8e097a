// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/models/model.hpp"
#include "serving/models/table.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace accel::examples::serving {

/// The answer of every synthetic model to its input tensors (`payload_bytes` of them, as `model_job::input`): a hash of
/// all bytes of the input, spread over the output. So a client can check each byte. The length of an open output
/// follows from the hash too. Allocates nothing.
void synthetic_answer(std::span<const std::byte> input, std::span<std::byte> output) noexcept;

/// How a synthetic model spends its time. It has to be honest on a host with few cores: where the work would be an
/// accelerator's, a loop would take cores from the transports that are measured, and several loops would slow each
/// other down. So the usual way is to wait.
enum class synthetic_pace : std::uint8_t {
    wait,  ///< as on an accelerator: one inference after another over all models, the thread sleeps
    busy,  ///< as on the host: the thread computes, and several at once share the cores
};

struct synthetic_options {
    double gflops_per_second = 2000;  ///< about what ResNet50 gets on the small GPU of Hanafy et al.
    synthetic_pace pace = synthetic_pace::wait;
};

/// What one inference of a batch of so many takes. The answer is made within this time; where that takes longer, the
/// inference does.
[[nodiscard]] std::chrono::nanoseconds synthetic_duration(const model_shapes& shapes, std::size_t batch,
                                                          double gflops_per_second) noexcept;

/// A model on the host with these shapes, but for what it computes. Raw images are preprocessed for real
/// (`image_preprocessor`), outside of that time. `unsupported` for them where the shapes are not those of images.
[[nodiscard]] std::unique_ptr<model> make_synthetic(const model_shapes& shapes, const synthetic_options& options = {});

}  // namespace accel::examples::serving
