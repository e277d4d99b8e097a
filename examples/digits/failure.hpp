// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace accel::examples::digits {

/// Why a file, frame or tensor was refused; `describe` says it in a sentence.
enum class failure : std::uint8_t {
    none,
    file_truncated,
    file_too_long,
    magic_unknown,
    version_unknown,
    checksum_mismatch,
    shape_unexpected,
    weight_not_finite,
    pixel_out_of_range,
    label_out_of_range,
    tensor_size_wrong,
    tensor_value_out_of_range,
    frame_size_wrong,
    frame_blank,
};

/// A sentence for people, with static lifetime; empty for `none`.
[[nodiscard]] std::string_view describe(failure why) noexcept;

/// What a loader returns: a value exactly when `error` is `none`.
template <class T>
struct loaded {
    std::optional<T> value;
    failure error = failure::none;
};

}  // namespace accel::examples::digits
