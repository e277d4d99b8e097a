// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/clock.hpp"
#include "core/net/socket_address.hpp"
#include "core/net/unique_fd.hpp"

#include <accel_transport/options.hpp>
#include <accel_transport/status.hpp>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

/// TCP sockets, for the control plane and the `tcp` backend.
namespace accel::core {

/// Every address of host:port. Empty host or "*" (`to_listen`): every address of this machine, of both families; the
/// second is for a machine without the first's family. A name is looked up until `deadline` (host_names.hpp).
[[nodiscard]] result<std::vector<socket_address>> resolve(const std::string& host, std::uint16_t port, bool to_listen,
                                                          nanoseconds deadline, const std::stop_token& stopped = {});

/// "host:port", with brackets around an IPv6 address.
[[nodiscard]] std::string host_and_port(const std::string& host, std::uint16_t port);

/// A listening, non-blocking socket on host:port (port 0: any). Of IPv6, it takes IPv4 as well where its address allows
/// that. Waits for a name for `name_patience`.
[[nodiscard]] result<unique_fd> listen_on(const std::string& host, std::uint16_t port);
/// A host by which this machine reaches a socket that listens on `host`: loopback for every address.
[[nodiscard]] std::string host_to_reach(const std::string& host);
/// True if errno of a socket or of bind says that this machine lacks the address or its family.
[[nodiscard]] bool is_missing_family(int number) noexcept;
/// The port a socket is bound to; 0 if it is not.
[[nodiscard]] std::uint16_t local_port(int fd) noexcept;
/// An address as text, without its port; empty if it has none.
[[nodiscard]] std::string numeric_host(const socket_address& address);
/// The peer's address as text, without its port; an IPv4 one is written as such, whatever the socket's family.
[[nodiscard]] std::string peer_address(int fd);
/// The /64 network of an IPv6 address, as text; who has one address of it usually has them all. Empty for other text.
[[nodiscard]] std::string network_of(std::string_view address);

/// Starts to connect a non-blocking socket. 0: `out` connects or is connected; else errno.
[[nodiscard]] int start_connecting(const socket_address& address, unique_fd& out) noexcept;
/// How connecting ended, once the socket is writable: 0 or errno.
[[nodiscard]] int connect_outcome(int fd) noexcept;

/// The error of a failed connect to `where`; `number` is errno.
[[nodiscard]] error cannot_connect(const std::string& where, int number);

/// A connected, non-blocking socket to the first address of `host` that answers by `deadline`.
[[nodiscard]] result<unique_fd> connect_to(const std::string& host, std::uint16_t port, nanoseconds deadline);

/// Waits until `fd` is ready for `events` of poll(2). 0, ETIMEDOUT or errno.
[[nodiscard]] int wait_ready(int fd, short events, nanoseconds deadline) noexcept;

/// The longest sleep of a read, on sockets of `let_reads_sleep`.
inline constexpr std::chrono::milliseconds sleeping_read_limit{10};
/// From now on reads and writes block, within that limit, unless they say MSG_DONTWAIT. False: they do not.
[[nodiscard]] bool let_reads_sleep(int fd) noexcept;

/// Options of every data connection.
void tune_data_socket(int fd) noexcept;
/// From now on `fd`, and what it accepts, sends at most this many bits a second. False, with errno: the OS cannot.
[[nodiscard]] bool pace_socket(int fd, bit_rate rate) noexcept;
/// Whether the OS can: `unsupported` with a sentence.
[[nodiscard]] result<void> probe_pacing();
[[nodiscard]] error cannot_pace(int number);

/// Options of every control connection: no delay, and the OS notices a peer that vanished.
void tune_control_socket(int fd) noexcept;

}  // namespace accel::core
