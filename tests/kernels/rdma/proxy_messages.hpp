// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/detail/host_device.hpp>

#include <cstddef>
#include <cstdint>

/// Messages of random length that say what they are, for threads of the host and of a GPU.
namespace accel::tests {

inline constexpr std::uint32_t max_message_bytes = 2048;

struct message_header {
    std::uint64_t seed;
    std::uint64_t words;  ///< behind it
    std::uint64_t checksum;
};

ACCEL_HOST_DEVICE inline std::uint64_t mixed(std::uint64_t value) noexcept {
    value = (value ^ (value >> 30)) * 0xbf58'476d'1ce4'e5b9;
    value = (value ^ (value >> 27)) * 0x94d0'49bb'1331'11eb;
    return value ^ (value >> 31);
}
ACCEL_HOST_DEVICE inline std::uint64_t words_of(std::uint64_t seed) noexcept {
    return mixed(seed) % 240;
}

/// Writes message `seed` where 8-byte words may lie; how long it is in all.
ACCEL_HOST_DEVICE inline std::uint32_t write_message(std::byte* to, std::uint64_t seed) noexcept {
    auto* const header = reinterpret_cast<message_header*>(to);
    auto* const words = reinterpret_cast<std::uint64_t*>(header + 1);
    std::uint64_t checksum = 0;
    const std::uint64_t count = words_of(seed);
    for (std::uint64_t i = 0; i < count; ++i) {
        words[i] = mixed(seed + i * 0x9e37'79b9);
        checksum = checksum * 31 + words[i];
    }
    *header = {seed, count, checksum};
    return static_cast<std::uint32_t>(sizeof *header + count * 8);
}

/// The bytes there are all of message `seed`.
[[nodiscard]] ACCEL_HOST_DEVICE inline bool is_message(const std::byte* at, std::uint64_t seed) noexcept {
    const auto* const header = reinterpret_cast<const message_header*>(at);
    const auto* const words = reinterpret_cast<const std::uint64_t*>(header + 1);
    if (header->seed != seed || header->words != words_of(seed)) return false;
    std::uint64_t checksum = 0;
    for (std::uint64_t i = 0; i < header->words; ++i) checksum = checksum * 31 + words[i];
    return checksum == header->checksum;
}

}  // namespace accel::tests
