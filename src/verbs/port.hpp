// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/options.hpp>
#include <accel_transport/status.hpp>

#include <cstddef>
#include <cstdint>
#include <string>

#include <infiniband/verbs.h>

namespace accel::verbs {

/// A port as a queue pair is bound to it.
struct port_address {
    std::uint8_t number = 1;
    bool ethernet = false;  ///< RoCE; else InfiniBand
    std::uint16_t lid = 0;
    std::uint8_t gid_index = 0;
    ibv_gid gid{};
    ibv_mtu mtu = IBV_MTU_1024;           ///< as wanted, at most what the port can
    std::uint64_t max_message_bytes = 0;  ///< of one work request
    bool holds_host = false;              ///< the wanted address is one of its GIDs
};

/// Looks at port `number` of an open device: is it up, and which of its GIDs to use. `near_host`, an address
/// in text, makes the GID that holds it the first choice. Errors are `unsupported`, and say why.
[[nodiscard]] result<port_address> examine_port(ibv_context& context, std::uint8_t number, const verbs_options& wanted,
                                                const std::string& near_host);

/// "10.1.2.3" for a GID that holds an IPv4 address, else its eight groups.
[[nodiscard]] std::string to_text(const ibv_gid& gid);
/// MTU of a port, bytes.
[[nodiscard]] constexpr std::uint32_t mtu_bytes(ibv_mtu mtu) noexcept {
    return 128U << mtu;
}

}  // namespace accel::verbs
