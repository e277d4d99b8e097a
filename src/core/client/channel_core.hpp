// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/client/channel_calls.hpp"
#include "core/client/channel_lifecycle.hpp"
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
/// between the two. channel_core.cpp is in the order a call travels.
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
    void close() noexcept;
    [[nodiscard]] result<target> resolve(std::string_view name) const;
    [[nodiscard]] int event_fd() const noexcept { return wakeups_.fd(); }
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

  private:
    // Sending.
    status check_submit(const channel_slot* slot, std::size_t length, const submit_options& options) const noexcept;
    [[nodiscard]] status check_more(const submit_options& options) const noexcept;
    [[nodiscard]] bool queues_behind_others() const noexcept;
    [[nodiscard]] bool is_staged(const region_state* lent, bool written) const noexcept;
    void stamp(channel_slot& slot, std::size_t length, std::size_t room, std::uint32_t number,
               const submit_options& options) const noexcept;
    [[nodiscard]] std::size_t response_room(const channel_slot& slot, const submit_options& options) const noexcept;
    void stamp_more(channel_slot& slot, const outgoing& message, const submit_options& options) const noexcept;
    [[nodiscard]] status describe(outgoing& message, const submit_options& options) const noexcept;
    [[nodiscard]] status gather(channel_slot& slot, const submit_options& options, outgoing& out) noexcept;
    [[nodiscard]] status keep_scattered(channel_slot& slot, const submit_options& options) noexcept;
    void trace(channel_slot& slot, outgoing& message, const submit_options& options) const noexcept;
    status submit_more(channel_slot& slot, outgoing message, const submit_options& options) noexcept;
    status submit_in_parts(channel_slot& slot, const outgoing& message, const submit_options& options) noexcept;
    [[nodiscard]] status check_parts(const submit_options& options) const noexcept;
    [[nodiscard]] status hand_over(const outgoing& message) noexcept;
    status accept(channel_slot& slot, bool lends, const submit_options& options) noexcept;
    status hold_back(channel_slot& slot, const outgoing& message, status unsent,
                     const submit_options& options) noexcept;
    status submit_staged(channel_slot& slot, const outgoing& message, staged_parts staged,
                         const submit_options& options) noexcept;
    [[nodiscard]] bool link_takes_calls() const noexcept;
    void follow_detours() noexcept;

    // Receiving.
    void progress(completion_room& out) noexcept;
    bool take_events(completion_room& out) noexcept;
    void on_event(const link_event& event) noexcept;
    completion_room end_session(completion_room out) noexcept;
    bool expire() noexcept;
    completion_room hand_out(completion_room out) noexcept;

    // Losing.
    [[nodiscard]] bool doubt(status why) noexcept;
    void lose(status why) noexcept;
    void settle_lost() noexcept;
    void close_lost(nanoseconds deadline) noexcept;

    // Waiting.
    void look(nanoseconds timeout) noexcept;
    [[nodiscard]] nanoseconds next_look() const noexcept;
    void sleep(nanoseconds deadline) noexcept;
    template <class Done>
    void spin_then_sleep(nanoseconds deadline, Done done) noexcept;

    connect_request request_;
    event_set wakeups_;
    channel_lifecycle life_;
    channel_calls calls_;
    std::array<link_event, 32> events_;  ///< of the poll under way
    nanoseconds now_{};                  ///< read once a poll
    spinner spinner_;
};

}  // namespace accel::core
