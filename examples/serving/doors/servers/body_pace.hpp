// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/doors/configuration/settings.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace accel::examples::serving::doors {

/// Whether a body comes fast enough: in each `body_grace`, `body_rate` times that.
class body_pace {
  public:
    using clock = std::chrono::steady_clock;

    /// Nothing of it has come.
    void begin(clock::time_point now) noexcept {
        *this = {};
        since_ = now;
    }
    /// So much of it has come by now.
    void has(std::size_t bytes) noexcept { bytes_ = bytes; }
    [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
    /// To be asked now and then: too little has come within `body_grace`. It says so at the second look only, because
    /// after a busy time a door may not have read yet what has arrived.
    [[nodiscard]] bool is_too_slow(clock::time_point now, const door_settings& limits) noexcept {
        if (now - since_ < limits.body_grace) return false;
        const std::size_t wanted = limits.body_rate * static_cast<std::size_t>(limits.body_grace.count()) / 1000;
        if (bytes_ - bytes_before_ < wanted) return std::exchange(suspected_, true);
        since_ = now;
        bytes_before_ = bytes_;
        suspected_ = false;
        return false;
    }

    /// When to ask again.
    [[nodiscard]] clock::time_point next_look(const door_settings& limits) const noexcept {
        return suspected_ ? since_ : since_ + limits.body_grace;
    }

  private:
    clock::time_point since_{};
    std::size_t bytes_ = 0;
    std::size_t bytes_before_ = 0;  ///< at `since_`
    bool suspected_ = false;        ///< at the last look
};

/// How long a body of at most so many bytes may take.
[[nodiscard]] inline std::chrono::milliseconds body_patience(std::size_t most_bytes, const door_settings& limits) {
    if (limits.body_rate == 0) return limits.body_timeout;
    const auto whole = std::chrono::seconds{static_cast<std::int64_t>(most_bytes / limits.body_rate + 1)};
    return std::min<std::chrono::milliseconds>(limits.body_timeout, limits.body_grace + whole);
}

}  // namespace accel::examples::serving::doors
