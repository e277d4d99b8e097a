// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "digits/failure.hpp"
#include "digits/network.hpp"
#include "digits/portable.hpp"

#include <array>
#include <cstdint>
#include <type_traits>

namespace accel::examples::digits {

/// The answer to every request: 44 bytes, little-endian.
struct digit_answer {
    std::uint32_t label = 0;                  ///< the digit, 0 … 9; or a refusal
    std::array<float, class_count> scores{};  ///< probability of each digit; they sum to 1
};
static_assert(sizeof(digit_answer) == 44 && std::is_trivially_copyable_v<digit_answer>);

/// How much of an answer is wanted.
enum class answer_form : std::uint8_t { whole, scores };

/// A service on a GPU sees a frame's content only after its answer is under way: there a refusal is an answer
/// with this label, plus the `failure`, and scores of 0.
inline constexpr std::uint32_t refused_label = 0x100;

ACCEL_HOST_DEVICE constexpr std::uint32_t label_of(failure why) noexcept {
    return refused_label + static_cast<std::uint32_t>(why);
}

/// `failure::none` where a label is not a refusal.
constexpr failure refusal_of(std::uint32_t label) noexcept {
    return label < refused_label || label > label_of(failure::frame_blank)
               ? failure::none
               : static_cast<failure>(label - refused_label);
}

}  // namespace accel::examples::digits
