// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/status.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

/// How the two ends of a verbs link describe themselves to each other: docs/protocol.md, section 7.
namespace accel::verbs {

enum class link_layer : std::uint8_t { infiniband = 1, ethernet = 2 };

/// Set in `endpoint::flags`: payloads do not lie behind their headers but in slots of their own.
inline constexpr std::uint8_t payloads_apart = 1;
/// Likewise, with `payloads_apart`: this end's messages come by writes without immediate data, and repeat their
/// generation in the header's last word.
inline constexpr std::uint8_t plain_arrivals = 2;

/// Little-endian: 64 bytes, and with `payloads_apart` 32 more. Travels on the control plane only.
struct endpoint {
    std::uint8_t format = 1;
    link_layer layer = link_layer::infiniband;
    std::uint8_t mtu = 0;  ///< as InfiniBand numbers it: 1 is 256 bytes, 5 is 4096
    std::uint8_t flags = 0;
    std::uint16_t lid = 0;
    std::uint16_t reserved = 0;
    std::uint32_t queue_pair = 0;
    std::uint32_t first_psn = 0;
    std::array<std::uint8_t, 16> gid{};
    std::uint64_t slots_address = 0;  ///< of the first slot, where the peer writes
    std::uint64_t slots_stride = 0;   ///< bytes from slot to slot
    std::uint32_t slots_key = 0;      ///< remote key of all slots
    std::uint32_t slots = 0;
    std::uint64_t padding = 0;
    // With `payloads_apart`.
    std::uint64_t payloads_address = 0;  ///< of the first slot's payload
    std::uint64_t payloads_stride = 0;   ///< bytes from payload to payload
    std::uint32_t payloads_key = 0;      ///< remote key of all payloads
    std::uint32_t reserved_apart = 0;
    std::uint64_t padding_apart = 0;

    [[nodiscard]] bool apart() const noexcept { return (flags & payloads_apart) != 0; }
    [[nodiscard]] bool wants_plain() const noexcept { return (flags & plain_arrivals) != 0; }
    /// How much of this travels.
    [[nodiscard]] std::size_t size_bytes() const noexcept { return apart() ? sizeof(endpoint) : 64; }
};
static_assert(sizeof(endpoint) == 96 && offsetof(endpoint, payloads_address) == 64 &&
              std::is_trivially_copyable_v<endpoint>);

/// Reads a peer's description. Checks all that does not depend on this end: `protocol_error`, or
/// `version_mismatch` for a format that is not known.
[[nodiscard]] result<endpoint> parse_endpoint(std::span<const std::byte> bytes);
/// As it travels.
[[nodiscard]] std::vector<std::byte> to_bytes(const endpoint& own);
/// Whether the peer has the slots that were agreed on, for payloads of `capacity` bytes; else
/// `protocol_error`.
[[nodiscard]] result<void> check_slots(const endpoint& peer, std::uint32_t slots, std::size_t capacity);

}  // namespace accel::verbs
