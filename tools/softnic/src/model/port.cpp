// SPDX-License-Identifier: Apache-2.0
#include "model/port.hpp"

namespace accel::softnic {
namespace {

gid_bytes link_local(std::uint64_t interface_id) {
    gid_bytes gid{0xfe, 0x80};
    for (int byte = 0; byte < 8; ++byte)
        gid[static_cast<std::size_t>(15 - byte)] = static_cast<std::uint8_t>(interface_id >> (8 * byte));
    return gid;
}

/// 10.83.device.port, mapped into IPv6.
gid_bytes mapped_ipv4(port_address address) {
    return {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 83, address.device, address.port};
}

std::uint64_t eui64(const std::array<std::uint8_t, 6>& mac) {
    std::uint64_t id = static_cast<std::uint8_t>(mac[0] ^ 2);
    for (const std::uint8_t byte : {mac[1], mac[2], std::uint8_t{0xff}, std::uint8_t{0xfe}, mac[3], mac[4], mac[5]})
        id = id << 8 | byte;
    return id;
}

}  // namespace

std::uint64_t device_guid(int device) {
    return 0x0002c903'005e0000 + static_cast<std::uint64_t>(device) * 0x100;
}

std::array<std::uint8_t, 6> mac_of(port_address address) {
    return {0x02, 0xc9, 0x03, 0x5e, address.device, address.port};
}

port make_port(int device, int number, link_layer link) {
    port made;
    made.address = {static_cast<std::uint8_t>(device), static_cast<std::uint8_t>(number)};
    made.link = link;
    if (link == link_layer::infiniband) {
        made.lid = static_cast<std::uint16_t>(1 + 2 * device + (number - 1));
        made.gids = {{link_local(device_guid(device) + static_cast<std::uint64_t>(number)), gid_type::infiniband}};
        return made;
    }
    const gid_bytes local = link_local(eui64(mac_of(made.address)));
    const gid_bytes routed = mapped_ipv4(made.address);
    made.gids = {{local, gid_type::roce_v1},
                 {local, gid_type::roce_v2},
                 {routed, gid_type::roce_v1},
                 {routed, gid_type::roce_v2}};
    return made;
}

}  // namespace accel::softnic
