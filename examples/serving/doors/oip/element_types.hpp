// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/doors/oip/data_types.hpp"
#include "serving/doors/oip/half_numbers.hpp"

#include <accel_transport/tensor.hpp>

#include <cstdint>

namespace accel::examples::serving::oip {

/// Calls `use` with a value of the C++ type whose numbers a tensor of this type holds. Only of a type with a name.
template <class Use>
auto with_element(const data_type& type, Use use) {
    const bool is_signed = type.code == type_code::signed_integer;
    if (type.code == type_code::boolean) return use(bool{});
    if (type.code == type_code::bfloat) return use(bf16{});
    if (type.code == type_code::floating && type.bits == 16) return use(fp16{});
    if (type.code == type_code::floating) return type.bits == 32 ? use(float{}) : use(double{});
    if (type.bits == 8) return is_signed ? use(std::int8_t{}) : use(std::uint8_t{});
    if (type.bits == 16) return is_signed ? use(std::int16_t{}) : use(std::uint16_t{});
    if (type.bits == 32) return is_signed ? use(std::int32_t{}) : use(std::uint32_t{});
    return is_signed ? use(std::int64_t{}) : use(std::uint64_t{});
}

/// How many elements a tensor has.
[[nodiscard]] inline std::uint64_t count_of(const tensor& what) {
    return size_bytes(what) / (what.type.bits / 8U);
}

}  // namespace accel::examples::serving::oip
