// SPDX-License-Identifier: Apache-2.0
#include "serving/doors/grpc/door/reset_guard.hpp"

#include "report/cpu_time.hpp"
#include "serving/doors/shared_memory/base64.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include <grpc/grpc.h>
#include <grpc/support/alloc.h>
#include <nlohmann/json.hpp>

namespace accel::examples::serving::doors {
namespace {

using boost::asio::ip::address;
using boost::asio::ip::tcp;
using nlohmann::json;

/// A process that has grown by less has no flood.
constexpr std::size_t worth_asking = std::size_t{32} << 20;
constexpr std::intptr_t page = 64;  ///< sockets of one answer

/// An answer of gRPC's channelz, which it has allocated.
json read(char* text) {
    json out = text == nullptr ? json::object() : json::parse(text, nullptr, false);
    gpr_free(text);
    return out.is_object() ? out : json::object();
}

json member(const json& of, const char* name) {
    return of.is_object() ? of.value(name, json{}) : json{};
}

/// channelz writes large numbers as text, and none instead of 0.
std::intptr_t number(const json& of, const char* name) {
    const json text = member(of, name);
    return text.is_string() ? std::atol(text.get_ref<const std::string&>().c_str()) : 0;
}

std::optional<tcp::endpoint> endpoint_of(const json& socket) {
    const json at = member(member(socket, "remote"), "tcpip_address");
    const json port = member(at, "port");
    const json coded = member(at, "ip_address");
    const auto bytes =
        coded.is_string() ? shared_memory::from_base64(coded.get_ref<const std::string&>()) : std::nullopt;
    if (!bytes || !port.is_number_unsigned()) return std::nullopt;
    boost::asio::ip::address_v4::bytes_type four;
    boost::asio::ip::address_v6::bytes_type sixteen;
    address client;
    if (bytes->size() == four.size()) {
        std::memcpy(four.data(), bytes->data(), four.size());
        client = boost::asio::ip::make_address_v4(four);
    } else if (bytes->size() == sixteen.size()) {
        std::memcpy(sixteen.data(), bytes->data(), sixteen.size());
        client = boost::asio::ip::make_address_v6(sixteen);
    } else {
        return std::nullopt;
    }
    return tcp::endpoint{client, port.get<std::uint16_t>()};
}

void count_one(std::intptr_t socket, std::vector<stream_count>& to) {
    const json about = member(read(grpc_channelz_get_socket(socket)), "socket");
    const json data = member(about, "data");
    const std::intptr_t live =
        number(data, "streamsStarted") - number(data, "streamsSucceeded") - number(data, "streamsFailed");
    if (const auto client = endpoint_of(about); client && live > 0)
        to.push_back({*client, static_cast<std::uint64_t>(live)});
}

void count_server(std::intptr_t server, std::vector<stream_count>& to) {
    for (std::intptr_t next = 0;;) {
        const json sockets = member(read(grpc_channelz_get_server_sockets(server, next, page)), "socketRef");
        for (const json& each : sockets) {
            next = number(each, "socketId") + 1;
            count_one(next - 1, to);
        }
        if (sockets.empty()) return;  // an answer says whether it is the last in some versions of gRPC only
    }
}

/// Of the servers of this process.
std::vector<stream_count> count_streams() {
    std::vector<stream_count> out;
    for (const json& each : member(read(grpc_channelz_get_servers(0)), "server"))
        count_server(number(member(each, "ref"), "serverId"), out);
    return out;
}

}  // namespace

std::vector<stream_count> most_crowded(std::vector<stream_count> all, std::uint64_t usual, std::uint64_t most) {
    std::uint64_t sum = 0;
    for (const stream_count& each : all) sum += each.streams;
    std::ranges::sort(all, std::ranges::greater{}, &stream_count::streams);
    std::vector<stream_count> out;
    for (const stream_count& each : all) {
        if (sum <= most || each.streams <= usual) break;
        sum -= each.streams;
        out.push_back(each);
    }
    return out;
}

reset_guard::reset_guard(std::uint64_t usual, std::uint64_t most)
    : usual_(usual), most_(most), settled_(report::resident_bytes()) {}

std::vector<stream_count> reset_guard::look() {
    const std::size_t now = report::resident_bytes();
    settled_ = std::min(settled_, now);
    if (now < settled_ + worth_asking) return {};
    settled_ = now;
    return most_crowded(count_streams(), usual_, most_);
}

}  // namespace accel::examples::serving::doors
