// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/internals.hpp"
#include "core/metrics/server_metrics.hpp"
#include "core/server/answer_inbox.hpp"
#include "core/server/exchange_state.hpp"
#include "core/server/session.hpp"
#include "core/server/target_table.hpp"
#include "core/this_thread.hpp"

#include <accel_transport/server.hpp>

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace accel::core {

class gpu_exchanges;

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

/// The data path of a worker: from an arrived request, through the handler, to the answer that the link
/// takes. Belongs to the worker's thread, except where marked.
class exchange_server {
  public:
    /// `service` serves requests without a target; not empty.
    exchange_server(worker& owner, const server_options& options, handler service, target_table targets);
    ~exchange_server();
    exchange_server(const exchange_server&) = delete;
    exchange_server& operator=(const exchange_server&) = delete;

    /// While one lives, the current thread runs the worker's round, and answers leave at once.
    class round_scope {
      public:
        explicit round_scope(exchange_server& own) noexcept
            : own_(own), outer_(own.round_.load(std::memory_order_relaxed)) {
            own.round_.store(this_thread(), std::memory_order_relaxed);
        }
        ~round_scope() { own_.round_.store(outer_, std::memory_order_release); }
        round_scope(const round_scope&) = delete;
        round_scope& operator=(const round_scope&) = delete;

      private:
        exchange_server& own_;
        std::uintptr_t outer_;
    };

    /// Events have been taken from a poller.
    void begin_round() noexcept { now_ = polled_at_ = clock_.now(); }
    /// A request has arrived. False: its client broke the protocol.
    [[nodiscard]] bool on_request(session& from, const link_event& event) noexcept;
    /// Gives the handler its exchange.
    void serve(exchange_state& request, const handler& service) noexcept;
    /// Hands an answer to its link.
    void send(exchange_state& answered) noexcept;
    void refuse(exchange_state& request, status why) noexcept;
    /// Hands a part to its link, or room for one that is given back.
    void send_part(exchange_state& part) noexcept;
    void refuse_late_or_too_many(exchange_state& request, bool too_many) noexcept;
    /// Before a round: answers of other threads leave without waiting for it. True: there were some.
    [[nodiscard]] bool send_posted_first() noexcept {
        if (inbox_.empty()) [[likely]]
            return false;
        send_posted();
        return true;
    }
    /// Continues unfinished work after a round of so many events. True: there was some.
    [[nodiscard]] bool progress(std::size_t events) noexcept {
        if (inbox_.empty() && waiting_.empty() && gpu_ == nullptr) [[likely]]
            return false;
        return follow_up(events);
    }

    /// Any thread: an exchange has been answered. Its answer is sent, or goes nowhere (`peer_lost`). Ends the
    /// caller's reference. `invalid_state`: the exchange belongs to this process's parent.
    static status answer(exchange_state& answered) noexcept;
    /// The same for one that is dropped while an exception leaves the code that had it: if that is a handler of this
    /// thread's round, the answer says later what was thrown. False: it is another's, and nothing was done.
    [[nodiscard]] static bool abandon_later(exchange_state& dropped) noexcept;
    /// The answer says why, as far as there is room.
    static void write_failure(exchange_state& answered, std::string_view text) noexcept;
    /// Any thread: true while one runs the worker's round.
    [[nodiscard]] bool in_round() const noexcept { return round_.load(std::memory_order_acquire) != 0; }
    /// True: the caller is a handler of this server.
    [[nodiscard]] bool runs_here() const noexcept { return round_.load(std::memory_order_relaxed) == this_thread(); }
    /// The thread that has the exchange: sends a part of its response.
    static status post_part(exchange_state& part) noexcept;
    /// Ends the process: an exchange was used after its answer.
    [[noreturn]] static void misuse() noexcept;

    /// Any thread. References to the worker: one of the server, one of each exchange handed out.
    void hold() noexcept { references_.fetch_add(1, std::memory_order_relaxed); }
    /// True: it was the last one.
    [[nodiscard]] bool release_ref() noexcept { return references_.fetch_sub(1, std::memory_order_acq_rel) == 1; }

    /// Any thread: requests are refused with `closed` from the worker's next round on.
    void refuse_requests() noexcept { max_open_.store(0, std::memory_order_relaxed); }
    /// Any thread: no exchange was held by a handler and no answer waited to be sent; one may begin at this moment.
    [[nodiscard]] bool drained() const noexcept { return open_.load(std::memory_order_acquire) == 0; }
    [[nodiscard]] std::uint32_t open() const noexcept { return open_.load(std::memory_order_relaxed); }
    /// Before the first request: counts for `context::metrics` from now on.
    void count_calls() { metrics_ = std::make_unique<server_metrics>(targets_.numbers()); }
    /// Null: they are not counted.
    [[nodiscard]] server_metrics* metrics() const noexcept { return metrics_.get(); }
    [[nodiscard]] const worker_counters& counters() const noexcept { return counters_; }
    /// Handlers want their bytes on a GPU. Before the first request.
    void use(std::unique_ptr<gpu_exchanges> gpu) noexcept;
    /// Null: handlers want their bytes on the host.
    [[nodiscard]] gpu_exchanges* gpu() const noexcept { return gpu_.get(); }
    /// Sessions have so many slots in all.
    void reserve(std::size_t slots) { waiting_.reserve(2 * slots); }  // a retry queues before it is erased
    /// Sessions are about to be closed, which answers every request.
    void leave() noexcept { leaving_ = true; }
    /// True: answers wait that the link did not take yet.
    [[nodiscard]] bool waits() const noexcept { return !waiting_.empty(); }
    /// Before sleeping. True: no answer of another thread waits.
    [[nodiscard]] bool quiet() const noexcept { return inbox_.empty(std::memory_order_seq_cst); }
    /// When the last request arrived or the last answer left.
    [[nodiscard]] nanoseconds last_time() const noexcept { return now_; }
    nanoseconds take_time() noexcept { return now_ = clock_.now(); }

  private:
    [[nodiscard]] bool on_unusual_request(session& from, const link_event& event) noexcept;
    void start(exchange_state& request, std::uint32_t target) noexcept;
    void send_again(exchange_state& answered) noexcept;
    void serve_on_gpu(exchange_state& request, const handler& service) noexcept;
    [[nodiscard]] const handler* find_target(exchange_state& request, std::uint32_t number) const noexcept;
    void refuse_at_once(exchange_state& request, std::uint32_t target, bool too_many) noexcept;
    void serve_target(exchange_state& request, std::uint32_t number) noexcept;
    void ignore(exchange_state& request) noexcept;
    void on_exception(const exchange_state& request) noexcept;
    void answer_thrown(const exchange_state& request, std::string_view text) noexcept;
    void end_answer(exchange_state& answered, status sent) noexcept;
    void count_answer(exchange_state& answered) const noexcept;
    void count_apart(exchange_state& answered) const noexcept;
    void count_lost(exchange_state& answered) const noexcept;
    static void count_part(exchange_state& part, status sent) noexcept;
    [[nodiscard]] status answer_otherwise(exchange_state& answered) noexcept;
    void send_to(session& to, exchange_state& answered) noexcept;
    void send_nowhere(exchange_state& answered) noexcept;
    bool follow_up(std::size_t events) noexcept;
    void send_posted() noexcept;
    void send_waiting() noexcept;
    void close_one() noexcept { open_.store(open_.load(std::memory_order_relaxed) - 1, std::memory_order_release); }

    std::atomic<std::uintptr_t> round_{0};  ///< `this_thread` of the one that runs the worker's round
    ticking_clock clock_;
    worker& owner_;
    handler service_;
    target_table targets_;
    std::unique_ptr<gpu_exchanges> gpu_;
    std::vector<exchange_state*> waiting_;
    nanoseconds polled_at_{};  ///< when the events were taken
    nanoseconds now_{};
    std::atomic<std::uint32_t> open_{0};  ///< admitted and not yet answered; written by the worker only
    std::atomic<std::uint32_t> max_open_;
    std::atomic<std::uint64_t> references_{1};
    bool leaving_ = false;
    worker_counters counters_;
    std::unique_ptr<server_metrics> metrics_;
    answer_inbox inbox_;
};

// On every request's way. Inlined, with `session`, into the worker's round.

[[gnu::always_inline]] inline bool exchange_server::on_request(session& from, const link_event& event) noexcept {
    exchange_state* admitted = from.admit(event);
    if (admitted == nullptr) [[unlikely]]
        return on_unusual_request(from, event);
    start(*admitted, event.header.target);
    return true;
}

[[gnu::always_inline]] inline void exchange_server::start(exchange_state& request, std::uint32_t target) noexcept {
    const std::uint32_t open = open_.load(std::memory_order_relaxed) + 1;
    open_.store(open, std::memory_order_relaxed);
    const nanoseconds at = now_;
    request.arrival = polled_at_;
    request.handler_start = at;
    const bool too_many = open > max_open_.load(std::memory_order_relaxed);
    if (too_many || request.deadline <= at) [[unlikely]]
        refuse_at_once(request, target, too_many);
    else if (target != 0) [[unlikely]]
        serve_target(request, target);
    else if (request.device != nullptr) [[unlikely]]
        serve_on_gpu(request, service_);
    else
        serve(request, service_);
}

[[gnu::always_inline]] inline void exchange_server::serve(exchange_state& request, const handler& service) noexcept {
    counters_.requests.add();
    hold();
    const nanoseconds before = now_;
    if (!service) __builtin_unreachable();  // `server_core::listen` has looked; spares a look at each request
    try {
        service(internals::make_exchange(&request));
    } catch (...) {
        on_exception(request);
    }
    if (now_ == before) now_ = clock_.now();  // else `send` has just read it
}

}  // namespace accel::core
