// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>

namespace accel::examples::serving::oip {

/// A number of 16 bits: a sign, an exponent with this bias, and so many bits of fraction.
template <int Fraction, int Bias>
struct half_number {
    std::uint16_t bits = 0;

    /// The nearest one; of two the even one. Nothing: `value` is beyond the largest.
    [[nodiscard]] static std::optional<half_number> of(double value) {
        constexpr std::int64_t infinite = std::int64_t{2 * Bias + 1} << Fraction;
        const double size = std::abs(value);
        if (!(size < std::ldexp(1.0, Bias + 1))) return std::nullopt;
        const int exponent = size == 0 ? 1 - Bias : std::max(std::ilogb(size), 1 - Bias);
        const auto whole = static_cast<std::int64_t>(std::nearbyint(std::ldexp(size, Fraction - exponent)));
        // What rounding carries over raises the exponent; a fraction without its leading 1 has the lowest.
        const std::int64_t out = (std::int64_t{exponent + Bias - 1} << Fraction) + whole;
        if (out >= infinite) return std::nullopt;
        return half_number{static_cast<std::uint16_t>(out | (std::signbit(value) ? 0x8000 : 0))};
    }

    [[nodiscard]] float value() const {
        const int exponent = (bits & 0x7fff) >> Fraction;
        const int fraction = bits & ((1 << Fraction) - 1);
        float size = std::ldexp(static_cast<float>(fraction), 1 - Bias - Fraction);
        if (exponent > 0) size = std::ldexp(static_cast<float>(fraction + (1 << Fraction)), exponent - Bias - Fraction);
        if (exponent == 2 * Bias + 1)
            size = fraction == 0 ? std::numeric_limits<float>::infinity() : std::numeric_limits<float>::quiet_NaN();
        return (bits & 0x8000) != 0 ? -size : size;
    }
};

using fp16 = half_number<10, 15>;
using bf16 = half_number<7, 127>;

}  // namespace accel::examples::serving::oip
