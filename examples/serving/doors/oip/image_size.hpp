// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace accel::examples::serving {

/// A raw image as cameras give it: height × width × 3 bytes, interleaved.
struct image_size {
    std::uint32_t height = 0;
    std::uint32_t width = 0;
};

}  // namespace accel::examples::serving
