// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/clock.hpp"
#include "core/event_set.hpp"
#include "core/event_signal.hpp"
#include "core/fork_guard.hpp"
#include "core/metrics/server_metrics.hpp"
#include "core/poller.hpp"
#include "core/server/exchange_state.hpp"
#include "core/server/session.hpp"
#include "core/server/session_commands.hpp"
#include "core/server/session_table.hpp"
#include "core/server/target_table.hpp"
#include "core/thread_times.hpp"

#include <accel_transport/server.hpp>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string_view>
#include <thread>
#include <vector>

#include <sys/types.h>

namespace accel::core {

class context_state;
class staged_exchanges;

/// Counters of one worker; written by its thread, read by any.
struct worker_counters {
    counter requests;
    counter replies;
    counter expired;
    counter cancelled;
    counter overloaded;
    counter not_found;

    void add_to(server_statistics& sum) const noexcept {
        sum.requests += requests.read();
        sum.replies += replies.read();
        sum.expired += expired.read();
        sum.cancelled += cancelled.read();
        sum.overloaded += overloaded.read();
        sum.not_found += not_found.read();
    }
};

/// One thread of a server, with its sessions and their event sources. `requests.cpp` takes a request from its arrival
/// to the handler, `answers.cpp` takes the answer from the handler to the link, and `worker.cpp` has the thread and its
/// sessions. Lives until the server and every exchange handed out have released it.
class worker {
  public:
    /// `service` serves requests without a target; not empty.
    worker(std::shared_ptr<context_state> context, const server_options& options, handler service);
    worker(const worker&) = delete;
    worker& operator=(const worker&) = delete;

    /// The most sources of one worker: one for each URI.
    static constexpr std::size_t max_sources = 16;

    // Control path, before start().
    void add_source(std::unique_ptr<event_source> source) { sources_.push_back(std::move(source)); }
    /// Why it cannot be woken, and must not start, as errno: there was no descriptor. 0: it can.
    [[nodiscard]] int waking_failure() const noexcept { return wake_.failure(); }
    void observe(session_observer* observer) noexcept { observer_ = observer; }
    /// Handlers want their bytes on this device.
    [[nodiscard]] result<void> use(accelerator_device& device);
    void start();

    // Control path, any thread.
    /// The handlers of requests that name a target. One thread at a time changes them; requests that arrive after
    /// `publish_targets` find the new ones.
    [[nodiscard]] const target_table& targets() const noexcept { return targets_; }
    void publish_targets(target_table::publication& list) noexcept;
    /// True in a child of the process that made it, which does not have its thread.
    [[nodiscard]] bool inherited() const noexcept { return stamp_.inherited(); }
    /// `command`: a list of one.
    void install(std::unique_ptr<session> made, session_commands::list command = session_commands::list(1)) noexcept;
    /// Likewise; an empty list: it has been closed before.
    void close_session(std::uint64_t id, status why,
                       session_commands::list command = session_commands::list(1)) noexcept;
    /// From now on requests are refused with `closed`.
    void refuse_requests() noexcept;
    /// After `refuse_requests`: no exchange is held by a handler, no answer waits to be sent, and no request that comes
    /// later reaches a handler.
    [[nodiscard]] bool drained() const noexcept { return !commands_.pending() && !holds_exchanges(); }
    /// True: a handler holds an exchange, or an answer waits to be sent. Another exchange may begin at this moment.
    [[nodiscard]] bool holds_exchanges() const noexcept { return open_.load(std::memory_order_acquire) != 0; }
    /// The number of these exchanges and answers.
    [[nodiscard]] std::uint32_t open() const noexcept { return open_.load(std::memory_order_relaxed); }
    /// Closes all sessions, waits for the thread. The observer is not called any more afterwards.
    void stop();
    /// The id of this worker's own thread; 0 where the application drives it.
    [[nodiscard]] pid_t thread_id() const noexcept { return thread_id_.load(std::memory_order_relaxed); }
    /// Processor time of that thread, also after its end: never less than before.
    [[nodiscard]] thread_times times() const;
    [[nodiscard]] const worker_counters& counters() const noexcept { return counters_; }
    /// Null: calls are not counted for `context::metrics`.
    [[nodiscard]] server_metrics* metrics() const noexcept { return metrics_.get(); }
    /// Null: handlers want their bytes on the host.
    [[nodiscard]] staged_exchanges* staging() const noexcept { return staging_.get(); }
    /// Stops the work of its exchanges.
    [[nodiscard]] const std::shared_ptr<stop_notifier>& stops() const noexcept { return stops_; }
    /// Ends the thread's sleep.
    void wake() noexcept;
    /// True while a thread runs a round.
    [[nodiscard]] bool in_round() const noexcept { return round_.load(std::memory_order_acquire) != 0; }
    /// True: the caller is one of its handlers.
    [[nodiscard]] bool runs_here() const noexcept;
    /// True: nothing arrives while the caller waits. It is a handler, or the application's thread that drives the
    /// worker.
    [[nodiscard]] bool waits_for_this_thread() const noexcept;
    /// References: one of the server, one of each exchange handed out.
    void hold() noexcept { references_.fetch_add(1, std::memory_order_relaxed); }
    void release_ref() noexcept {
        if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
    }

    // Data path, any thread that has the exchange.
    /// An exchange has been answered. Its answer is sent, or goes nowhere (`peer_lost`). Ends the caller's reference.
    /// `invalid_state`: the exchange belongs to this process's parent.
    static status answer(exchange_state& answered) noexcept;
    /// The same for one that is dropped while an exception leaves the code that had it: if that is a handler of this
    /// thread's round, the answer says later what was thrown. False: it is another's, and nothing was done.
    [[nodiscard]] static bool abandon_later(exchange_state& dropped) noexcept;
    /// The answer says why, as far as there is room.
    static void write_failure(exchange_state& answered, std::string_view text) noexcept;
    /// A handler has a part of a request, or has released it.
    void part_taken() noexcept { held_parts_.fetch_add(1, std::memory_order_relaxed); }
    void part_released() noexcept { held_parts_.fetch_sub(1, std::memory_order_relaxed); }
    /// Sends a part of the response.
    static status post_part(exchange_state& part) noexcept;
    /// A handler has released a part of a request. Ends the reference that it has held with the part.
    static void give_back_part(exchange_state& part) noexcept;

    // On the worker's thread.
    /// While one lives, the current thread runs the worker's round, and answers leave at once.
    class round_scope {
      public:
        explicit round_scope(worker& own) noexcept;
        ~round_scope();
        round_scope(const round_scope&) = delete;
        round_scope& operator=(const round_scope&) = delete;

      private:
        worker& own_;
        std::uintptr_t outer_;
    };
    /// One round over everything; returns how many events there were.
    std::size_t progress() noexcept;

    // For `staged_exchanges`, on the worker's thread.
    /// It has a stream, which begins to work for it.
    void end_queueing(exchange_state& request) noexcept;
    /// Gives the handler its exchange, once its stream has been given the request.
    void serve_brought(exchange_state& request) noexcept;
    void refuse(exchange_state& request, status why, std::string_view text = {}) noexcept;
    void refuse_late_or_too_many(exchange_state& request, bool too_many) noexcept;
    /// Hands an answer to its link.
    void send(exchange_state& answered) noexcept;
    /// When the last request arrived or the last answer left.
    [[nodiscard]] nanoseconds last_time() const noexcept { return now_; }

    // Where the application drives it, on its thread.
    /// In place of `start`, once it has its sources.
    [[nodiscard]] result<void> make_drivable();
    /// The same as `progress`, also after `arm`.
    std::size_t serve() noexcept;
    /// Readable, after `arm` has said true, when `serve` has something to do.
    [[nodiscard]] int event_fd() const noexcept { return wakeups_->fd(); }
    [[nodiscard]] bool arm() noexcept;

  private:
    ~worker();

    // requests.cpp
    void on_event(const link_event& event) noexcept;
    void on_unusual_event(session& from, const link_event& event) noexcept;
    void serve_event(session& from, const link_event& event) noexcept;
    [[nodiscard]] bool on_request(session& from, const link_event& event) noexcept;
    [[nodiscard]] bool on_unusual_request(session& from, const link_event& event) noexcept;
    void dispatch(exchange_state& request, std::uint32_t target) noexcept;
    void call_handler(exchange_state& request, const handler& service) noexcept;
    void call_target(exchange_state& request) noexcept;
    void serve_target(exchange_state& request, std::uint32_t number) noexcept;
    void serve_on_device(exchange_state& request, const handler& service) noexcept;
    [[nodiscard]] served_target* find_target(exchange_state& request, std::uint32_t number) noexcept;
    void refuse_at_once(exchange_state& request, std::uint32_t target, bool too_many) noexcept;

    // answers.cpp
    void send_to(session& to, exchange_state& answered) noexcept;
    void count_answer(exchange_state& answered) const noexcept;
    void count_apart(exchange_state& answered) const noexcept;
    void count_lost(exchange_state& answered) const noexcept;
    void close_one() noexcept { open_.store(open_.load(std::memory_order_relaxed) - 1, std::memory_order_release); }
    void finish(session& of, exchange_state& answered) noexcept;
    static void end_lease(exchange_state& answered) noexcept;
    void end_extras(session& of, exchange_state& answered) noexcept;
    void tell_interceptors(const exchange_state& answered, bool targeted) const noexcept;
    void end_unsent(exchange_state& answered) noexcept;
    [[nodiscard]] status answer_otherwise(exchange_state& answered) noexcept;
    void send_nowhere(exchange_state& answered) noexcept;
    void end_answer(exchange_state& answered, status sent) noexcept;
    void ignore(exchange_state& request) noexcept;
    void on_exception(const exchange_state& request) noexcept;
    void answer_thrown(const exchange_state& request, std::string_view text) noexcept;
    void send_part(exchange_state& part) noexcept;
    static void count_part(exchange_state& part, status sent) noexcept;
    void end_parts(session& of, exchange_state& answered) noexcept;
    void end_inbox(session& of, exchange_state& answered) noexcept;
    void post(exchange_state& answered) noexcept;
    [[nodiscard]] exchange_state* take_posted() noexcept;
    [[nodiscard]] bool any_posted(std::memory_order order = std::memory_order_relaxed) const noexcept {
        return posted_.load(order) != nullptr;
    }
    bool follow_up(std::size_t events) noexcept;
    void send_posted() noexcept;
    void send_waiting() noexcept;
    void send_again(exchange_state& answered) noexcept;

    // worker.cpp
    void run() noexcept;
    [[nodiscard]] bool quiet() const noexcept;
    [[nodiscard]] nanoseconds longest_sleep() const noexcept;
    void sleep() noexcept;
    [[nodiscard]] bool prepare_sleep() noexcept;
    [[nodiscard]] bool sleep_on_one(nanoseconds until) noexcept;
    [[nodiscard]] bool sleep_on_all(nanoseconds until) noexcept;
    void run_commands() noexcept;
    void add_session(std::unique_ptr<session> made) noexcept;
    void lose(session& which, status why) noexcept;
    [[nodiscard]] static status end_of(session& stopped) noexcept;
    void close_all() noexcept;

    std::shared_ptr<context_state> context_;
    server_options options_;
    session_observer* observer_ = nullptr;
    std::vector<std::unique_ptr<event_source>> sources_;
    const std::shared_ptr<stop_notifier> stops_ = std::make_shared<stop_notifier>();
    session_table sessions_;
    session_commands commands_;

    // The data path.
    alignas(64) std::atomic<std::uintptr_t> round_{0};  ///< `this_thread` of the one that runs the round
    ticking_clock clock_;
    handler service_;
    target_table targets_;
    std::unique_ptr<staged_exchanges> staging_;
    std::vector<exchange_state*> waiting_;  ///< answers and parts that the link did not take yet
    nanoseconds polled_at_{};               ///< when the events were taken
    nanoseconds now_{};
    std::atomic<std::uint32_t> open_{0};        ///< admitted and not yet answered; written by the worker only
    std::atomic<std::uint32_t> held_parts_{0};  ///< of requests, by handlers
    std::atomic<std::uint32_t> max_open_;
    std::atomic<std::uint64_t> references_{1};
    bool leaving_ = false;  ///< sessions are about to be closed, which answers every request
    worker_counters counters_;
    std::unique_ptr<server_metrics> metrics_;
    alignas(64) std::atomic<exchange_state*> posted_{nullptr};  ///< by other threads: answers and parts, newest first

    alignas(64) std::array<link_event, 32> events_;  ///< of the poll under way
    spinner spinner_;
    wake_signal wake_;
    process_stamp stamp_;
    std::thread thread_;
    std::atomic<pid_t> thread_id_{0};
    std::atomic<bool> stopping_{false};
    std::atomic<bool> ended_{false};  ///< the thread, which has written the next
    thread_times last_times_;
    std::unique_ptr<event_set> wakeups_;        ///< of the application's own loop
    std::atomic<std::uintptr_t> driven_by_{0};  ///< … `this_thread` of the one that was there last
    bool armed_ = false;                        ///< … which may sleep
    alignas(64) std::atomic<bool> asleep_{false};
};

/// Made by the parent of this process, which answers it.
[[nodiscard]] inline bool is_inherited(const exchange_state& state) noexcept {
    return state.owner->owner().inherited();
}

}  // namespace accel::core
