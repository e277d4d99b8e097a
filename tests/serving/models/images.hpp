// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/models/table.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace accel::tests {

/// An image of bytes that differ from pixel to pixel, the same for the same seed
/// (image_reference.py).
inline std::vector<std::byte> noise_image(const examples::serving::image_size& size, std::uint32_t seed) {
    std::vector<std::byte> image(examples::serving::image_bytes(size));
    for (std::size_t i = 0; i < image.size(); ++i) {
        std::uint32_t value = static_cast<std::uint32_t>(i) * 1103515245U + seed * 12345U;
        value = (value ^ value >> 15) * 2654435761U;
        image[i] = static_cast<std::byte>(value >> 24);
    }
    return image;
}

}  // namespace accel::tests
