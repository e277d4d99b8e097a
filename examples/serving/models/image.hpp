// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/models/image_math.hpp"
#include "serving/models/table.hpp"

#include <cstddef>
#include <span>
#include <vector>

namespace accel::examples::serving {

/// Makes 1×3×height×width floats of a raw image, on the host (image_math.hpp says how). Any number of threads may call
/// it at once; it allocates when it is made, not when it works.
class image_preprocessor {
  public:
    /// Of images of this size, to tensors of `to`. No size is 0.
    image_preprocessor(const image_size& from, const image_size& to);

    /// `image` has `image_bytes(from)` bytes, `tensor` 12 × height × width, aligned for floats.
    void run(std::span<const std::byte> image, std::span<std::byte> tensor) const noexcept;

  private:
    void fill_row(const unsigned char* image, int row, float* red) const noexcept;

    image_size from_, to_;
    std::vector<pixel_pair> columns_;
};

/// True: the model takes raw images, and one float tensor of 1×3×height×width that can be made of them like this.
[[nodiscard]] bool takes_images(const model_shapes& shapes) noexcept;
/// Height and width of that tensor.
[[nodiscard]] image_size tensor_image(const model_shapes& shapes) noexcept;

}  // namespace accel::examples::serving
