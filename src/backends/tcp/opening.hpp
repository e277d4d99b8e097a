// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/backend.hpp"
#include "core/clock.hpp"
#include "core/control/security.hpp"
#include "core/tls/tls_stream.hpp"

#include <accel_transport/status.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

namespace accel::tcp {

/// Opens a data connection at the client: TLS, the preamble, the server's answer. Waits, up to a deadline.
class data_opening {
  public:
    /// The socket has to stay open meanwhile.
    data_opening(int socket, core::nanoseconds deadline) noexcept : socket_(socket), deadline_(deadline) {}

    /// The TLS handshake, which comes first. `host`: the name that the server's certificate must have.
    /// `key`: of the connection's session.
    [[nodiscard]] result<void> encrypt(const core::security_identity& own, const std::string& host,
                                       const core::session_key& key);
    /// Sends the preamble, which names the session.
    [[nodiscard]] result<void> show(std::uint64_t session_id, const core::session_token& token);
    /// Reads the server's answer.
    [[nodiscard]] result<void> hear();
    /// Null: the connection is plain.
    [[nodiscard]] std::shared_ptr<core::tls_stream> take_tls() noexcept { return std::move(tls_); }

  private:
    [[nodiscard]] result<void> send(std::span<const std::byte> bytes);
    [[nodiscard]] result<void> receive(std::span<std::byte> bytes);
    [[nodiscard]] result<void> wait(short events);
    [[nodiscard]] result<void> go_on_after(core::tls_outcome outcome);

    int socket_;
    core::nanoseconds deadline_;
    std::shared_ptr<core::tls_stream> tls_;
};

}  // namespace accel::tcp
