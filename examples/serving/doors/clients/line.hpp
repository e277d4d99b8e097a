// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/doors/clients/infer_talk.hpp"

#include <chrono>
#include <cstddef>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include <unistd.h>

namespace accel::examples::serving::doors::clients {

/// A socket to a door of this machine, which never blocks. Owner.
class line {
  public:
    /// Starts to connect to "127.0.0.1:8000"; nothing where that cannot be.
    [[nodiscard]] static std::optional<line> connect(const std::string& where);
    line(line&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    line& operator=(line&& other) noexcept {
        std::swap(fd_, other.fd_);
        return *this;
    }
    ~line() {
        if (fd_ >= 0) ::close(fd_);
    }

    [[nodiscard]] int fd() const noexcept { return fd_; }
    /// Sends what `talk` has, at most `most` bytes of it, which is lowered by what went. False: the connection broke.
    template <class Talk>
    [[nodiscard]] bool write(Talk& talk, std::size_t& most) {
        while (!talk.unsent().empty() && most > 0) {
            const auto count = send_some(talk.unsent().substr(0, most));
            if (!count) return false;
            if (*count == 0) return true;
            talk.sent(*count);
            most -= *count;
        }
        return true;
    }
    /// Gives `talk` what has arrived. False: the connection ended, or the talk.
    template <class Talk>
    [[nodiscard]] bool read(Talk& talk) {
        for (;;) {
            const auto part = receive_some();
            if (!part) return false;
            if (part->empty()) return true;
            if (!talk.take(*part)) return false;
        }
    }
    /// Waits until it can be read, or also written, or a signal has come; false: none of it within `patience`.
    [[nodiscard]] bool wait(bool also_write, std::chrono::milliseconds patience) const;

  private:
    explicit line(int fd) noexcept : fd_(fd) {}
    /// How many were sent; 0: not now; nothing: the connection broke.
    [[nodiscard]] std::optional<std::size_t> send_some(std::string_view bytes) const;
    /// Until the next call; empty: nothing now; nothing: the connection ended.
    [[nodiscard]] std::optional<std::string_view> receive_some() const;

    int fd_ = -1;
};

/// Writes and reads until `done` says so. False: the connection ended first, or `patience` did.
template <class Talk, class Done>
[[nodiscard]] bool go_on(line& over, Talk& talk, std::chrono::milliseconds patience, const Done& done) {
    const auto until = std::chrono::steady_clock::now() + patience;
    while (!done()) {
        std::size_t most = std::numeric_limits<std::size_t>::max();
        if (!over.write(talk, most)) return false;
        if (done()) return true;
        const auto left =
            std::chrono::duration_cast<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
        if (left.count() <= 0 || !over.wait(!talk.unsent().empty(), left)) return false;
        if (!over.read(talk)) return done();
    }
    return true;
}

}  // namespace accel::examples::serving::doors::clients
