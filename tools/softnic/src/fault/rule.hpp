// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "fabric/packet.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace accel::softnic {

/// What a fault does. The first group acts on a packet as it leaves, `nak` on a request as it arrives, the
/// third on a work request as it starts, `cq_overrun` on a completion as it is written, `port_down` on a
/// port.
enum class fault_action : std::uint8_t {
    drop,
    duplicate,
    delay,
    reorder,
    nak,
    local_protection,
    error,
    qp_error,
    cq_overrun,
    port_down,
};

/// A rule: `action[:argument] key=value ...`. Keys:
///   node=N qpn=N op=send|write|read|atomic|ack|nak|read_response|atomic_response|datagram  what to match
///   nth=N     only the Nth match (from 1)
///   p=X       each match with this probability; seed=N makes it repeatable
///   count=N   at most N times
///   us=N      how long, for delay and port_down
/// Arguments: nak:rnr|sequence|access|invalid|operation, error:SYNDROME (number).
/// There is no "every Nth": it can alias with the window and hit the same packet for ever.
struct fault_rule {
    fault_action action = fault_action::drop;
    nak_code nak = nak_code::sequence;
    std::uint8_t syndrome = 0;
    std::optional<int> node;
    std::optional<std::uint32_t> qpn;
    std::optional<packet_kind> kind;
    std::uint64_t nth = 0;
    double probability = 1.0;
    std::uint64_t seed = 1;
    std::uint64_t count = ~std::uint64_t{0};
    std::uint64_t duration_us = 0;
};

/// Parses rules separated by `;`. On an error returns nullopt and a sentence in `problem`.
[[nodiscard]] std::optional<std::vector<fault_rule>> parse_fault_rules(std::string_view text, std::string& problem);

[[nodiscard]] std::string_view to_string(fault_action action);

}  // namespace accel::softnic
