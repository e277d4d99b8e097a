// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace accel::core {

/// How many letters must be changed, left out or added to make one name of the other, or `most`, whichever is less.
/// Names that differ in more than `max_target_bytes` letters are `most` apart.
[[nodiscard]] std::size_t edit_distance(std::string_view one, std::string_view other, std::size_t most);

/// "it has a, b and 7 others": the names in this order, as far as `room` characters last. With `wanted`, those that are
/// spelt like it come first, the nearest first of all.
[[nodiscard]] std::string list_names(std::span<const std::string_view> names, std::size_t room,
                                     std::string_view wanted = {});

}  // namespace accel::core
