// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace accel::examples::serving::doors {

/// How many calls are open on connections from each port of clients: gRPC names the client of a call, and no
/// connection. Where clients at two addresses have the same port, a call of one counts for both. Threads: all.
class open_calls {
  public:
    void begin(std::uint16_t port) noexcept { counts_[port].fetch_add(1, std::memory_order_relaxed); }
    void end(std::uint16_t port) noexcept { counts_[port].fetch_sub(1, std::memory_order_relaxed); }
    [[nodiscard]] bool any(std::uint16_t port) const noexcept {
        return counts_[port].load(std::memory_order_relaxed) > 0;
    }

  private:
    std::vector<std::atomic<std::uint32_t>> counts_ = std::vector<std::atomic<std::uint32_t>>(std::size_t{1} << 16);
};

/// Of a client as gRPC names it, "ipv4:127.0.0.1:1234"; 0: it has none.
[[nodiscard]] std::uint16_t port_of(std::string_view peer) noexcept;

}  // namespace accel::examples::serving::doors
