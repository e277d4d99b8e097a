// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/client/call_extras.hpp"
#include "core/client/channel_calls.hpp"
#include "core/client/channel_lifecycle.hpp"
#include "core/client/channel_loss.hpp"
#include "core/client/connect.hpp"
#include "core/client/event_set.hpp"
#include "core/event_signal.hpp"

#include <accel_transport/channel.hpp>

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

namespace accel::core {

/// A channel: its connection over time (`channel_lifecycle`), its calls (`channel_calls`), and the way
/// between the two: of most calls here, in the order they travel, of others in `call_extras`, and what becomes of
/// them when the connection ends in `channel_loss`.
class channel_core {
  public:
    [[nodiscard]] static result<std::unique_ptr<channel_core>> connect(std::shared_ptr<context_state> context,
                                                                       std::string_view uri,
                                                                       const channel_options& options);
    /// Over a connection that has been made.
    channel_core(connect_request request, channel_connection made);
    ~channel_core() { close(); }
    channel_core(const channel_core&) = delete;
    channel_core& operator=(const channel_core&) = delete;

    // Data path.
    status begin(call_view& out) noexcept;
    status submit(call_id id, std::size_t length, const submit_options& options) noexcept;
    status submit(call_id id, slice payload, const submit_options& options) noexcept;
    status submit(call_id id, std::span<const slice> ranges, const submit_options& options) noexcept;
    status cancel(call_id id) noexcept;
    std::size_t poll(std::span<completion> out) noexcept;
    std::size_t wait(std::span<completion> out, nanoseconds timeout) noexcept;
    /// Waits for this call alone and takes its completion; it ends by its deadline at the latest.
    completion wait_for(call_id id) noexcept;
    status release(call_id id) noexcept;
    bool arm() noexcept;
    status tensors(const completion& of, std::span<tensor> out, std::size_t& count) noexcept;

    // Control path.
    void close() noexcept { loss_.close(); }
    [[nodiscard]] result<target> resolve(std::string_view name) const;
    [[nodiscard]] int event_fd() noexcept {
        life_.be_watched();
        return wakeups_.fd();
    }
    [[nodiscard]] const connect_request& request() const noexcept { return request_; }
    /// True for a connection that is good, in the process that made it.
    [[nodiscard]] bool connected() const noexcept { return life_.connected(); }
    /// True in a child of the process that made it.
    [[nodiscard]] bool inherited() const noexcept { return life_.inherited(); }
    [[nodiscard]] channel_statistics statistics() const noexcept;
    /// Nothing is begun, in flight or unread: another thread could go on with it.
    [[nodiscard]] bool idle() const noexcept { return calls_.slots().all_free(); }
    /// Place of the server among several hosts of the URI.
    [[nodiscard]] std::size_t host() const noexcept;
    [[nodiscard]] channel_event take_event() noexcept { return life_.take_event(); }
    /// Another channel takes its place when its session ends.
    void be_replaceable() noexcept { replaceable_ = true; }
    /// The server has said that it takes no calls.
    void leave() noexcept {
        if (connected()) life_.leave(status::closed);
    }

  private:
    status take_late(channel_slot*& slot) noexcept;
    status make_room(const submit_options& options) noexcept;
    status make_room(std::uint32_t parts) noexcept;
    bool leave_late_answers(std::uint32_t wanted) noexcept;
    void warn_of_end(std::string_view why) const noexcept;
    status check_submit(const channel_slot* slot, std::size_t length, const submit_options& options) const noexcept;

    // Receiving.
    void progress(completion_room& out) noexcept;
    bool take_events(completion_room& out) noexcept;
    void on_event(const link_event& event) noexcept;
    completion_room end_session(completion_room out) noexcept;
    completion_room leave_session(completion_room out) noexcept;
    void take_rest(completion_room& out) noexcept;
    bool expire() noexcept;
    completion_room hand_out(completion_room out) noexcept;

    // Waiting.
    void look(completion_room& out, nanoseconds timeout) noexcept;
    [[nodiscard]] nanoseconds next_look() const noexcept;
    void sleep(nanoseconds deadline) noexcept;
    template <class Done>
    void spin_then_sleep(completion_room& out, nanoseconds deadline, Done done) noexcept;

    connect_request request_;
    event_set wakeups_;
    channel_lifecycle life_;
    channel_calls calls_;
    channel_loss loss_;
    call_extras extras_;
    bool replaceable_;
    std::array<link_event, 32> events_;  ///< of the poll under way
    ticking_clock clock_;
    nanoseconds now_{};  ///< read once a poll
    spinner spinner_;
};

}  // namespace accel::core
