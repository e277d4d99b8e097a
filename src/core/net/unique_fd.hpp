// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
#include <utility>

#include <unistd.h>

namespace accel::core {

/// Owns a file descriptor, of the library's own. It is never one of those for standard input, output and error, where
/// any part of the program reads and writes.
class unique_fd {
  public:
    unique_fd() noexcept = default;
    /// If `fd` is one of those, a copy above them takes its place. If `fd` is negative, `failure` keeps errno.
    explicit unique_fd(int fd) noexcept : fd_(fd > STDERR_FILENO ? fd : above_standard(fd)) {}
    unique_fd(unique_fd&& other) noexcept : fd_(std::exchange(other.fd_, none)) {}
    unique_fd& operator=(unique_fd&& other) noexcept {
        if (this != &other) {
            reset();
            fd_ = std::exchange(other.fd_, none);
        }
        return *this;
    }
    ~unique_fd() { reset(); }

    /// Negative if it is not open: then minus `failure`.
    [[nodiscard]] int get() const noexcept { return fd_; }
    [[nodiscard]] bool open() const noexcept { return fd_ >= 0; }
    /// Why it is not open: errno of the call that should have made it. 0: it is.
    [[nodiscard]] int failure() const noexcept { return open() ? 0 : -fd_; }
    [[nodiscard]] int release() noexcept { return std::exchange(fd_, none); }
    void reset() noexcept {
        if (fd_ >= 0) ::close(std::exchange(fd_, none));
    }

  private:
    static constexpr int none = -EBADF;
    [[nodiscard, gnu::cold]] static int above_standard(int fd) noexcept;

    int fd_ = none;
};

/// Opens /dev/null in place of standard input, output and error, as far as they are closed: libraries below this one,
/// such as ZeroMQ and those of devices, take descriptors as they come. False: it could not be opened.
bool fill_standard_descriptors() noexcept;

}  // namespace accel::core
