// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "digits/failure.hpp"
#include "digits/network.hpp"

#include <cstddef>
#include <span>

namespace accel::examples::digits {

/// Pixels of a test image are 0 (paper) to 16 (ink).
inline constexpr int brightest_pixel = 16;

/// A view of one test image; the dataset's bytes must outlive it.
struct digit_image {
    std::span<const std::byte, tensor_values> pixels;
    int label;
};

/// The held-out test images: a view of the bytes of a test_images.bin, checked once.
class dataset {
  public:
    /// Checks the bytes (format: README.md); they must outlive the dataset.
    [[nodiscard]] static loaded<dataset> load(std::span<const std::byte> file) noexcept;

    [[nodiscard]] std::size_t size() const noexcept;

    /// `index` must be less than size().
    [[nodiscard]] digit_image operator[](std::size_t index) const noexcept;

  private:
    explicit dataset(std::span<const std::byte> records) noexcept : records_(records) {}

    std::span<const std::byte> records_;
};

/// The preprocessed form of an image: pixels scaled to 0..1, row by row.
void to_tensor(const digit_image& image, std::span<float, tensor_values> tensor) noexcept;

}  // namespace accel::examples::digits
