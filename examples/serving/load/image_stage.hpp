// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/load/settings.hpp"

#include <accel_transport/context.hpp>
#include <accel_transport/memory.hpp>

#include <cstddef>
#include <memory>
#include <span>

namespace accel::examples::serving {

/// The first of two stages, whose second one is the server: makes a request's tensors out of a raw image, on a GPU.
/// Belongs to one thread.
class image_stage {
  public:
    /// `image`: of the model's size; kept on the GPU. `unsupported`: this GPU cannot be used, or the build has no CUDA.
    [[nodiscard]] static result<std::unique_ptr<image_stage>> make(context& ctx, const model_shapes& model,
                                                                   std::span<const std::byte> image,
                                                                   const first_stage& chosen);
    virtual ~image_stage() = default;
    /// Waits until the tensors are where they are sent from.
    [[nodiscard]] virtual result<void> run() = 0;
    [[nodiscard]] virtual slice request() const noexcept = 0;
};

}  // namespace accel::examples::serving
