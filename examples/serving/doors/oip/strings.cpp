// SPDX-License-Identifier: Apache-2.0
#include "serving/doors/oip/strings.hpp"

#include <accel_transport/tensor_view.hpp>

#include <algorithm>
#include <bit>
#include <cstring>

namespace accel::examples::serving::oip {
namespace {

static_assert(std::endian::native == std::endian::little, "lengths are little-endian, and are copied");

std::uint32_t length_at(std::span<const std::byte> bytes) noexcept {
    std::uint32_t out = 0;
    std::memcpy(&out, bytes.data(), sizeof out);
    return out;
}

}  // namespace

tensor serialized_strings(std::uint64_t bytes) noexcept {
    return tensor_of<std::uint8_t>({static_cast<std::uint32_t>(bytes)});
}

std::optional<std::uint64_t> count_strings(std::span<const std::byte> bytes) noexcept {
    std::uint64_t count = 0;
    for (; !bytes.empty(); ++count) {
        if (bytes.size() < string_length_bytes) return std::nullopt;
        const std::uint32_t length = length_at(bytes);
        bytes = bytes.subspan(string_length_bytes);
        if (length > bytes.size()) return std::nullopt;
        bytes = bytes.subspan(length);
    }
    return count;
}

void append_string(std::vector<std::byte>& to, std::string_view element) {
    const auto length = static_cast<std::uint32_t>(element.size());
    const auto head = std::as_bytes(std::span{&length, 1});
    const auto body = std::as_bytes(std::span{element});
    to.insert(to.end(), head.begin(), head.end());
    to.insert(to.end(), body.begin(), body.end());
}

std::string_view take_string(std::span<const std::byte>& bytes) noexcept {
    if (bytes.size() < string_length_bytes) {
        bytes = {};
        return {};
    }
    const std::size_t length = std::min<std::size_t>(length_at(bytes), bytes.size() - string_length_bytes);
    const auto body = bytes.subspan(string_length_bytes, length);
    bytes = bytes.subspan(string_length_bytes + length);
    return {reinterpret_cast<const char*>(body.data()), body.size()};
}

}  // namespace accel::examples::serving::oip
