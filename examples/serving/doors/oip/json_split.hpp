// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/status.hpp>

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

namespace accel::examples::serving::oip {

/// Longest text beside the elements of a request: names, shapes, parameters. A tree of it takes some 2 MB at most.
inline constexpr std::size_t max_json_frame = std::size_t{64} << 10;

/// A value that is not part of the tree.
struct held_value {
    std::string key;        ///< of its member
    std::size_t place = 0;  ///< of the array's element that has the member
    std::string_view text;  ///< not checked: it may be anything
};

/// An object without its large values.
struct split_object {
    nlohmann::json tree;           ///< held values are null in it
    std::vector<held_value> held;  ///< the last one of a key holds
};

// A tree of large values would take 50 times the memory of their text, so they stay text. Each fails with
// `invalid_argument`: the rest is no JSON object, is longer than `max_json_frame`, or is nested too deep.

/// A request for an inference: holds each member "data" of the elements of "inputs".
[[nodiscard]] result<split_object> split_inference(std::string_view text);
/// A request of the generate extension: holds each member but "id" and "parameters".
[[nodiscard]] result<split_object> split_fields(std::string_view text);

/// Null: there is none.
[[nodiscard]] const held_value* find_held(const split_object& in, std::string_view key, std::size_t place = 0);

}  // namespace accel::examples::serving::oip
