// SPDX-License-Identifier: Apache-2.0
#include "serving/doors/http/listener.hpp"

#include "report/address.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <boost/asio/ip/v6_only.hpp>

namespace accel::examples::serving::doors {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

namespace {

constexpr std::ptrdiff_t network_bytes = 8;  // of IPv6, whose clients have a whole network each

/// The addresses that a host names. `*`: of both families, and after it of IPv4, for a machine without IPv6.
std::vector<tcp::endpoint> endpoints_of(asio::io_context& loop, const report::listen_address& wanted,
                                        error_code& failed) {
    tcp::resolver resolver{loop};
    const auto found = resolver.resolve(wanted.host == "*" ? "0.0.0.0" : wanted.host, std::to_string(wanted.port),
                                        tcp::resolver::passive | tcp::resolver::numeric_service, failed);
    std::vector<tcp::endpoint> out;
    if (wanted.host == "*") out.emplace_back(asio::ip::address_v6::any(), wanted.port);
    if (!failed) out.insert(out.end(), found.begin(), found.end());
    return out;
}

void bind_to(tcp::acceptor& out, const tcp::endpoint& at, error_code& failed) {
    out.close(failed);
    out.open(at.protocol(), failed);
    if (!failed) out.set_option(tcp::acceptor::reuse_address{true}, failed);
    if (!failed && at.address().is_v6()) out.set_option(asio::ip::v6_only{false}, failed);
    if (!failed) out.bind(at, failed);
}

/// As `core::is_missing_family`.
bool is_missing_family(const error_code& failed) {
    return failed == asio::error::address_family_not_supported || failed == boost::system::errc::address_not_available;
}

error no_listener(std::string_view where, const error_code& why) {
    return {.code = status::system_error,
            .native = why.value(),
            .message = "cannot listen at " + std::string{where} + ": " + why.message()};
}

}  // namespace

result<tcp::acceptor> bind_at(asio::io_context& loop, std::string_view where) {
    const auto read = report::read_address(where);
    if (!read) return read.error();
    error_code failed;
    tcp::acceptor out{loop};
    const auto wanted = endpoints_of(loop, read.value(), failed);
    for (const tcp::endpoint& each : wanted) {
        bind_to(out, each, failed);
        if (!is_missing_family(failed)) break;
    }
    if (failed || wanted.empty()) return no_listener(where, failed);
    return out;
}

result<void> listen(tcp::acceptor& at) {
    error_code failed;
    at.listen(asio::socket_base::max_listen_connections, failed);
    if (failed) return no_listener(address_of(at), failed);
    return {};
}

std::string address_of(const tcp::acceptor& at) {
    error_code failed;
    const tcp::endpoint where = at.local_endpoint(failed);
    const std::string host = where.address().to_string();
    return (where.address().is_v6() ? '[' + host + ']' : host) + ':' + std::to_string(where.port());
}

asio::ip::address client_of(const tcp::endpoint& from) {
    asio::ip::address address = from.address();
    if (address.is_v4()) return address;
    if (address.to_v6().is_v4_mapped()) return asio::ip::make_address_v4(asio::ip::v4_mapped, address.to_v6());
    auto bytes = address.to_v6().to_bytes();
    std::fill(bytes.begin() + network_bytes, bytes.end(), std::uint8_t{0});
    return asio::ip::address_v6{bytes};
}

bool is_loopback(const tcp::acceptor& at) {
    error_code failed;
    return at.local_endpoint(failed).address().is_loopback();
}

}  // namespace accel::examples::serving::doors
