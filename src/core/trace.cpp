// SPDX-License-Identifier: Apache-2.0
#include <accel_transport/trace.hpp>

#include <algorithm>
#include <span>

namespace accel {
namespace {

constexpr std::uint8_t known_flags = trace_context::sampled | trace_context::random_id;
constexpr std::string_view digits = "0123456789abcdef";

/// Reads two digits for each byte.
bool read_hex(std::string_view text, std::span<std::uint8_t> out) noexcept {
    for (std::size_t i = 0; i < out.size(); ++i) {
        const std::size_t high = digits.find(text[2 * i]);
        const std::size_t low = digits.find(text[2 * i + 1]);
        if (high == std::string_view::npos || low == std::string_view::npos) return false;
        out[i] = static_cast<std::uint8_t>(high << 4 | low);
    }
    return true;
}

void append_hex(std::string& out, std::span<const std::uint8_t> bytes) {
    for (const std::uint8_t byte : bytes) (out += digits[byte >> 4]) += digits[byte & 0xf];
}

bool any(std::span<const std::uint8_t> bytes) noexcept {
    return std::ranges::any_of(bytes, [](std::uint8_t byte) { return byte != 0; });
}

}  // namespace

bool trace_context::valid() const noexcept {
    return any(trace_id) && any(parent_id);
}

std::optional<trace_context> trace_context::parse(std::string_view header) noexcept {
    if (header.size() != text_bytes || !header.starts_with("00-") || header[35] != '-' || header[52] != '-') return {};
    trace_context out;
    const bool read = read_hex(header.substr(3), out.trace_id) && read_hex(header.substr(36), out.parent_id) &&
                      read_hex(header.substr(53), {&out.flags, 1});
    if (!read || !out.valid()) return {};
    out.flags &= known_flags;
    return out;
}

std::string trace_context::format() const {
    const std::uint8_t told = flags & known_flags;
    std::string out = "00-";
    append_hex(out, trace_id);
    out += '-';
    append_hex(out, parent_id);
    out += '-';
    append_hex(out, {&told, 1});
    return out;
}

}  // namespace accel
