// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/server/exchange_state.hpp"
#include "staging/accelerator.hpp"
#include "staging/long_copy.hpp"
#include "staging/stream_wait.hpp"

#include <accel_transport/options.hpp>

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

namespace accel::core {

/// Exchanges that wait, oldest first, linked through `next`.
class exchange_queue {
  public:
    [[nodiscard]] bool empty() const noexcept { return first_ == nullptr; }
    void push(exchange_state& added) noexcept;
    /// Null: there is none.
    [[nodiscard]] exchange_state* pop() noexcept;
    /// Takes one out whose deadline is not after `when`. Null: there is none.
    [[nodiscard]] exchange_state* pop_expired(nanoseconds when) noexcept;

  private:
    exchange_state* first_ = nullptr;
    exchange_state* last_ = nullptr;
};

enum class lane_phase : std::uint8_t {
    working,    ///< for the handler, or for nobody
    bringing,   ///< the request is being copied to the device
    leaving,    ///< the response is being copied from there
    finishing,  ///< the exchange is answered and the stream has been given all of it
};

/// One stream of a worker and the exchange that it works for.
struct stream_lane {
    std::unique_ptr<device_stream> stream;
    stream_priority priority = stream_priority::normal;
    lane_phase phase = lane_phase::working;
    exchange_state* working = nullptr;
    long_copy copy;
    exchange_queue queue;  ///< of the sessions that have this stream for themselves
};

/// The streams of one worker: handed out, taken back, queued for. Belongs to the worker's thread, but any
/// thread may construct it. Allocates only then.
class stream_pool {
  public:
    [[nodiscard]] static result<std::unique_ptr<stream_pool>> create(accelerator_device& on,
                                                                     const server_options& options, int wake_fd);
    stream_pool(const stream_pool&) = delete;
    stream_pool& operator=(const stream_pool&) = delete;

    /// The last call: waits for the streams until `deadline`. False: one has not ended and is left to the driver.
    [[nodiscard]] bool end(nanoseconds deadline) noexcept;

    [[nodiscard]] accelerator_device& device() const noexcept { return device_; }
    /// The lane of a new session that has its own; null if any free lane serves it. Any thread.
    [[nodiscard]] stream_lane* assign(stream_priority priority) noexcept;
    /// A free lane, which works for the exchange from now on. Null: the exchange waits until `next` returns it.
    [[nodiscard]] stream_lane* take(exchange_state& wanted) noexcept;
    /// The lane has finished. Returns the exchange that it works for next, or null.
    [[nodiscard]] exchange_state* next(stream_lane& free) noexcept;
    /// One that waits and whose deadline is not after `when`, or null.
    [[nodiscard]] exchange_state* take_overdue(nanoseconds when) noexcept;

    [[nodiscard]] std::vector<stream_lane>& lanes() noexcept { return lanes_; }
    [[nodiscard]] std::uint32_t waiting() const noexcept { return waiting_; }
    /// Exchanges that a stream works for.
    [[nodiscard]] std::uint32_t working() const noexcept { return working_; }
    /// Lanes whose stream has not been given all of their copy.
    [[nodiscard]] std::uint32_t copying() const noexcept { return copying_; }
    /// Lanes in another phase than `working`.
    [[nodiscard]] std::uint32_t moving() const noexcept { return copying_ + finishing_; }

    /// Gives the lane's stream its share of pieces. True: it has all of `copy`.
    [[nodiscard]] bool feed(stream_lane& lane) noexcept;
    void set_copying(stream_lane& lane, lane_phase phase) noexcept {
        lane.phase = phase;
        ++copying_;
    }
    void end_copying(stream_lane& lane) noexcept {
        lane.phase = lane_phase::working;
        --copying_;
    }
    void set_finishing(stream_lane& lane) noexcept {
        lane.phase = lane_phase::finishing;
        ++finishing_;
    }
    void end_finishing(stream_lane& lane) noexcept {
        lane.phase = lane_phase::working;
        --finishing_;
    }
    /// The callback for `device_stream::finish` that wakes the worker.
    [[nodiscard]] stream_waker* waker() const noexcept { return waker_.get(); }

  private:
    stream_pool(accelerator_device& on, bool one_for_each_session) noexcept
        : device_(on), one_for_each_session_(one_for_each_session) {}
    [[nodiscard]] stream_lane* free_lane(stream_priority priority) noexcept;

    accelerator_device& device_;
    bool one_for_each_session_;
    std::unique_ptr<stream_waker> waker_;
    std::vector<stream_lane> lanes_;
    std::array<exchange_queue, 2> queues_;  ///< by priority
    std::uint32_t waiting_ = 0;
    std::uint32_t working_ = 0;
    std::uint32_t copying_ = 0;
    std::uint32_t finishing_ = 0;
    std::array<std::uint32_t, 2> assigned_{};  ///< sessions so far, by priority
};

}  // namespace accel::core
