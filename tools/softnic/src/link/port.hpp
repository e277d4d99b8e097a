// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "link/settings.hpp"

#include <cstdint>

namespace accel::softnic {

/// One direction of a port: what is before a packet, and when its last bit has passed. Only arithmetic; times in
/// nanoseconds of any clock, rounded up, so that nothing is early. Fractions add up and are not lost.
class link_port {
  public:
    explicit link_port(std::uint64_t bits_per_second = 1) : rate_(bits_per_second) {}

    /// The time when `bytes` that are ready at `ready_ns` have left, behind everything before them.
    [[nodiscard]] std::uint64_t send(std::uint64_t ready_ns, std::uint32_t bytes);
    /// The same in front of everything that waits, which leaves later by that much.
    [[nodiscard]] std::uint64_t send_first(std::uint64_t ready_ns, std::uint32_t bytes);
    /// The receiving end: when bytes have come in whose last bit was at the port at `at_ns`. Later than that if the
    /// port still takes in what several others sent at once.
    [[nodiscard]] std::uint64_t receive(std::uint64_t at_ns, std::uint32_t bytes);

    /// Until when the port has something to send.
    [[nodiscard]] std::uint64_t busy_until() const { return free_ns_ + (rest_ != 0 ? 1 : 0); }

  private:
    void occupy(std::uint32_t bytes);

    std::uint64_t rate_;
    std::uint64_t free_ns_ = 0;
    std::uint64_t rest_ = 0;  ///< beyond free_ns_, in 1/rate ns; less than rate_
};

}  // namespace accel::softnic
