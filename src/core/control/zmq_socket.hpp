#pragma once

#include "core/clock.hpp"

#include <accel_transport/status.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <zmq.h>

namespace accel::core {

/// Owns one ZeroMQ socket; linger 0. Belongs to one thread at a time.
class zmq_socket {
  public:
    zmq_socket() noexcept = default;
    [[nodiscard]] static result<zmq_socket> open(void* context, int type);
    zmq_socket(zmq_socket&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
    zmq_socket& operator=(zmq_socket&& other) noexcept;
    ~zmq_socket() { close(); }

    void close() noexcept;
    [[nodiscard]] void* get() const noexcept { return handle_; }
    explicit operator bool() const noexcept { return handle_ != nullptr; }

    /// On endpoints as `tcp_endpoint` gives them; zmq_errno() says why not. A port in use is tried for half a
    /// second, because ZeroMQ frees one some time after its socket was closed.
    [[nodiscard]] bool bind(const std::string& endpoint) noexcept;
    [[nodiscard]] bool connect(const std::string& endpoint) noexcept;

    /// False where the library does not know the option or value.
    bool set(int option, int value) noexcept;
    bool set(int option, std::int64_t value) noexcept;
    /// ZMQ_EVENTS; 0 once the context is being terminated.
    [[nodiscard]] int events() noexcept;
    [[nodiscard]] int fd() noexcept;
    /// Port of the last bound endpoint.
    [[nodiscard]] std::uint16_t bound_port() noexcept;
    /// Never blocks.
    bool send(std::span<const std::byte> bytes, bool more = false) noexcept;

  private:
    explicit zmq_socket(void* handle) noexcept : handle_(handle) {}
    void* handle_ = nullptr;
};

/// One received frame.
class zmq_frame {
  public:
    zmq_frame() noexcept { zmq_msg_init(&message_); }
    zmq_frame(const zmq_frame&) = delete;
    zmq_frame& operator=(const zmq_frame&) = delete;
    ~zmq_frame() { zmq_msg_close(&message_); }

    /// Never blocks; false: nothing there.
    [[nodiscard]] bool receive(zmq_socket& from) noexcept;
    [[nodiscard]] bool more() const noexcept { return zmq_msg_more(&message_) != 0; }
    [[nodiscard]] std::span<const std::byte> bytes() noexcept;
    [[nodiscard]] std::string_view text() noexcept;
    /// A property of the connection ("User-Id", "Peer-Address"); empty if it has none.
    [[nodiscard]] std::string_view property(const char* name) const noexcept;

  private:
    zmq_msg_t message_;
};

struct monitor_event {
    int what = 0;  ///< ZMQ_EVENT_…
    std::uint32_t value = 0;
};

/// The events of another socket. Destroyed before the socket it watches.
class socket_monitor {
  public:
    socket_monitor() noexcept = default;
    [[nodiscard]] static result<socket_monitor> open(void* context, zmq_socket& watched, int events);
    socket_monitor(socket_monitor&& other) noexcept
        : watched_(std::exchange(other.watched_, nullptr)), pair_(std::move(other.pair_)) {}
    socket_monitor& operator=(socket_monitor&& other) noexcept;
    ~socket_monitor() { close(); }

    void close() noexcept;
    [[nodiscard]] zmq_socket& socket() noexcept { return pair_; }
    /// Never blocks.
    [[nodiscard]] std::optional<monitor_event> next() noexcept;

  private:
    void* watched_ = nullptr;
    zmq_socket pair_;
};

inline constexpr int handshake_failures = ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL |
                                          ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL |
                                          ZMQ_EVENT_HANDSHAKE_FAILED_AUTH;

/// A sentence's end for a failed handshake as the client sees it: what is wrong with the keys.
[[nodiscard]] std::string explain_handshake_failure(const monitor_event& event);

/// "tcp://address:port" with the host resolved, IPv4 first; "*" or nothing is any address of this host. Port
/// 0 is any free one (for binding). May block on name service.
[[nodiscard]] result<std::string> tcp_endpoint(const std::string& host, std::uint16_t port, bool to_bind);

/// "host:port", brackets around IPv6.
[[nodiscard]] std::string host_and_port(const std::string& host, std::uint16_t port);

/// Milliseconds for zmq_poll until `deadline`, rounded up; 0 if it is over.
[[nodiscard]] long poll_timeout(nanoseconds from, nanoseconds deadline) noexcept;

/// A descriptor that another thread makes readable.
class wake_signal {
  public:
    wake_signal();
    ~wake_signal();
    wake_signal(const wake_signal&) = delete;
    wake_signal& operator=(const wake_signal&) = delete;
    void set() noexcept;
    void clear() noexcept;
    [[nodiscard]] int fd() const noexcept { return fd_; }

  private:
    int fd_;
};

}  // namespace accel::core
