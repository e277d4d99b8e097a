// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/status.hpp>

#include <string>
#include <string_view>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

namespace accel::examples::serving::doors {

/// A socket at an address of `report::read_address`; `*` is every address of both families. It takes no connections
/// before `listen`.
/// `invalid_argument`: the text is something else; `system_error`.
[[nodiscard]] result<boost::asio::ip::tcp::acceptor> bind_at(boost::asio::io_context& loop, std::string_view where);

/// From here on it takes connections. `system_error`.
[[nodiscard]] result<void> listen(boost::asio::ip::tcp::acceptor& at);

/// "127.0.0.1:8000", with the real port.
[[nodiscard]] std::string address_of(const boost::asio::ip::tcp::acceptor& at);

/// True: reached from this machine alone.
[[nodiscard]] bool is_loopback(const boost::asio::ip::tcp::acceptor& at);

/// The client that limits count for: its IPv4 address, or the network of 64 bits that its IPv6 address is in.
[[nodiscard]] boost::asio::ip::address client_of(const boost::asio::ip::tcp::endpoint& from);

}  // namespace accel::examples::serving::doors
