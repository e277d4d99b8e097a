// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>

namespace accel::examples::digits {

/// The bytes of weights.bin, built into the binary.
[[nodiscard]] std::span<const std::byte> embedded_weights() noexcept;

/// The bytes of test_images.bin, built into the binary.
[[nodiscard]] std::span<const std::byte> embedded_test_images() noexcept;

/// The text of reference_scores.csv, built into the binary.
[[nodiscard]] std::span<const std::byte> embedded_reference_scores() noexcept;

}  // namespace accel::examples::digits
