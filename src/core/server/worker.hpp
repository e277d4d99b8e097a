#pragma once

#include "core/backend.hpp"
#include "core/event_signal.hpp"
#include "core/fork_guard.hpp"
#include "core/server/session.hpp"

#include <accel_transport/server.hpp>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include <sys/types.h>

namespace accel::core {

class context_state;
class stream_pool;
struct stream_lane;

/// Told by a worker what happened to its sessions. Control path; called on the worker's thread.
class session_observer {
  public:
    virtual ~session_observer() = default;
    /// The session takes no more requests; its client, if it lives, has to be told.
    virtual void session_lost(const session& which, status why) noexcept = 0;
    /// Nothing uses the session any more; its memory is about to be freed.
    virtual void session_freed(const session& which) noexcept = 0;
};

/// Counters of one worker; written by its thread, read by any.
struct worker_counters {
    std::atomic<std::uint64_t> requests{0};
    std::atomic<std::uint64_t> replies{0};
    std::atomic<std::uint64_t> expired{0};
    std::atomic<std::uint64_t> overloaded{0};

    void add_to(server_statistics& sum) const noexcept {
        sum.requests += requests.load(std::memory_order_relaxed);
        sum.replies += replies.load(std::memory_order_relaxed);
        sum.expired += expired.load(std::memory_order_relaxed);
        sum.overloaded += overloaded.load(std::memory_order_relaxed);
    }
};

/// One thread of a server with its sessions and pollers. worker.cpp is the data path; worker_control.cpp the
/// rest. Lives until the server and every exchange handed out have let go of it.
class worker {
  public:
    worker(std::shared_ptr<context_state> context, const server_options& options, handler service);
    worker(const worker&) = delete;
    worker& operator=(const worker&) = delete;

    /// Of one worker: one for each URI.
    static constexpr std::size_t max_pollers = 16;

    // Control path, before start().
    void add_poller(std::unique_ptr<poller> source) { pollers_.push_back(std::move(source)); }
    [[nodiscard]] poller& poller_at(std::size_t index) noexcept { return *pollers_[index]; }
    void observe(session_observer* observer) noexcept { observer_ = observer; }
    /// Handlers want their bytes on this device.
    [[nodiscard]] result<void> use(accelerator_device& device);
    void start();

    // Control path, any thread.
    /// True in a child of the process that made it, which does not have its thread.
    [[nodiscard]] bool inherited() const noexcept { return stamp_.inherited(); }
    void install(std::unique_ptr<session> made);
    void close_session(std::uint64_t id, status why);
    /// From now on requests are refused with `overloaded`.
    void refuse_requests() noexcept { most_open_.store(0, std::memory_order_relaxed); }
    /// No exchange is held by a handler and no answer waits to be sent.
    [[nodiscard]] bool drained() const noexcept { return open_.load(std::memory_order_acquire) == 0; }
    /// Closes all sessions, waits for the thread. The observer is not called any more afterwards.
    void stop();
    [[nodiscard]] const worker_counters& counters() const noexcept { return counters_; }
    /// Of this worker's own thread; 0 where the application drives it.
    [[nodiscard]] pid_t thread_id() const noexcept { return thread_id_.load(std::memory_order_relaxed); }
    /// Null: handlers want their bytes on the host. Its control path is any thread's.
    [[nodiscard]] stream_pool* streams() const noexcept { return streams_.get(); }

    // Data path.
    /// One round over everything; returns how many events there were. On the worker's thread.
    std::size_t turn() noexcept;
    /// An exchange has been answered, on any thread: its answer travels, or goes nowhere (`peer_lost`). Ends
    /// the caller's hold on it. `invalid_state`: it is the parent's of this process.
    static status answer(exchange_state& answered) noexcept;
    /// Ends the process: an exchange was used after its answer.
    [[noreturn]] static void misuse() noexcept;

    /// References: one of the server, one of each exchange handed out.
    void hold() noexcept { holds_.fetch_add(1, std::memory_order_relaxed); }
    void let_go() noexcept {
        if (holds_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
    }

  private:
    ~worker();

    // Data path, in order.
    void on_event(const link_event& event) noexcept;
    void on_request(session& from, const link_event& event) noexcept;
    void refuse(exchange_state& exchange, status why) noexcept;
    void refuse_late_or_too_many(exchange_state& exchange, bool too_many) noexcept;
    [[nodiscard]] bool hand_over(exchange_state& answered) noexcept;
    void ignore(exchange_state& request) noexcept;
    void send_answer(exchange_state& answered) noexcept;
    void end_answer(exchange_state& answered, status sent) noexcept;
    void take_posted() noexcept;
    void retry_waiting() noexcept;
    void serve(exchange_state& request) noexcept;

    // The data path over a GPU.
    void on_device_request(exchange_state& request) noexcept;
    void work_on(exchange_state& request, stream_lane& lane) noexcept;
    void brought(stream_lane& lane) noexcept;
    void depart(exchange_state& answered) noexcept;
    void finish(stream_lane& lane) noexcept;
    [[nodiscard]] bool feed(stream_lane& lane) noexcept;
    [[nodiscard]] bool poll_streams() noexcept;
    void send_settled(exchange_state& answered) noexcept;
    void arrive(stream_lane& lane, bool done) noexcept;
    void expire_waiting() noexcept;

    // Control path.
    void run() noexcept;
    void sleep() noexcept;
    [[nodiscard]] bool sleep_on_all(nanoseconds until) noexcept;
    void wake() noexcept;
    void run_commands() noexcept;
    void lose(session& which, status why) noexcept;
    void settle_closing() noexcept;
    void close_all(nanoseconds deadline) noexcept;
    void tell_device_lost() noexcept;
    [[nodiscard]] bool flushed() const noexcept;

    std::shared_ptr<context_state> context_;
    server_options options_;
    handler service_;
    session_observer* observer_ = nullptr;
    std::vector<std::unique_ptr<poller>> pollers_;
    std::vector<std::unique_ptr<session>> sessions_;
    std::vector<std::unique_ptr<session>> closing_;
    std::size_t slots_ = 0;                 ///< of all sessions here, the closing ones too
    std::vector<exchange_state*> waiting_;  ///< answers the link would not take yet; room for `slots_` twice
    std::array<link_event, 32> events_;     ///< of the poll under way
    nanoseconds polled_at_{};               ///< when the events were taken
    nanoseconds now_{};
    std::uint64_t answered_ = 0;
    std::atomic<std::uint32_t> open_{0};    ///< admitted and not yet answered; written by the worker only
    std::atomic<std::uint32_t> most_open_;  ///< requests beyond are refused
    worker_counters counters_;
    spinner spinner_;
    int wake_fd_;
    process_stamp stamp_;
    std::unique_ptr<stream_pool> streams_;
    nanoseconds next_expiry_{};  ///< when to look again for requests that have waited too long for a stream
    bool device_lost_told_ = false;
    bool leaving_ = false;  ///< sessions are about to be closed: requests get no answer any more
    std::thread thread_;
    std::atomic<pid_t> thread_id_{0};

    std::atomic<std::uint64_t> holds_{1};
    std::atomic<bool> stopping_{false};
    alignas(64) std::atomic<exchange_state*> posted_{nullptr};
    alignas(64) std::atomic<bool> asleep_{false};

    struct command {
        std::unique_ptr<session> installed;  ///< or null: close `id`
        std::uint64_t id = 0;
        status why = status::ok;
    };
    std::atomic<bool> commands_pending_{false};
    std::mutex commands_mutex_;
    std::vector<command> commands_;
};

}  // namespace accel::core
