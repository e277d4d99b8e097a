// SPDX-License-Identifier: Apache-2.0
#include "digits/checked_file.hpp"

#include <algorithm>
#include <array>
#include <bit>

namespace accel::examples::digits {
namespace {

constexpr std::array<std::uint32_t, 256> make_crc_table() {
    std::array<std::uint32_t, 256> table{};
    for (std::uint32_t i = 0; i < table.size(); ++i) {
        std::uint32_t value = i;
        for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1u) != 0 ? 0xEDB88320u : 0u);
        table[i] = value;
    }
    return table;
}

constexpr auto crc_table = make_crc_table();

bool starts_with(std::span<const std::byte> file, std::string_view magic) {
    return std::ranges::equal(file.first(magic_bytes), std::as_bytes(std::span(magic)));
}

}  // namespace

std::uint32_t crc32(std::span<const std::byte> bytes) noexcept {
    std::uint32_t crc = 0xFFFFFFFFu;
    for (const std::byte byte : bytes)
        crc = (crc >> 8) ^ crc_table[(crc ^ std::to_integer<std::uint32_t>(byte)) & 0xFFu];
    return ~crc;
}

std::span<const std::byte> byte_reader::take(std::size_t count) noexcept {
    const auto taken = bytes_.first(count);
    bytes_ = bytes_.subspan(count);
    return taken;
}

std::uint32_t byte_reader::take_u32() noexcept {
    std::uint32_t value = 0;
    int shift = 0;
    for (const std::byte byte : take(4)) {
        value |= std::to_integer<std::uint32_t>(byte) << shift;
        shift += 8;
    }
    return value;
}

float byte_reader::take_float() noexcept {
    return std::bit_cast<float>(take_u32());
}

failure check_envelope(std::span<const std::byte> file, std::string_view magic, std::uint32_t version) noexcept {
    if (file.size() < magic_bytes + sizeof(version) + checksum_bytes) return failure::file_truncated;
    if (!starts_with(file, magic)) return failure::magic_unknown;
    if (byte_reader(file.subspan(magic_bytes)).take_u32() != version) return failure::version_unknown;
    const auto body = file.first(file.size() - checksum_bytes);
    if (byte_reader(file.last(checksum_bytes)).take_u32() != crc32(body)) return failure::checksum_mismatch;
    return failure::none;
}

failure check_length(std::size_t actual, std::size_t expected) noexcept {
    if (actual < expected) return failure::file_truncated;
    if (actual > expected) return failure::file_too_long;
    return failure::none;
}

}  // namespace accel::examples::digits
