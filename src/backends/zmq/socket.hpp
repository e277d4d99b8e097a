// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/clock.hpp"

#include <accel_transport/status.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <zmq.h>

namespace accel::zmq {

/// Owns one ZeroMQ socket; linger 0. Belongs to one thread at a time.
class owned_socket {
  public:
    owned_socket() noexcept = default;
    /// `system_error` where descriptors are short.
    [[nodiscard]] static result<owned_socket> open(void* context, int type);
    owned_socket(owned_socket&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
    owned_socket& operator=(owned_socket&& other) noexcept;
    ~owned_socket() { close(); }

    void close() noexcept;
    [[nodiscard]] void* get() const noexcept { return handle_; }
    explicit operator bool() const noexcept { return handle_ != nullptr; }

    /// On endpoints as `endpoints_to_bind` gives them; zmq_errno() says why not. A port in use is tried for half a
    /// second, because ZeroMQ frees one some time after its socket was closed.
    [[nodiscard]] bool bind(const std::string& endpoint) noexcept;
    [[nodiscard]] bool connect(const std::string& endpoint) noexcept;

    /// False where the library does not know the option or value, or has no memory for it; zmq_errno() says why.
    [[nodiscard]] bool set(int option, int value) noexcept;
    [[nodiscard]] bool set(int option, std::int64_t value) noexcept;
    [[nodiscard]] bool set(int option, std::span<const std::byte> value) noexcept;
    /// ZMQ_EVENTS; 0 once the context is being terminated.
    [[nodiscard]] int events() noexcept;
    [[nodiscard]] int fd() noexcept;
    /// Port of the last bound endpoint.
    [[nodiscard]] std::uint16_t bound_port() noexcept;

  private:
    explicit owned_socket(void* handle) noexcept : handle_(handle) {}
    [[nodiscard]] bool try_binding(const std::string& endpoint) noexcept;
    [[nodiscard]] bool get(int option, void* value, std::size_t size) noexcept;
    void* handle_ = nullptr;
};

/// An option could not be set. A socket without it may wait for ever, or take more than its bounds.
[[nodiscard]] error refused_option();

/// "tcp://address:port" for each address of the host, in their order; "*" or nothing is every address of this host, of
/// both families. Port 0 is any free one. Waits for a name until `deadline`.
[[nodiscard]] result<std::vector<std::string>> endpoints_to_bind(const std::string& host, std::uint16_t port,
                                                                 core::nanoseconds deadline);
/// The same for a numeric address, to connect.
[[nodiscard]] std::string endpoint_at(const std::string& address, std::uint16_t port);

/// "host:port", brackets around IPv6.
[[nodiscard]] std::string host_and_port(const std::string& host, std::uint16_t port);

/// Milliseconds for ZeroMQ until `deadline`, rounded up; 0 if it is over, an hour at most.
[[nodiscard]] int milliseconds_until(core::nanoseconds deadline) noexcept;

}  // namespace accel::zmq
