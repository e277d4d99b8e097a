// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "fabric/packet.hpp"
#include "model/settings.hpp"

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

namespace accel::softnic {

using gid_bytes = std::array<std::uint8_t, 16>;

enum class gid_type : std::uint8_t { infiniband = 0, roce_v1 = 1, roce_v2 = 2 };

struct gid_entry {
    gid_bytes bytes{};
    gid_type type = gid_type::infiniband;
};

/// Identity of one port. It follows from the device and port number alone, so every process of a fabric
/// agrees.
struct port {
    port_address address;
    link_layer link = link_layer::infiniband;
    std::uint16_t lid = 0;  ///< 0 on Ethernet
    std::vector<gid_entry> gids;
    bool up = true;
    std::uint64_t up_again_at = 0;  ///< after a fault; 0: stays as it is
};

/// GUID of a device; a port's is the GUID plus its number.
[[nodiscard]] std::uint64_t device_guid(int device);
[[nodiscard]] port make_port(int device, int number, link_layer link);

inline constexpr std::size_t gid_table_length = 8;
inline constexpr std::size_t pkey_table_length = 128;

/// MAC address for a GID of a RoCE port.
[[nodiscard]] std::array<std::uint8_t, 6> mac_of(port_address address);

}  // namespace accel::softnic
