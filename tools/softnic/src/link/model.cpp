// SPDX-License-Identifier: Apache-2.0
#include "link/model.hpp"

#include "link/overhead.hpp"

#include <algorithm>

namespace accel::softnic {

link_model::link_model(link_settings chosen) : settings_(chosen) {
    if (!on()) return;
    ports_.fill({link_port(chosen.bits_per_second), link_port(chosen.bits_per_second)});
    expect_nodes(1);
}

void link_model::send(packet_header& header) {
    const std::uint32_t bytes = overhead::wire_bytes(header);
    link_port& port = at(header.from).out;
    const std::uint64_t left =
        header.express != 0 ? port.send_first(header.ready_ns, bytes) : port.send(header.ready_ns, bytes);
    header.arrives_ns = left + settings_.delay_ns;
}

std::uint64_t link_model::receive(const packet_header& header, std::uint64_t at_ns) {
    const std::uint32_t bytes = overhead::wire_bytes(header);
    link_port& port = at(header.to).in;
    if (header.express == 0) return port.receive(at_ns, bytes);
    static_cast<void>(port.send(at_ns, bytes));
    return at_ns;
}

bool link_model::is_late(std::uint64_t ready_ns, std::uint64_t due_ns, std::uint64_t now_ns) {
    const std::uint64_t own = due_ns > ready_ns ? due_ns - ready_ns : 0;
    return now_ns > due_ns + std::max(late_after_ns, own / late_share);
}

void link_model::expect_nodes(std::uint32_t nodes) {
    link_port full(settings_.bits_per_second);
    const std::uint64_t packet_ns = full.send(0, static_cast<std::uint32_t>(max_mtu) + 128);
    patience_ns_ = 2 * (settings_.delay_ns + std::uint64_t{nodes} * ring_slots * packet_ns);
}

}  // namespace accel::softnic
