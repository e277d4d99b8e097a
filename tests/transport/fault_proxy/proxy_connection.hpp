// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "fault_proxy.hpp"

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include <poll.h>

namespace accel::tests {

using proxy_clock = std::chrono::steady_clock;

/// One direction of one connection: reads from `from`, applies its fault, writes to `to`.
class half {
  public:
    half(int from, int to, const fault& mine) : from_(from), to_(to), fault_(mine) {}

    /// What to wait for; `pause` becomes the time until it can go on, if that is what it waits for.
    void interest(pollfd& reading, pollfd& writing, proxy_clock::duration& pause) const;
    /// Moves what can be moved. False: the whole connection is to end (`reset` says how).
    [[nodiscard]] bool move(std::uint64_t& struck);
    [[nodiscard]] bool reset() const noexcept { return reset_; }
    [[nodiscard]] bool finished() const noexcept { return ended_; }

  private:
    [[nodiscard]] bool due() const noexcept {
        return fault_.kind != fault_kind::none && fault_.kind != fault_kind::corrupt && passed_ == fault_.offset;
    }
    [[nodiscard]] bool strike(std::uint64_t& struck);
    [[nodiscard]] bool read_some(std::uint64_t& struck);
    [[nodiscard]] bool write_some();
    void end_in_order();

    int from_;
    int to_;
    fault fault_;
    std::array<std::byte, 16384> buffer_{};
    std::size_t begin_ = 0;
    std::size_t end_ = 0;
    std::uint64_t taken_ = 0;   ///< bytes read
    std::uint64_t passed_ = 0;  ///< bytes written
    proxy_clock::time_point paused_until_{};
    bool source_ended_ = false;
    bool stalled_ = false;
    bool discarding_ = false;  ///< truncated: what still comes is thrown away
    bool ended_ = false;
    bool reset_ = false;
};

struct proxy_connection {
    proxy_connection(int client, int server, const fault& mine);
    ~proxy_connection();
    proxy_connection(const proxy_connection&) = delete;
    proxy_connection& operator=(const proxy_connection&) = delete;
    [[nodiscard]] bool move(std::uint64_t& struck);

    int client;
    int server;
    half up;
    half down;
    bool reset = false;
};

}  // namespace accel::tests
