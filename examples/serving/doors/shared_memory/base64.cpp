// SPDX-License-Identifier: Apache-2.0
#include "serving/doors/shared_memory/base64.hpp"

#include <cstdint>

namespace accel::examples::serving::shared_memory {

namespace {

constexpr std::string_view digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

}  // namespace

std::optional<std::string> from_base64(std::string_view text) {
    if (text.size() % 4 != 0) return std::nullopt;
    for (int i = 0; i < 2 && !text.empty() && text.back() == '='; ++i) text.remove_suffix(1);
    std::string out;
    std::uint32_t bits = 0;
    int count = 0;
    for (const char c : text) {
        const std::size_t digit = digits.find(c);
        if (digit == std::string_view::npos) return std::nullopt;
        bits = (bits << 6) | static_cast<std::uint32_t>(digit);
        count += 6;
        if (count < 8) continue;
        count -= 8;
        out += static_cast<char>((bits >> count) & 0xff);
    }
    return out;
}

std::string to_base64(std::string_view bytes) {
    std::string out;
    std::uint32_t bits = 0;
    int count = 0;
    for (const char c : bytes) {
        bits = (bits << 8) | static_cast<unsigned char>(c);
        for (count += 8; count >= 6; count -= 6) out += digits[(bits >> (count - 6)) & 0x3f];
    }
    if (count > 0) out += digits[(bits << (6 - count)) & 0x3f];
    while (out.size() % 4 != 0) out += '=';
    return out;
}

}  // namespace accel::examples::serving::shared_memory
