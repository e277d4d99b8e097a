// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/status.hpp>

#include <cstddef>
#include <span>
#include <string>
#include <utility>

#include <unistd.h>

namespace accel::bench {

/// Owns a descriptor.
class descriptor {
  public:
    explicit descriptor(int number) noexcept : number_(number) {}
    descriptor(descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
    descriptor& operator=(descriptor&&) = delete;
    ~descriptor() {
        if (number_ >= 0) close(number_);
    }
    [[nodiscard]] int get() const noexcept { return number_; }

  private:
    int number_;
};

/// Announces a port of 127.0.0.1 and waits for one client; below 0 where that fails.
[[nodiscard]] descriptor serve_one_on_loopback();
[[nodiscard]] result<descriptor> connect_on_loopback(const std::string& port);

/// A port of 127.0.0.1 that was free a moment ago; "0" where there is none.
[[nodiscard]] std::string free_port();

/// False: the connection broke.
[[nodiscard]] bool write_all(int socket, std::span<const std::byte> bytes) noexcept;
[[nodiscard]] bool read_all(int socket, std::span<std::byte> bytes) noexcept;

}  // namespace accel::bench
