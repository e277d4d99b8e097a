// SPDX-License-Identifier: Apache-2.0
#include "verbs/port.hpp"

#include "verbs/failure.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <vector>

#include <arpa/inet.h>
#include <fmt/format.h>

namespace accel::verbs {
namespace {

constexpr std::array<std::uint8_t, 12> ipv4_prefix{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

bool holds_ipv4(const ibv_gid& gid) noexcept {
    return std::memcmp(gid.raw, ipv4_prefix.data(), ipv4_prefix.size()) == 0;
}

bool is_link_local(const ibv_gid& gid) noexcept {
    return gid.raw[0] == 0xfe && (gid.raw[1] & 0xc0) == 0x80;
}

/// The GID an address in text would have, if it is one.
std::optional<ibv_gid> gid_of(const std::string& host) noexcept {
    ibv_gid gid{};
    if (::inet_pton(AF_INET6, host.c_str(), gid.raw) == 1) return gid;
    std::copy(ipv4_prefix.begin(), ipv4_prefix.end(), gid.raw);
    if (::inet_pton(AF_INET, host.c_str(), gid.raw + ipv4_prefix.size()) == 1) return gid;
    return std::nullopt;
}

std::vector<ibv_gid_entry> gids_of(ibv_context& context, std::uint8_t port, int table_length) {
    std::vector<ibv_gid_entry> all;
    for (int i = 0; i < table_length; ++i) {
        ibv_gid_entry entry{};
        if (ibv_query_gid_ex(&context, port, static_cast<std::uint32_t>(i), &entry, 0) != 0) continue;
        const auto empty = std::all_of(std::begin(entry.gid.raw), std::end(entry.gid.raw),
                                       [](std::uint8_t byte) { return byte == 0; });
        if (!empty) all.push_back(entry);
    }
    return all;
}

/// Higher is better. RoCE v2 with an IPv4 address is what networks route; v1 never leaves its segment.
int rank(const ibv_gid_entry& entry, const std::optional<ibv_gid>& wanted) noexcept {
    int value = entry.gid_type == IBV_GID_TYPE_ROCE_V1 ? 0 : 8;
    if (wanted && std::memcmp(entry.gid.raw, wanted->raw, sizeof wanted->raw) == 0) value += 4;
    if (holds_ipv4(entry.gid)) value += 2;
    if (!is_link_local(entry.gid)) value += 1;
    return value;
}

result<ibv_mtu> choose_mtu(std::uint32_t wanted_bytes, ibv_mtu active) {
    if (wanted_bytes == 0) return active;
    for (const ibv_mtu each : {IBV_MTU_256, IBV_MTU_512, IBV_MTU_1024, IBV_MTU_2048, IBV_MTU_4096})
        if (mtu_bytes(each) == wanted_bytes) return std::min(each, active);
    return error{status::invalid_argument, 0, "option mtu must be 256, 512, 1024, 2048 or 4096"};
}

result<ibv_gid_entry> choose_gid(const std::vector<ibv_gid_entry>& all, int wanted_index,
                                 const std::optional<ibv_gid>& wanted) {
    if (wanted_index >= 0) {
        for (const ibv_gid_entry& each : all)
            if (each.gid_index == static_cast<std::uint32_t>(wanted_index)) return each;
        return error{status::unsupported, 0, fmt::format("it has no GID at gid_index={}", wanted_index)};
    }
    if (all.empty()) return error{status::unsupported, 0, "it has no GID; give its network interface an IP address"};
    return *std::max_element(all.begin(), all.end(), [&](const ibv_gid_entry& a, const ibv_gid_entry& b) {
        return rank(a, wanted) < rank(b, wanted);
    });
}

}  // namespace

std::string to_text(const ibv_gid& gid) {
    std::array<char, INET6_ADDRSTRLEN> text{};
    if (holds_ipv4(gid))
        ::inet_ntop(AF_INET, gid.raw + ipv4_prefix.size(), text.data(), text.size());
    else
        ::inet_ntop(AF_INET6, gid.raw, text.data(), text.size());
    return text.data();
}

result<port_address> examine_port(ibv_context& context, std::uint8_t number, const verbs_options& wanted,
                                  const std::string& near_host) {
    ibv_port_attr attributes{};
    if (const int failed = ibv_query_port(&context, number, &attributes); failed != 0)
        return error{status::unsupported, failed, fmt::format("it has no port {}", number)};
    if (attributes.state != IBV_PORT_ACTIVE) {
        return error{status::unsupported, 0,
                     fmt::format("port {} is {}, not active; check the cable, the switch or 'ip link'", number,
                                 ibv_port_state_str(attributes.state))};
    }
    port_address port;
    port.number = number;
    port.ethernet = attributes.link_layer == IBV_LINK_LAYER_ETHERNET;
    port.lid = attributes.lid;
    port.max_message_bytes = attributes.max_msg_sz;
    auto mtu = choose_mtu(wanted.mtu, attributes.active_mtu);
    if (!mtu) return mtu.error();
    port.mtu = *mtu;
    const std::optional<ibv_gid> near = gid_of(near_host);
    auto gid = choose_gid(gids_of(context, number, attributes.gid_tbl_len), wanted.gid_index, near);
    if (!gid) return gid.error();
    port.gid = gid->gid;
    port.gid_index = static_cast<std::uint8_t>(gid->gid_index);
    port.holds_host = near && std::memcmp(near->raw, port.gid.raw, sizeof near->raw) == 0;
    return port;
}

}  // namespace accel::verbs
