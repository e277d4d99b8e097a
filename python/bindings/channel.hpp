// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "answer.hpp"
#include "context.hpp"
#include "lifetime.hpp"

#include <accel_transport/channel.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>

namespace accel::python {

class connection;

/// One call of a channel. The connection keeps it while it is in flight, so that what it lends stays.
class channel_call final : public answer {
  public:
    enum class stage : std::uint8_t { begun, in_flight, ended };
    channel_call(std::shared_ptr<connection> its_home, call_view its_place) noexcept;
    ~channel_call() override;
    [[nodiscard]] const call_outcome& outcome() const noexcept override { return done; }
    [[nodiscard]] result<std::span<tensor>, status> tensors(std::span<tensor> room) const noexcept override {
        return done.tensors(room);
    }
    [[nodiscard]] result<std::span<const metadata_entry>, status> metadata(
        metadata_room& room) const noexcept override {
        return done.metadata(room);
    }

    std::shared_ptr<connection> home;
    call_view place;
    stage now = stage::begun;
    completion done;
    std::shared_ptr<region_owner> lent;  ///< as the request
    std::shared_ptr<region_owner> into;  ///< for the response
    reference waiter;                    ///< an event loop's future
    std::shared_ptr<channel_call> self;  ///< while it is in flight
    tensor placed;                       ///< of a request that is written in place
    std::size_t placed_bytes = 0;        ///< 0: no tensor was placed
};

/// A channel and its calls. One thread at a time is in it; drops of responses may come from any thread.
class connection final : public closable, public std::enable_shared_from_this<connection> {
  public:
    connection(shared_context its_context, channel&& its_channel);
    ~connection() override = default;
    void close_at_exit() noexcept override;

    /// The right to use the channel. `invalid_state` if another thread has it: an exception.
    class use {
      public:
        explicit use(connection& of);
        use(const use&) = delete;
        use& operator=(const use&) = delete;
        ~use() { of_.leave(); }

      private:
        connection& of_;
    };

    /// Made before fork(): it is the parent's.
    [[nodiscard]] bool inherited() const noexcept { return generation_ != fork_generation(); }

    // With `use`.
    /// Null: no slot is free.
    [[nodiscard]] std::shared_ptr<channel_call> begin();
    void submit(const std::shared_ptr<channel_call>& call, std::size_t length, const submit_options& options);
    void submit(const std::shared_ptr<channel_call>& call, slice payload, const submit_options& options);
    /// Waits without the GIL until the call has ended. An interrupt cancels the call and is raised.
    void wait(channel_call& call);
    /// Takes what has arrived. Ended calls with a waiter are added to `ended`.
    void poll();
    void close() noexcept;
    /// A free slot, for which it waits until then, without the GIL.
    [[nodiscard]] std::shared_ptr<channel_call> begin_by(std::chrono::steady_clock::time_point deadline);

    /// From any thread. Without effect while another thread is in the channel: the call then ends by its deadline.
    void cancel(channel_call& call) noexcept;
    /// From any thread: releases what a call has of the channel, now or when the thread in it leaves.
    void give_back(channel_call& call) noexcept;

    channel own;
    std::vector<std::shared_ptr<channel_call>> ended;  ///< for the event loop
    reference wake;                                    ///< called when a slot has come free elsewhere than in `poll`
    std::atomic<bool> slot_wanted{false};
    bool closed = false;
    bool freed_slots = false;  ///< `poll` has taken late answers, or another session

  private:
    void leave() noexcept;
    [[nodiscard]] bool enter() noexcept { return !busy_.exchange(true, std::memory_order_acquire); }
    void free_given_back() noexcept;
    void deliver(std::span<completion> arrived);
    void take_some(std::chrono::nanoseconds timeout);
    void sent(const std::shared_ptr<channel_call>& call, status outcome);
    void notify() noexcept;

    shared_context context_;
    unsigned generation_ = fork_generation();
    std::atomic<bool> busy_{false};
    std::uint32_t in_flight_ = 0;
    std::uint64_t stale_ = 0;  ///< late answers that `poll` has seen
    std::mutex given_back_lock_;
    std::vector<std::pair<call_id, completion>> given_back_;
    std::atomic<bool> has_given_back_{false};
};

void add_channel(nb::module_& module);

}  // namespace accel::python
