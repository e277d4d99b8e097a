// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "perf/load.hpp"
#include "report/timetable.hpp"

#include <accel_transport/channel.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <random>

namespace accel::perf {

/// What clients of one measurement share.
struct shared_run {
    std::atomic<bool> failed{false};        ///< one of them: the others stop
    std::atomic<std::uint64_t> answers{0};  ///< of all; for people who watch
};

/// One client: its channel, and its part of the calls.
class client_run {
  public:
    client_run(channel to, const load& what, std::uint32_t number, shared_run& all);

    [[nodiscard]] result<void> warm_up();
    /// Calls are due from `start` on.
    [[nodiscard]] result<void> run(std::chrono::nanoseconds start);
    [[nodiscard]] channel& to() noexcept { return to_; }
    /// Adds what it has seen.
    void report(measurement& into) const;

  private:
    enum class sending : std::uint8_t { sent, full, over };

    [[nodiscard]] result<void> work();
    [[nodiscard]] result<void> send_what_is_due();
    [[nodiscard]] bool is_over(std::chrono::nanoseconds due) const noexcept;
    [[nodiscard]] result<sending> send_one();
    [[nodiscard]] status submit(std::chrono::nanoseconds due) noexcept;
    [[nodiscard]] result<void> take(completion& done);
    [[nodiscard]] result<void> take_answers();
    [[nodiscard]] std::chrono::nanoseconds wait_at_most() const noexcept;
    void count_unsent() noexcept;

    channel to_;
    const load& what_;
    const std::uint32_t number_;
    shared_run& all_;
    std::mt19937_64 random_;
    std::optional<report::timetable> due_;  ///< open loop, while measuring
    report::histogram latency_;
    report::histogram delay_;
    std::chrono::nanoseconds end_{};
    std::chrono::nanoseconds last_answer_{};
    std::array<completion, 64> done_;  ///< of the wait at hand; kept, because clearing it costs half a call
    std::uint64_t wanted_ = 0;
    std::uint64_t issued_ = 0;
    std::uint64_t answered_ = 0;
    std::uint64_t unsent_ = 0;
    std::uint64_t request_bytes_ = 0;
    std::uint64_t response_bytes_ = 0;
    std::uint32_t seed_;
    bool over_ = false;
    bool recording_ = false;
};

}  // namespace accel::perf
