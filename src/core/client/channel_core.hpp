#pragma once

#include "core/client/client_slots.hpp"
#include "core/client/connect.hpp"
#include "core/client/gpu_staging.hpp"
#include "core/client/reconnector.hpp"
#include "core/event_signal.hpp"
#include "core/fork_guard.hpp"

#include <accel_transport/channel.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace accel::core {

/// A channel's state machine. channel_core.cpp is the data path, in the order a call travels;
/// channel_backlog.cpp and channel_staging.cpp its detours; channel_control.cpp makes, loses and ends
/// connections.
class channel_core {
  public:
    [[nodiscard]] static result<std::unique_ptr<channel_core>> connect(std::shared_ptr<context_state> context,
                                                                       std::string_view uri,
                                                                       const channel_options& options);
    /// Over a connection that has been made.
    channel_core(connect_request request, connection made);
    ~channel_core();
    channel_core(const channel_core&) = delete;
    channel_core& operator=(const channel_core&) = delete;

    // Data path.
    status begin(call_view& out) noexcept;
    status submit(call_id id, std::size_t length, const submit_options& options) noexcept;
    status submit(call_id id, slice payload, const submit_options& options) noexcept;
    status cancel(call_id id) noexcept;
    std::size_t poll(std::span<completion> out) noexcept;
    std::size_t wait(std::span<completion> out, nanoseconds timeout) noexcept;
    /// Waits for this call alone and takes its completion; it ends by its deadline at the latest.
    completion wait_for(call_id id) noexcept;
    status release(call_id id) noexcept;
    bool arm() noexcept;

    // Control path.
    void close() noexcept;
    [[nodiscard]] int event_fd() const noexcept { return epoll_fd_; }
    [[nodiscard]] const connect_request& request() const noexcept { return request_; }
    /// True for a connection that is good, in the process that made it.
    [[nodiscard]] bool connected() const noexcept {
        return connected_in_ == fork_generation.load(std::memory_order_relaxed);
    }
    /// True in a child of the process that made it.
    [[nodiscard]] bool inherited() const noexcept { return stamp_.inherited(); }
    [[nodiscard]] channel_statistics statistics() noexcept;

  private:
    enum class state : std::uint8_t {
        connected,
        losing,  ///< lost, but the transport still touches memory
        lost,
        closed,
    };

    static constexpr std::uint32_t nowhere = ~std::uint32_t{0};

    /// What is left of the room that `poll` was given.
    struct completion_room {
        completion* next = nullptr;
        std::size_t left = 0;
    };

    /// What of a call is copied over its slot.
    struct staged_parts {
        bool payload = false;
        bool response = false;
    };

    // Data path, in order.
    status check_submit(const client_slot* slot, std::size_t length,
                        const submit_options& options) const noexcept;
    void stamp(client_slot& slot, std::size_t length, const submit_options& options) const noexcept;
    void write_header(const client_slot& slot, std::size_t length, nanoseconds deadline,
                      const submit_options& options) const noexcept;
    status submit_payload(client_slot& slot, std::span<const std::byte> payload, const region_state* lent,
                          const submit_options& options) noexcept;
    void accept(client_slot& slot, const submit_options& options) noexcept;
    void progress(completion_room& out) noexcept;
    void follow_detours() noexcept;
    bool take_events(completion_room& out) noexcept;
    completion_room end_session(completion_room out) noexcept;
    [[nodiscard]] status why_unusable() const noexcept;
    void on_event(const link_event& event) noexcept;
    void on_response(const link_event& event, completion_room& out) noexcept;
    void on_late_response(client_slot& slot, const slot_header& header) noexcept;
    void on_let_go(std::uint32_t index) noexcept;
    void fill(completion& out, const client_slot& slot, const link_event& event) const noexcept;
    void end_early(client_slot& slot, status why) noexcept;
    /// False: the connection is lost.
    bool expire() noexcept;
    void hand_out(completion_room& out) noexcept;
    status release_other(client_slot& slot) noexcept;
    void consumed(client_slot& slot) noexcept;
    void consumed_late(client_slot& slot) noexcept;
    void look(nanoseconds timeout) noexcept;
    /// Sleeps until there may be progress, or `deadline`.
    void sleep(nanoseconds deadline) noexcept;
    template <class Done>
    void spin_then_sleep(nanoseconds deadline, Done done) noexcept;

    // When the link has no room.
    status hold_back(client_slot& slot, const outgoing& message, const submit_options& options) noexcept;
    void send_backlog() noexcept;
    void leave_backlog(std::uint32_t index) noexcept;

    // Over a GPU.
    [[nodiscard]] bool is_staged(slice lent, bool written) const noexcept;
    [[nodiscard]] status prepare_staging(std::uint32_t index, accelerator_device& gpu);
    status submit_staged(client_slot& slot, std::span<const std::byte> payload, const region_state* lent,
                         staged_parts staged, const submit_options& options) noexcept;
    void stamp_staged(client_slot& slot, std::size_t length, const submit_options& options) const noexcept;
    void accept_later(client_slot& slot, const submit_options& options) noexcept;
    void fill_staged(client_slot& slot, const link_event& event) const noexcept;
    [[nodiscard]] status deliver_staged(client_slot& slot, staged_call& call) noexcept;
    void poll_staging() noexcept;
    void on_copied(client_slot& slot, staged_call& call, bool done) noexcept;
    void on_staged_response(client_slot& slot, const link_event& event) noexcept;
    [[nodiscard]] bool abandon_staging(const client_slot& slot) noexcept;
    [[nodiscard]] bool end_staging(nanoseconds deadline) noexcept;
    [[nodiscard]] bool copies_go_on() const noexcept { return staging_ != nullptr && staging_->active(); }

    // Control path.
    void lose(status why) noexcept;
    [[nodiscard]] bool doubt(status why) noexcept;
    [[nodiscard]] bool in_doubt() const noexcept { return name_by_ != never; }
    void reclaim() noexcept;
    void settle_lost() noexcept;
    void settle_calls() noexcept;
    void adopt(connection made) noexcept;
    void retire_connection() noexcept;
    void watch_fd(int fd) noexcept;
    void forget_fd(int fd) noexcept;
    [[nodiscard]] nanoseconds next_look() const noexcept;
    void arm_timer() noexcept;

    connect_request request_;
    connection connection_;
    client_slots slots_;
    state state_ = state::connected;
    process_stamp stamp_;
    /// The generation of `stamp_` in state `connected`, else `nowhere`: one comparison asks for both.
    std::uint32_t connected_in_ = nowhere;
    bool ending_ = false;                ///< `close` was called
    bool detours_ = false;               ///< false: nothing waits in `backlog_` or `staging_`, no doubt
    std::vector<outgoing> backlog_;      ///< calls the link had no room for, oldest first; room for all slots
    std::uint32_t epoch_ = 0;            ///< of `connection_`; rises with each reconnect
    std::array<link_event, 32> events_;  ///< of the poll under way
    nanoseconds now_{};                  ///< read once a poll
    spinner spinner_;
    nanoseconds release_by_{};     ///< losing: then the link no longer waits for the server
    nanoseconds name_by_ = never;  ///< the link is lost: until then the control plane may say why
    status loss_ = status::ok;     ///< once it is not connected: `closed` or `peer_lost`
    channel_statistics statistics_;
    int epoll_fd_;
    int timer_fd_;
    int copied_fd_ = -1;  ///< readable when a copy of `staging_` has ended
    nanoseconds timer_set_ = never;
    std::unique_ptr<gpu_staging> staging_;  ///< null until a call needs it
    std::unique_ptr<reconnector> reconnector_;
    /// A lost connection whose responses the application still holds.
    struct retired {
        std::uint32_t epoch;
        connection held;
    };
    std::vector<retired> retired_;
};

/// A difference of clocks of two hosts may come out below zero.
[[nodiscard]] inline nanoseconds not_negative(nanoseconds value) noexcept {
    return std::max(value, nanoseconds{0});
}

}  // namespace accel::core
