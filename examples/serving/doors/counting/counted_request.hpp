// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/doors/counting/door_metrics.hpp"

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace accel::examples::serving::doors {

/// One request of a client, while a door counts it. Of one thread at a time. It is counted from `begin` to `end`,
/// `drop` or its destruction, and in flight as long, or until `leave`.
class counted_request {
  public:
    using clock = std::chrono::steady_clock;

    counted_request() = default;
    counted_request(const counted_request&) = delete;
    counted_request& operator=(const counted_request&) = delete;
    ~counted_request() { drop(); }

    /// Of no model yet. `at`: when its first byte came.
    void begin(door_metrics& of, clock::time_point at = clock::now());
    [[nodiscard]] bool counts() const noexcept { return counts_; }
    [[nodiscard]] clock::time_point began() const noexcept { return began_; }
    /// How many of its model are in flight, itself included.
    [[nodiscard]] std::uint64_t of_its_model() const noexcept {
        return row().in_flight.load(std::memory_order_relaxed);
    }
    /// A row of the door's metrics, from here on.
    void set_model(std::size_t row) noexcept;
    /// Later than the stage before. Those of a request that never waits for a slot are not counted.
    void enter(request_stage next, clock::time_point now = clock::now()) noexcept;

    void received(std::uint64_t bytes) noexcept;
    /// Also after its end.
    void sent(std::uint64_t bytes) noexcept;
    void answered(int status) noexcept;
    void cancelled() noexcept;
    /// Its answer goes out: its model may have another request already, while its times go on.
    void leave() noexcept;
    /// Its answer was written.
    void end(clock::time_point now = clock::now()) noexcept;
    /// Nobody takes its answer; its times count nowhere.
    void drop() noexcept;

  private:
    [[nodiscard]] model_metrics& row() const noexcept { return of_->row(row_); }

    door_metrics* of_ = nullptr;  ///< null: it has never begun
    std::size_t row_ = door_metrics::no_model;
    bool counts_ = false;
    bool in_flight_ = false;
    request_stage stage_ = request_stage::receive;  ///< the last one of those entered
    std::uint8_t reached_ = 0;                      ///< a bit for each stage
    clock::time_point began_{};
    clock::time_point entered_{};  ///< `stage_`
    std::array<std::chrono::nanoseconds, request_stages> spent_{};
};

}  // namespace accel::examples::serving::doors
