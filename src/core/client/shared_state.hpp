// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/client/channel_core.hpp"
#include "core/event_signal.hpp"

#include <accel_transport/shared_channel.hpp>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace accel::core {

/// A call of a shared channel. Under the channel's lock, but for `given`; once it has ended, its owner's.
struct shared_operation {
    /// What a thread that sleeps is woken for.
    enum class turn : std::uint32_t { none, leads, ended };
    enum class phase : std::uint8_t { fresh, in_line, in_flight, ended };
    struct links {
        shared_operation* before = nullptr;
        shared_operation* after = nullptr;
    };

    shared_operation(std::span<const std::byte> bytes, const submit_options& how) noexcept
        : request(bytes), options(&how) {}
    shared_operation(slice payload, const submit_options& how) noexcept : lent(payload), lends(true), options(&how) {}
    [[nodiscard]] std::size_t length() const noexcept { return lends ? lent.size() : request.size(); }
    [[nodiscard]] bool lends_memory() const noexcept {
        return lends || !options->response_into.empty() || !options->response_ranges.empty();
    }

    std::span<const std::byte> request;
    slice lent;  ///< the request, if it `lends`
    bool lends = false;
    bool sent = false;
    bool sleeps = false;  ///< its thread does, and is among the sleepers
    phase state = phase::fresh;
    const submit_options* options;
    nanoseconds deadline = never;  ///< in line
    call_outcome content;          ///< when it has ended; if it was not sent, the status alone
    std::string_view why_unsent;   ///< as `channel::last_error`
    links line;
    links others;                         ///< sleepers, or those that are about to be woken
    std::atomic<turn> given{turn::none};  ///< to its sleeping thread
};

/// Operations in the order in which they came.
template <shared_operation::links shared_operation::*Links>
class operation_list {
  public:
    [[nodiscard]] shared_operation* first() const noexcept { return first_; }
    void push_back(shared_operation& last) noexcept {
        last.*Links = {last_, nullptr};
        (last_ == nullptr ? first_ : (last_->*Links).after) = &last;
        last_ = &last;
    }
    void remove(shared_operation& one) noexcept {
        const auto [before, after] = one.*Links;
        (before == nullptr ? first_ : (before->*Links).after) = after;
        (after == nullptr ? last_ : (after->*Links).before) = before;
    }

  private:
    shared_operation* first_ = nullptr;
    shared_operation* last_ = nullptr;
};

/// A call whose thread does not wait for it yet.
struct pending_call {
    template <class Request>
    pending_call(Request request, const submit_options& how) : options(how), call(request, options) {}
    submit_options options;
    shared_operation call;
};

/// A channel that threads share, by one lock. A thread sends its own call: handing it to another thread, which may
/// sleep, would cost more than the sending.
///
/// One of the threads that wait leads: it polls, without the lock while it sleeps, and wakes those whose calls have
/// ended. When its own call has ended, it calls a sleeping thread to lead; a thread that enters before that one has a
/// processor leads in its place. So while threads wait, one leads or is called.
class shared_state {
  public:
    [[nodiscard]] static result<std::shared_ptr<shared_state>> make(channel_owner core);
    explicit shared_state(channel_owner core);

    [[nodiscard]] static result<shared_response> call(std::shared_ptr<shared_state> over, shared_operation& what);
    [[nodiscard]] static result<shared_call> submit(std::shared_ptr<shared_state> over,
                                                    std::unique_ptr<pending_call> what);
    /// What a call has become, which has ended.
    [[nodiscard]] static result<shared_response> outcome(std::shared_ptr<shared_state> over,
                                                         const shared_operation& what);

    /// Sends a call, or puts it in line for a slot; then waits until it has ended.
    void run(shared_operation& what) noexcept;
    void await(shared_operation& what) noexcept;
    [[nodiscard]] bool done(const shared_operation& what) noexcept;
    [[nodiscard]] status cancel(shared_operation& what) noexcept;
    /// Nobody wants what becomes of it.
    void abandon(shared_operation& what) noexcept;
    void release(call_id id) noexcept;
    [[nodiscard]] result<std::span<tensor>, status> tensors(const call_outcome& of, std::span<tensor> room) noexcept;
    [[nodiscard]] result<std::span<const metadata_entry>, status> metadata(const call_outcome& of,
                                                                           metadata_room& room) noexcept;

    [[nodiscard]] result<target> resolve(std::string_view name);
    void close() noexcept;
    /// True in a child of the process that made it.
    [[nodiscard]] bool inherited() const noexcept { return core_->inherited(); }
    /// As granted by the server; they stay.
    [[nodiscard]] const channel_options& options() const noexcept { return core_->request().options; }
    [[nodiscard]] std::string_view scheme() const noexcept { return core_->request().peer.scheme; }
    [[nodiscard]] std::string endpoint();
    [[nodiscard]] bool connected() noexcept;
    [[nodiscard]] channel_statistics statistics() noexcept;

    // For a pool.
    /// Calls that are in line or in flight count there. Before the first call.
    void count_calls_in(std::shared_ptr<std::atomic<std::uint32_t>> count) noexcept { count_ = std::move(count); }
    /// Takes what the transport says first, unless another thread does.
    [[nodiscard]] bool takes_calls() noexcept;
    /// The server has said that it takes no calls.
    void leave() noexcept;
    /// No call is under way, and no response is unread.
    [[nodiscard]] bool idle() noexcept;

  private:
    using guard = std::unique_lock<std::mutex>;
    using phase = shared_operation::phase;
    using turn = shared_operation::turn;
    class visit;

    void start(shared_operation& what) noexcept;
    [[nodiscard]] status send(shared_operation& what) noexcept;
    [[nodiscard]] status send(shared_operation& what, const call_view& slot, const submit_options& options) noexcept;
    void count(std::uint32_t more) noexcept {
        if (count_ != nullptr) count_->fetch_add(more, std::memory_order_relaxed);
    }
    void take() noexcept;
    void deliver(completion& one) noexcept;
    void serve_line() noexcept;
    void end(shared_operation& what) noexcept;
    void end_unsent(shared_operation& what, status why) noexcept;
    void leave_line(shared_operation& what, status why) noexcept;

    void await(guard& lock, shared_operation& what) noexcept;
    void lead(guard& lock, shared_operation& own) noexcept;
    [[nodiscard]] bool sleep(guard& lock, const shared_operation& own, bool at_least_briefly) noexcept;
    [[nodiscard]] bool follow(guard& lock, shared_operation& own) noexcept;
    void pass_on(guard& lock) noexcept;
    void wake_ended(guard& lock) noexcept;
    void keep_armed() noexcept;
    void rouse_leader() noexcept;

    std::mutex mutex_;
    channel_owner core_;
    const int events_fd_;  ///< of the channel
    wake_signal rouse_;    ///< the leader, for what the channel does not tell
    shared_operation* leader_ = nullptr;
    shared_operation* called_ = nullptr;  ///< woken to lead, and not here yet
    bool leader_sleeps_ = false;
    std::vector<shared_operation*> calls_;  ///< in flight, by slot; null: nobody wants what becomes of it
    operation_list<&shared_operation::line> line_;
    operation_list<&shared_operation::others> sleepers_;
    operation_list<&shared_operation::others> ended_;    ///< their threads are woken without the lock
    std::shared_ptr<std::atomic<std::uint32_t>> count_;  ///< null: nobody counts
    spinner spinner_;
    std::array<completion, 32> taken_;
};

}  // namespace accel::core
