// SPDX-License-Identifier: Apache-2.0
#include "serving/doors/servers/passed_metadata.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace accel::examples::serving::doors {
namespace {

constexpr std::size_t bytes_of_each = 4;

}  // namespace

result<void> passed_metadata::add(std::string_view key, std::string value) {
    const auto is_text = [](char one) { return one >= ' ' && one <= '~'; };
    if (!is_binary(key) && !std::ranges::all_of(value, is_text))
        return error{status::invalid_argument, 0, fmt::format("the header '{}' must be printable ASCII", key)};
    bytes_ += key.size() + value.size() + bytes_of_each;
    if (bytes_ > max_metadata_bytes)
        return error{
            status::message_too_large, 0,
            fmt::format("the headers that this door passes have more than {} bytes together", max_metadata_bytes)};
    entries_.push_back({key, values_.emplace_back(std::move(value))});
    return {};
}

}  // namespace accel::examples::serving::doors
