// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "fabric/packet.hpp"
#include "fabric/segment.hpp"
#include "link/port.hpp"

#include <array>
#include <cstdint>

namespace accel::softnic {

/// The modelled link, as one process sees it: both directions of each of its ports. Does nothing while off.
class link_model {
  public:
    explicit link_model(link_settings chosen);

    [[nodiscard]] bool on() const { return settings_.on(); }
    /// Lets a packet leave that is ready since `header.ready_ns`, and notes when it arrives. Data waits behind what is
    /// before it on the port; what is marked as express passes by.
    void send(packet_header& header);
    /// When the receiving port has taken in a packet that is at the port at `at_ns`.
    [[nodiscard]] std::uint64_t receive(const packet_header& header, std::uint64_t at_ns);
    /// Is a message late that was in memory at `now_ns`, and should have been at `due_ns`?
    [[nodiscard]] static bool is_late(std::uint64_t ready_ns, std::uint64_t due_ns, std::uint64_t now_ns);

    /// How much longer than without a link an answer may take: all rings of so many processes full, both ways.
    [[nodiscard]] std::uint64_t patience_ns() const { return patience_ns_; }
    void expect_nodes(std::uint32_t nodes);

    /// A message is late beyond this, or beyond a twentieth of its own time on the link, whichever is longer.
    static constexpr std::uint64_t late_after_ns = 10'000;
    static constexpr std::uint64_t late_share = 20;

  private:
    struct directions {
        link_port out;
        link_port in;
    };
    [[nodiscard]] directions& at(port_address where) { return ports_[(where.device * 2u + (where.port & 1u)) % ports]; }

    static constexpr std::size_t ports = std::size_t{max_devices} * 2;
    link_settings settings_;
    std::uint64_t patience_ns_ = 0;
    std::array<directions, ports> ports_;
};

}  // namespace accel::softnic
