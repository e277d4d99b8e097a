// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

#include <unistd.h>

namespace accel::core {

/// Owns a file descriptor, of the library's own. It is never one of those for standard input, output and error, where
/// any part of the program reads and writes.
class unique_fd {
  public:
    unique_fd() noexcept = default;
    /// Where the program has closed one of those three, `fd` may have become one. Another takes its place; not open,
    /// with errno, if there is none left.
    explicit unique_fd(int fd) noexcept : fd_(fd > STDERR_FILENO ? fd : above_standard(fd)) {}
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
    [[nodiscard]] int release() noexcept { return std::exchange(fd_, -1); }
    void reset() noexcept {
        if (fd_ >= 0) ::close(std::exchange(fd_, -1));
    }

  private:
    [[nodiscard, gnu::cold]] static int above_standard(int fd) noexcept;

    int fd_ = -1;
};

/// Opens /dev/null in place of standard input, output and error, as far as they are closed: libraries below this one,
/// such as ZeroMQ and those of devices, take descriptors as they come.
void fill_standard_descriptors() noexcept;

}  // namespace accel::core
