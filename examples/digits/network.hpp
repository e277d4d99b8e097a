// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "digits/failure.hpp"

#include <cstddef>
#include <span>

namespace accel::examples::digits {

inline constexpr int image_side = 8;
inline constexpr std::size_t tensor_values = 64;
inline constexpr std::size_t tensor_bytes = tensor_values * sizeof(float);
inline constexpr std::size_t class_count = 10;

/// Sizes of the layers: two convolutions, a 2x2 maximum pooling, two dense layers.
struct network_shape {
    static constexpr int conv1_channels = 8;
    static constexpr int conv2_channels = 16;
    static constexpr int pooled_side = image_side / 2;
    static constexpr int pooled_values = pooled_side * pooled_side * conv2_channels;
    static constexpr int hidden_values = 32;
    static constexpr int classes = static_cast<int>(class_count);
};

/// All weights, in the order of weights.bin; trivially copyable, so that it can go to a device as it is.
struct network_parameters {
    float conv1_weights[9 * network_shape::conv1_channels];
    float conv1_bias[network_shape::conv1_channels];
    float conv2_weights[9 * network_shape::conv1_channels * network_shape::conv2_channels];
    float conv2_bias[network_shape::conv2_channels];
    float hidden_weights[network_shape::pooled_values * network_shape::hidden_values];
    float hidden_bias[network_shape::hidden_values];
    float output_weights[network_shape::hidden_values * network_shape::classes];
    float output_bias[network_shape::classes];
};

/// The trained digit classifier; about 39 KiB, held by value.
class network {
  public:
    /// Reads the bytes of a weights.bin (format: README.md), which need not outlive the call.
    [[nodiscard]] static loaded<network> load(std::span<const std::byte> file) noexcept;

    /// Scores a 1x1x8x8 tensor (row by row, values 0..1; the digit is bright): probabilities that sum to 1.
    /// Allocates nothing; any number of threads may call it at once.
    /// Fails with tensor_size_wrong or tensor_value_out_of_range (which covers NaN); `scores` is then
    /// untouched.
    [[nodiscard]] failure classify(std::span<const float> tensor, std::span<float, class_count> scores) const noexcept;

    [[nodiscard]] const network_parameters& parameters() const noexcept { return parameters_; }

  private:
    network_parameters parameters_{};
};

/// The digit with the highest score; the smaller digit where two are equal.
[[nodiscard]] int best_class(std::span<const float, class_count> scores) noexcept;

}  // namespace accel::examples::digits
