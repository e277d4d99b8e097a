#pragma once

#include "core/clock.hpp"

#include <cstdint>

namespace accel::core {

/// Keeps what peers cause from flooding the log: `allow` says yes at most ten times a second. One thread.
class log_limit {
  public:
    [[nodiscard]] bool allow(nanoseconds at) noexcept {
        if (at - window_start_ >= std::chrono::seconds{1}) {
            window_start_ = at;
            lines_ = 0;
        }
        return ++lines_ <= lines_per_second;
    }

  private:
    static constexpr std::uint32_t lines_per_second = 10;
    nanoseconds window_start_{};
    std::uint32_t lines_ = 0;
};

}  // namespace accel::core
