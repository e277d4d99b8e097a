// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/metrics/call_series.hpp"
#include "core/metrics/metrics_registry.hpp"

#include <accel_transport/completion.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace accel::core {

/// The request, for the completion that counts it.
struct alignas(8) asked_for {
    std::uint32_t length = 0;  ///< of the request
    std::uint32_t target = 0;
};

/// The counters of a channel. Its thread writes; the registry reads, and keeps the sums when the channel ends.
class client_metrics : public metrics_source {
  public:
    /// So many targets have series of their own, the first that are called; the others share one.
    static constexpr std::size_t own_targets = 8;

    /// `submitted`, and slots `quarantined` now: of the channel, which outlives this.
    client_metrics(metrics_registry& registry, std::string_view scheme, const counter& submitted,
                   const counter& quarantined)
        : registry_(registry), scheme_(scheme), submitted_(submitted), quarantined_(quarantined) {
        registry_.add(*this);
    }
    ~client_metrics() override { registry_.remove(*this); }
    client_metrics(const client_metrics&) = delete;
    client_metrics& operator=(const client_metrics&) = delete;

    /// A completion has been handed out, of a call or of a part. `asked`: of the call.
    void count(const call_outcome& c, const asked_for& asked) noexcept {
        if ((asked.target | static_cast<std::uint32_t>(c.status) | static_cast<std::uint32_t>(c.more)) != 0)
            [[unlikely]]
            return count_apart(c, asked);
        count_answered(untargeted_, c, asked.length);
    }
    /// A part of a request has been submitted.
    void count_request_part(const asked_for& asked, std::size_t bytes) noexcept {
        series_of(asked.target).request_bytes.add(bytes);
    }
    void count_stale() noexcept { stale_.add(); }
    void count_reconnect() noexcept { reconnects_.add(); }
    void count_copied(std::size_t bytes) noexcept { copied_bytes_.add(bytes); }

    void add_to(metrics_sums& sums) const override;

  private:
    static void count_answered(client_series& to, const call_outcome& c, std::uint64_t request_bytes) noexcept {
        // Read before anything is written: the compiler cannot know that counters lie apart. More of them in
        // registers would make calls dearer that are not counted.
        const nanoseconds total = c.timeline.total;
        const nanoseconds request = c.timeline.request;
        to.request_bytes.add(request_bytes);
        to.response_bytes.add(c.response.size());
        to.of(counted_stage::total).add(total);
        to.of(counted_stage::request).add(request);
        to.of(counted_stage::response).add(c.timeline.response);
    }
    void count_apart(const call_outcome& c, const asked_for& asked) noexcept;
    [[nodiscard]] client_series& series_of(std::uint32_t target) noexcept;

    struct own_series {
        std::atomic<std::uint32_t> target{0};  ///< 0: of none yet
        client_series series;
    };
    metrics_registry& registry_;
    std::string_view scheme_;  ///< static storage
    const counter& submitted_;
    const counter& quarantined_;
    counter stale_;
    counter reconnects_;
    counter copied_bytes_;
    client_series untargeted_;
    std::array<own_series, own_targets> targeted_;
    client_series others_;
};

}  // namespace accel::core
