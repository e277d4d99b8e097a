// SPDX-License-Identifier: Apache-2.0
#include "backends/zmq/description.hpp"

#include <algorithm>
#include <cstring>
#include <string>
#include <type_traits>

namespace accel::zmq {
namespace {

constexpr std::uint8_t format = 1;
enum class mechanism : std::uint8_t { plain = 1, curve = 2 };

struct client_layout {
    std::uint8_t format = zmq::format;
    mechanism way = mechanism::plain;
    std::uint16_t reserved = 0;
};
static_assert(sizeof(client_layout) == 4);

struct server_layout {
    std::uint8_t format = zmq::format;
    mechanism way = mechanism::plain;
    std::uint16_t port = 0;
    std::uint32_t index = 0;
};
static_assert(sizeof(server_layout) == 8);

template <class Layout>
core::link_description joined(Layout front, const std::optional<curve_key>& key) {
    static_assert(std::is_trivially_copyable_v<Layout>);
    front.way = key ? mechanism::curve : mechanism::plain;
    core::link_description out(sizeof front + (key ? key->size() : 0));
    std::memcpy(out.data(), &front, sizeof front);
    if (key) std::copy(key->begin(), key->end(), out.begin() + sizeof front);
    return out;
}

/// False: not of this format, or not as long as its mechanism says.
template <class Layout>
bool split(std::span<const std::byte> bytes, Layout& front, std::optional<curve_key>& key) {
    if (bytes.size() < sizeof front) return false;
    std::memcpy(&front, bytes.data(), sizeof front);
    const auto rest = bytes.subspan(sizeof front);
    if (front.format != format) return false;
    if (front.way == mechanism::plain) return rest.empty();
    if (front.way != mechanism::curve || rest.size() != sizeof(curve_key)) return false;
    std::copy(rest.begin(), rest.end(), key.emplace().begin());
    // Anybody could impersonate an end whose key is zero.
    return std::any_of(rest.begin(), rest.end(), [](std::byte each) { return each != std::byte{0}; });
}

error unknown(const char* who) {
    return {status::protocol_error, 0, std::string{"the "} + who + " described its zmq data path in an unknown form"};
}

}  // namespace

core::link_description encode(const client_description& told) {
    return joined(client_layout{}, told.key);
}

core::link_description encode(const server_description& told) {
    server_layout front;
    front.port = told.port;
    front.index = told.index;
    return joined(front, told.key);
}

result<client_description> parse_client(std::span<const std::byte> bytes) {
    client_layout front;
    client_description told;
    if (!split(bytes, front, told.key) || front.reserved != 0) return unknown("client");
    return told;
}

result<server_description> parse_server(std::span<const std::byte> bytes) {
    server_layout front;
    server_description told;
    if (!split(bytes, front, told.key) || front.port == 0) return unknown("server");
    told.port = front.port;
    told.index = front.index;
    return told;
}

error mixed_keys() {
    return {status::unauthorized, 0,
            "one end of the zmq data path uses keys and the other does not; set insecure at both ends, or at neither"};
}

}  // namespace accel::zmq
