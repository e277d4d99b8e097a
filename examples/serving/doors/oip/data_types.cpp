// SPDX-License-Identifier: Apache-2.0
#include "serving/doors/oip/data_types.hpp"

#include <algorithm>
#include <iterator>

namespace accel::examples::serving::oip {
namespace {

struct named_type {
    std::string_view name;
    data_type type;
};

constexpr named_type known_types[] = {
    {"BOOL", {type_code::boolean, 8, 1}},
    {"UINT8", {type_code::unsigned_integer, 8, 1}},
    {"UINT16", {type_code::unsigned_integer, 16, 1}},
    {"UINT32", {type_code::unsigned_integer, 32, 1}},
    {"UINT64", {type_code::unsigned_integer, 64, 1}},
    {"INT8", {type_code::signed_integer, 8, 1}},
    {"INT16", {type_code::signed_integer, 16, 1}},
    {"INT32", {type_code::signed_integer, 32, 1}},
    {"INT64", {type_code::signed_integer, 64, 1}},
    {"FP16", {type_code::floating, 16, 1}},
    {"FP32", {type_code::floating, 32, 1}},
    {"FP64", {type_code::floating, 64, 1}},
    {"BF16", {type_code::bfloat, 16, 1}},
};

}  // namespace

std::optional<data_type> type_of(std::string_view name) noexcept {
    const auto* found = std::ranges::find(known_types, name, &named_type::name);
    if (found == std::end(known_types)) return std::nullopt;
    return found->type;
}

std::string_view name_of(const data_type& type) noexcept {
    const auto* found = std::ranges::find(known_types, type, &named_type::type);
    return found == std::end(known_types) ? std::string_view{} : found->name;
}

}  // namespace accel::examples::serving::oip
