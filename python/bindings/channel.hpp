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
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>

namespace accel::python {

class connection;

/// A part of a response, with its slot.
class part_answer final : public answer {
  public:
    using counter = std::shared_ptr<std::atomic<std::uint32_t>>;
    part_answer(std::shared_ptr<connection> its_home, completion&& its_part, counter its_count) noexcept;
    ~part_answer() override;
    [[nodiscard]] const call_outcome& outcome() const noexcept override { return done_; }
    [[nodiscard]] result<std::span<tensor>, status> tensors(std::span<tensor> room) const noexcept override {
        return done_.tensors(room);
    }
    [[nodiscard]] result<std::span<const metadata_entry>, status> metadata(metadata_room&) const noexcept override {
        return status::not_found;  // the call's end has it
    }

  private:
    std::shared_ptr<connection> home_;
    completion done_;
    counter count_;
};

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

    bool given_back = false;

    // Of a call in parts.
    bool in_parts = false;
    bool abandoned = false;  ///< nobody reads its parts
    bool listed = false;     ///< in `connection::ended`
    bool refused = false;    ///< was not sent for want of slots; the slot it had was released
    std::uint32_t parts = 0;  ///< most unread ones
    std::deque<std::shared_ptr<part_answer>> arrived;
    part_answer::counter unread;  ///< those that have a slot
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
    /// False: too few slots are free for a call in parts, which gave its own back.
    bool submit(const std::shared_ptr<channel_call>& call, std::size_t length, const submit_options& options);
    bool submit(const std::shared_ptr<channel_call>& call, slice payload, const submit_options& options);
    /// Waits without the GIL until the call has ended. An interrupt cancels the call and is raised.
    void wait(channel_call& call);
    /// The same for a call in parts, until a part or the end has arrived.
    void wait_for_part(channel_call& call);
    /// Waits without the GIL until something arrives, for a slice of time at most: perhaps a slot came free.
    void wait_for_room(channel_call& call);
    /// Takes what has arrived. Ended calls with a waiter are added to `ended`.
    void poll();
    void close() noexcept;
    /// The same for a channel whose event loop has gone.
    void close_for_good() noexcept;
    /// A free slot, for which it waits until then, without the GIL.
    [[nodiscard]] std::shared_ptr<channel_call> begin_by(std::chrono::steady_clock::time_point deadline);
    /// Whether a call or part could begin, or fail at once.
    [[nodiscard]] bool has_slot() noexcept;
    /// Waits likewise once no call could begin. Raises when there is nothing to wait for.
    void wait_for_slot(std::chrono::steady_clock::time_point deadline);
    void check_interrupt(channel_call& call);
    /// Releases what other threads have given back.
    void free_given_back() noexcept;

    // What may change while another thread is in the channel. With the GIL, without `use`.
    [[nodiscard]] bool connected() const noexcept { return connected_.load() && !inherited(); }
    [[nodiscard]] const std::string& endpoint() const noexcept { return endpoint_; }

    /// From any thread. A thread that waits in the channel does it within a slice of its wait.
    void cancel(channel_call& call) noexcept;
    /// From any thread: releases what a call has of the channel, now or when the thread in it leaves.
    void give_back(channel_call& call) noexcept;
    void give_back(call_id begun, completion&& done) noexcept;

    channel own;
    std::vector<std::shared_ptr<channel_call>> ended;  ///< for the event loop
    reference wake;                                    ///< called when a slot has come free elsewhere than in `poll`
    std::atomic<bool> slot_wanted{false};
    bool closed = false;

  private:
    /// Who is in the channel. Those who only release something are gone in a moment, perhaps without the GIL: `use`
    /// waits for them.
    enum class inside : std::uint8_t { nobody, releasing, using_it };
    void leave() noexcept;
    [[nodiscard]] bool enter_to_release() noexcept;
    /// With the GIL. False: a `use` is there.
    [[nodiscard]] bool enter_to_use() noexcept;
    void deliver(std::span<completion> arrived);
    void take_some(std::chrono::nanoseconds timeout);
    /// Takes note of changes of the connection.
    void take_events();
    [[nodiscard]] bool sent(const std::shared_ptr<channel_call>& call, status outcome);
    void notify() noexcept;

    shared_context context_;
    unsigned generation_ = fork_generation();
    std::atomic<inside> inside_{inside::nobody};
    std::uint32_t in_flight_ = 0;
    std::atomic<std::uint32_t> held_{0};  ///< slots of begun calls, responses and parts
    std::mutex given_back_lock_;
    std::vector<std::pair<call_id, completion>> given_back_;
    std::vector<call_id> cancelled_;
    std::atomic<bool> has_given_back_{false};
    std::atomic<bool> connected_{true};
    std::string endpoint_;
};

void add_channel(nb::module_& module);

}  // namespace accel::python
