// SPDX-License-Identifier: Apache-2.0
#include "verbs/path.hpp"

#include "verbs/failure.hpp"

#include <cerrno>
#include <cstring>
#include <string_view>

#include <fmt/format.h>
#include <sys/random.h>

namespace accel::verbs {
namespace {

constexpr std::uint8_t hop_limit = 64;

std::string_view name_of(link_layer layer) {
    return layer == link_layer::ethernet ? "Ethernet (RoCE)" : "InfiniBand";
}
link_layer layer_of(const device& on) noexcept {
    return on.port().ethernet ? link_layer::ethernet : link_layer::infiniband;
}

}  // namespace

void describe_port(const device& on, endpoint& out) noexcept {
    const port_address& port = on.port();
    out.layer = layer_of(on);
    out.mtu = static_cast<std::uint8_t>(port.mtu);
    out.lid = port.lid;
    std::memcpy(out.gid.data(), port.gid.raw, out.gid.size());
}

result<void> check_layer(const device& on, const endpoint& peer) {
    if (peer.layer == layer_of(on)) return {};
    return error{status::unsupported, 0,
                 fmt::format("this end's port is {}, the peer's {}; choose another with device=NAME:PORT",
                             name_of(layer_of(on)), name_of(peer.layer))};
}

ibv_ah_attr path_to(const device& on, const endpoint& peer) noexcept {
    const port_address& own = on.port();
    ibv_ah_attr out{};
    out.port_num = own.number;
    out.dlid = peer.lid;
    // A GID is needed on Ethernet, and between the subnets of InfiniBand.
    const bool other_subnet = std::memcmp(own.gid.raw, peer.gid.data(), 8) != 0;
    if (own.ethernet || other_subnet) {
        out.is_global = 1;
        std::memcpy(out.grh.dgid.raw, peer.gid.data(), peer.gid.size());
        out.grh.sgid_index = own.gid_index;
        out.grh.hop_limit = hop_limit;
    }
    return out;
}

result<std::uint32_t> random_psn() {
    std::uint32_t psn = 0;
    if (::getrandom(&psn, sizeof psn, 0) != sizeof psn) return verb_failed("cannot get random bytes for a PSN", errno);
    return psn & 0x00ff'ffff;
}

std::uint8_t timeout_exponent(std::chrono::nanoseconds timeout) noexcept {
    std::uint8_t exponent = 1;
    while (exponent < 31 && std::chrono::nanoseconds{std::int64_t{4096} << exponent} < timeout) ++exponent;
    return exponent;
}

}  // namespace accel::verbs
