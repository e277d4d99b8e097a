#pragma once

#include "core/backend.hpp"
#include "core/clock.hpp"

#include <accel_transport/status.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

namespace accel::tcp {

/// The client's first words on a data connection, and the server's answer. Waits, until a deadline.
class data_opening {
  public:
    /// The socket has to stay open meanwhile.
    data_opening(int socket, core::nanoseconds deadline) noexcept : socket_(socket), deadline_(deadline) {}

    /// Which session the connection is for.
    [[nodiscard]] result<void> show(std::uint64_t session_id, const core::session_token& token);
    /// The server's word on it.
    [[nodiscard]] result<void> hear();

  private:
    [[nodiscard]] result<void> send(std::span<const std::byte> bytes);
    [[nodiscard]] result<void> receive(std::span<std::byte> bytes);
    [[nodiscard]] result<void> wait(short events);

    int socket_;
    core::nanoseconds deadline_;
};

}  // namespace accel::tcp
