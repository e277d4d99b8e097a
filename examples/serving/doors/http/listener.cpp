// SPDX-License-Identifier: Apache-2.0
#include "serving/doors/http/listener.hpp"

#include <optional>

namespace accel::examples::serving::doors {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

namespace {

struct host_and_port {
    std::string_view host;
    std::string_view port;
};

std::optional<host_and_port> split(std::string_view where) {
    const std::size_t colon = where.rfind(':');
    if (colon == std::string_view::npos || colon == 0 || colon + 1 == where.size()) return std::nullopt;
    std::string_view host = where.substr(0, colon);
    const bool bracketed = host.front() == '[' && host.back() == ']' && host.size() > 2;
    if (bracketed) host = host.substr(1, host.size() - 2);
    if (!bracketed && host.find_first_of(":[]") != std::string_view::npos) return std::nullopt;
    return host_and_port{host, where.substr(colon + 1)};
}

error no_listener(std::string_view where, const error_code& why) {
    return {.code = status::system_error,
            .native = why.value(),
            .message = "cannot listen at " + std::string{where} + ": " + why.message()};
}

}  // namespace

result<tcp::acceptor> bind_at(asio::io_context& loop, std::string_view where) {
    const auto parts = split(where);
    if (!parts)
        return error{status::invalid_argument, 0,
                     "'" + std::string{where} + "' is no HOST:PORT: write 127.0.0.1:8000 or [::1]:8000"};
    error_code failed;
    tcp::resolver resolver{loop};
    const auto found = resolver.resolve(parts->host, parts->port, tcp::resolver::passive, failed);
    if (failed || found.empty()) return no_listener(where, failed);
    const tcp::endpoint at = found.begin()->endpoint();
    tcp::acceptor out{loop};
    out.open(at.protocol(), failed);
    if (!failed) out.set_option(tcp::acceptor::reuse_address{true}, failed);
    if (!failed) out.bind(at, failed);
    if (failed) return no_listener(where, failed);
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

bool is_loopback(const tcp::acceptor& at) {
    error_code failed;
    return at.local_endpoint(failed).address().is_loopback();
}

}  // namespace accel::examples::serving::doors
