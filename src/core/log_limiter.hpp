// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/clock.hpp"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace accel::core {

/// Keeps peers from flooding the log: limits the lines a second of each reason and peer, and of each reason.
/// Fixed memory, no lock: peers share places in a table, so two peers in one place may log more, but never
/// more than their reason allows. Any thread.
class log_limiter {
  public:
    static constexpr std::uint32_t lines_of_peer = 10;    ///< of one reason, in a second
    static constexpr std::uint32_t lines_of_reason = 50;  ///< of all peers, in a second

    /// `reason` is an address that names the line, such as that of its text. Empty: the line is held back.
    /// Else the number of lines of this reason held back since the last one allowed.
    [[nodiscard]] std::optional<std::uint64_t> allow(const void* reason, std::string_view peer,
                                                     nanoseconds at) noexcept;
    /// For a line that was allowed and then lost: the next line reports its count.
    void keep_back(const void* reason, std::uint64_t lines) noexcept;

  private:
    /// Lines of a second: a stamp of 56 bits, and below it a count of 8. Zero is a valid start.
    using window = std::atomic<std::uint64_t>;
    struct reason_lines {
        std::atomic<const void*> reason{nullptr};
        window passed{0};
        std::atomic<std::uint64_t> kept_back{0};
    };

    [[nodiscard]] static bool take(window& from, std::uint64_t stamp, std::uint32_t most) noexcept;
    [[nodiscard]] reason_lines& find(const void* reason) noexcept;
    [[nodiscard]] bool take_peer(const void* reason, std::string_view peer, std::uint64_t second) noexcept;

    std::array<reason_lines, 64> reasons_{};  ///< more than the library has; those beyond share the first
    std::array<window, 512> peers_{};
};

}  // namespace accel::core
