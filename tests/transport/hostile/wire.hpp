// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/control/control_message.hpp"
#include "core/control/control_stream.hpp"
#include "core/control/data_preamble.hpp"
#include "core/control/security.hpp"
#include "core/net/unique_fd.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// Connections of attackers: they bind to an address of their own, and never throw or wait for long.
namespace accel::hostile {

using namespace std::chrono_literals;
using core::control_message;
using core::unique_fd;
using identity = std::shared_ptr<const core::security_identity>;

struct target {
    std::string host;  ///< an address, or `@NAME` of a Unix socket
    std::uint16_t port = 0;
};

/// Addresses of this machine other than the one that clients of the library have.
inline const std::string stranger_address = "127.66.0.1";
inline const std::string client_address = "127.0.0.1";

/// A connected, non-blocking socket; closed if it cannot be had within a second.
[[nodiscard]] unique_fd connect_from(const std::string& source, const target& to);
/// As much as the socket takes at once. False: it is broken.
bool push(int fd, std::span<const std::byte> bytes);
bool push(int fd, std::string_view text);
/// Throws away what has come. False: the peer has ended.
bool discard(int fd);
/// True if the peer ends the connection within the time.
[[nodiscard]] bool ends(int fd, std::chrono::nanoseconds within);

/// The frame of a message, and of anything else.
[[nodiscard]] std::vector<std::byte> frame(const control_message& message);
[[nodiscard]] std::vector<std::byte> frame(std::span<const std::byte> body);
[[nodiscard]] std::vector<std::byte> repeated(const std::vector<std::byte>& bytes, std::size_t at_least);
[[nodiscard]] std::vector<std::byte> bytes_of(std::string_view text);
/// The first flight of a TLS client.
[[nodiscard]] std::vector<std::byte> client_hello(const identity& keys);
/// A wish for a session over tcp.
[[nodiscard]] core::hello wish(std::uint32_t slots = 1, std::uint64_t bytes = 1024,
                               std::chrono::nanoseconds peer_timeout = 500ms);

/// A connection spoken by hand, with TLS where there are keys.
class wire {
  public:
    /// Nothing: the peer is gone, or the handshake failed.
    [[nodiscard]] static std::optional<wire> open(const std::string& source, const target& to, const identity& keys,
                                                  std::string_view protocol = core::control_protocol);

    /// Waits for room up to a second. False: the peer is gone or does not read.
    bool send(std::span<const std::byte> bytes);
    bool send(const control_message& message) { return send(frame(message)); }
    bool send(std::string_view text) { return send(bytes_of(text)); }
    /// The next well-formed message, heartbeats included.
    [[nodiscard]] std::optional<control_message> hear(std::chrono::nanoseconds within);
    /// The answer to a hello, if it was granted.
    [[nodiscard]] std::optional<core::session_grant> open_session(const core::hello& what);
    /// Throws away what has come. False: the peer has ended.
    bool discard();
    [[nodiscard]] bool ends(std::chrono::nanoseconds within);
    [[nodiscard]] core::control_stream& stream() { return stream_; }
    [[nodiscard]] int fd() const { return stream_.fd(); }

  private:
    explicit wire(unique_fd socket) : stream_(std::move(socket)) {}
    [[nodiscard]] bool shake_hands();
    core::control_stream stream_;
};

}  // namespace accel::hostile
