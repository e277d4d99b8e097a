#pragma once

#include "core/clock.hpp"

#include <accel_transport/status.hpp>

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>

namespace accel::tcp {

/// Owns a file descriptor.
class unique_fd {
  public:
    unique_fd() noexcept = default;
    explicit unique_fd(int fd) noexcept : fd_(fd) {}
    unique_fd(unique_fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    unique_fd& operator=(unique_fd&& other) noexcept {
        if (this != &other) {
            reset();
            fd_ = std::exchange(other.fd_, -1);
        }
        return *this;
    }
    ~unique_fd() { reset(); }

    [[nodiscard]] int get() const noexcept { return fd_; }
    [[nodiscard]] bool open() const noexcept { return fd_ >= 0; }
    void reset() noexcept;

  private:
    int fd_ = -1;
};

/// A listening, non-blocking socket on host:port (port 0: any; empty host or "*": every address). May block
/// in the resolver.
[[nodiscard]] result<unique_fd> listen_on(const std::string& host, std::uint16_t port);
/// The port a socket is bound to; 0 if it is not.
[[nodiscard]] std::uint16_t local_port(int fd) noexcept;

/// A connected, non-blocking socket to the first address of `host` that answers by `deadline`. The resolver
/// keeps time limits of its own.
[[nodiscard]] result<unique_fd> connect_to(const std::string& host, std::uint16_t port,
                                           core::nanoseconds deadline);

/// Sends all of a short control message by `deadline`.
[[nodiscard]] result<void> send_all(int fd, const void* data, std::size_t size, core::nanoseconds deadline);

/// How long a read that sleeps lasts at most, on sockets of `let_reads_sleep`.
inline constexpr std::chrono::milliseconds sleeping_read_limit{10};
/// From now on reads and writes block, within that limit, unless they say MSG_DONTWAIT. False: they do not.
[[nodiscard]] bool let_reads_sleep(int fd) noexcept;

/// Options of every data connection.
void tune_data_socket(int fd) noexcept;

}  // namespace accel::tcp
