// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/clock.hpp"
#include "core/control/control_message.hpp"
#include "core/tls/credentials.hpp"

#include <algorithm>
#include <cstdint>

namespace accel::core {

/// The time that this thread spent listening. A peer's silence is measured in it, so that a thread that was
/// stopped or slow does not blame the peer.
class listening_clock {
  public:
    /// After each wait: `planned` is how long it was meant to last at most.
    void advance(nanoseconds at, nanoseconds planned) noexcept {
        listened_ += std::clamp(at - last_, nanoseconds{0}, planned + slack);
        last_ = at;
    }
    [[nodiscard]] nanoseconds listened() const noexcept { return listened_; }

  private:
    static constexpr nanoseconds slack = std::chrono::milliseconds{10};
    nanoseconds last_ = now();
    nanoseconds listened_{};
};

/// How often to send heartbeats to a peer with this `peer_timeout`.
[[nodiscard]] inline nanoseconds beat_interval(nanoseconds peer_timeout) noexcept {
    return std::clamp<nanoseconds>(peer_timeout / 4, std::chrono::milliseconds{2}, std::chrono::minutes{1});
}

/// When to look whether a certificate has expired. Somebody may set the wall clock meanwhile.
[[nodiscard]] inline nanoseconds time_to_look(wall_time end, nanoseconds at) noexcept {
    constexpr std::chrono::seconds longest{60};
    if (end == wall_time::max()) return never;
    if (end - wall_now() > longest) return at + longest;
    return at + std::max<nanoseconds>(end - std::chrono::system_clock::now(), nanoseconds{0});
}

/// The peer's clock minus ours, from the exchange with the shortest round trip (as NTP, RFC 5905 section 8).
/// The error of a sample grows with its age, by the drift of two clocks.
class clock_estimate {
  public:
    /// The peer names the OS that runs this process too. Then both share one clock, which no estimate could tell as
    /// well, until a message came in before it was sent: processes in another time namespace and copies of a virtual
    /// machine name the same kernel.
    void set_same_kernel() noexcept { same_kernel_ = true; }

    /// `received` is our time at which a message with these stamps came in.
    void add(const clock_stamps& stamps, nanoseconds received) noexcept {
        if (stamps.echo == nanoseconds{0}) return;
        const nanoseconds round_trip = (received - stamps.echo) - (stamps.sent - stamps.received);
        const bool plausible =
            stamps.echo <= received && stamps.received <= stamps.sent && round_trip >= nanoseconds{0};
        if (!plausible) return;
        apart_ = apart_ || stamps.received + reading_error < stamps.echo || received + reading_error < stamps.sent;
        const nanoseconds drift = (received - taken_) / drift_divisor;
        if (known_ && round_trip > round_trip_ + drift) return;
        known_ = true;
        taken_ = received;
        round_trip_ = round_trip;
        offset_ = ((stamps.received - stamps.echo) + (stamps.sent - received)) / 2;
    }
    [[nodiscard]] nanoseconds offset() const noexcept { return same_kernel_ && !apart_ ? nanoseconds{0} : offset_; }

  private:
    static constexpr std::int64_t drift_divisor = 10'000;  // 100 parts in a million
    /// Two threads that read one clock at once differ by less.
    static constexpr nanoseconds reading_error = std::chrono::microseconds{10};
    bool same_kernel_ = false;
    bool apart_ = false;
    bool known_ = false;
    nanoseconds taken_{};
    nanoseconds round_trip_{};
    nanoseconds offset_{};
};

}  // namespace accel::core
