// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "digits/dataset.hpp"
#include "digits/failure.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace accel::examples::digits {

inline constexpr std::size_t frame_width = 640;
inline constexpr std::size_t frame_height = 480;
inline constexpr std::size_t frame_channels = 3;
inline constexpr std::size_t frame_row_bytes = frame_width * frame_channels;
inline constexpr std::size_t frame_bytes = frame_row_bytes * frame_height;

/// Draws `image` on a page as a camera might see it: RGB, rows from the top, a byte a channel.
/// `seed` (the image's index, say) decides place, size, colours, light and noise; the same seed and image
/// give the same frame. Fails with frame_size_wrong where `frame` is not frame_bytes long; it is then
/// untouched.
[[nodiscard]] failure draw_frame(const digit_image& image, std::uint64_t seed, std::span<std::byte> frame) noexcept;

}  // namespace accel::examples::digits
