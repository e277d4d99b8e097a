// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "report/histogram.hpp"

#include <accel_transport/status.hpp>
#include <accel_transport/timeline.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace accel::examples::serving {

/// A stage of the timeline, as results name it.
struct stage_name {
    const char* name;
    std::chrono::nanoseconds timeline::*duration;
};

/// Total first.
[[nodiscard]] std::span<const stage_name> stage_names() noexcept;
inline constexpr std::size_t stage_count = 7;

/// What a client, or a class of them, has seen.
struct measured {
    std::array<report::histogram, stage_count> stages;
    report::histogram delay;              ///< open loop: how late calls were sent
    std::chrono::nanoseconds last_due{};  ///< open loop: of the calls that were sent, on the clock of all times here
    std::uint64_t answered = 0;           ///< with status ok, right or wrong
    std::uint64_t wrong = 0;              ///< answered, with other bytes, types or shapes than they should have
    std::uint64_t within_slo = 0;         ///< answered right, in time
    std::uint64_t unsent = 0;             ///< open loop: due, but the clients were behind
    std::array<std::uint64_t, status_count> errors{};
    std::string first_error;  ///< a sentence; empty: none

    void add_error(status why, std::string_view text);
    void add(const measured& other);
    [[nodiscard]] std::uint64_t failed() const noexcept;
    /// Every call that was sent.
    [[nodiscard]] std::uint64_t calls() const noexcept { return answered + failed(); }
};

}  // namespace accel::examples::serving
