// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/event_set.hpp"
#include "core/event_signal.hpp"
#include "core/fork_guard.hpp"
#include "core/poller.hpp"
#include "core/server/exchange_server.hpp"
#include "core/server/session_commands.hpp"
#include "core/server/session_table.hpp"
#include "core/thread_times.hpp"

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include <sys/types.h>

namespace accel::core {

class context_state;

/// One thread of a server, with its sessions and their event sources. `exchange_server` handles the requests.
/// Lives until the server and every exchange handed out have released it.
class worker {
  public:
    worker(std::shared_ptr<context_state> context, const server_options& options, handler service,
           target_table targets = {});
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
    [[nodiscard]] bool drained() const noexcept { return !commands_.pending() && exchanges_.drained(); }
    /// Closes all sessions, waits for the thread. The observer is not called any more afterwards.
    void stop();
    /// The id of this worker's own thread; 0 where the application drives it.
    [[nodiscard]] pid_t thread_id() const noexcept { return thread_id_.load(std::memory_order_relaxed); }
    /// Processor time of that thread, also after its end: never less than before.
    [[nodiscard]] thread_times times() const;
    [[nodiscard]] exchange_server& exchanges() noexcept { return exchanges_; }
    [[nodiscard]] const exchange_server& exchanges() const noexcept { return exchanges_; }
    /// Stops the work of its exchanges.
    [[nodiscard]] const std::shared_ptr<stop_notifier>& stops() const noexcept { return stops_; }
    /// Ends the thread's sleep.
    void wake() noexcept;
    /// Ends one reference (`exchange_server::hold`).
    void release_ref() noexcept {
        if (exchanges_.release_ref()) delete this;
    }

    // On the worker's thread.
    /// One round over everything; returns how many events there were.
    std::size_t progress() noexcept;
    void lose(session& which, status why) noexcept;

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

    void on_event(const link_event& event) noexcept;
    void serve_event(session& from, const link_event& event) noexcept;
    void on_unusual_event(session& from, const link_event& event) noexcept;
    void run() noexcept;
    [[nodiscard]] bool quiet() const noexcept;
    [[nodiscard]] nanoseconds longest_sleep() const noexcept;
    void sleep() noexcept;
    [[nodiscard]] bool prepare_sleep() noexcept;
    [[nodiscard]] bool sleep_on_one(nanoseconds until) noexcept;
    [[nodiscard]] bool sleep_on_all(nanoseconds until) noexcept;
    void run_commands() noexcept;
    void add_session(std::unique_ptr<session> made) noexcept;
    [[nodiscard]] static status end_of(session& stopped) noexcept;
    void close_all() noexcept;

    std::shared_ptr<context_state> context_;
    server_options options_;
    session_observer* observer_ = nullptr;
    std::vector<std::unique_ptr<event_source>> sources_;
    const std::shared_ptr<stop_notifier> stops_ = std::make_shared<stop_notifier>();
    session_table sessions_;
    session_commands commands_;
    exchange_server exchanges_;
    std::array<link_event, 32> events_;  ///< of the poll under way
    spinner spinner_;
    wake_signal wake_;
    process_stamp stamp_;
    std::thread thread_;
    std::atomic<pid_t> thread_id_{0};
    std::atomic<bool> stopping_{false};
    std::atomic<bool> ended_{false};  ///< the thread, which has written the next
    thread_times last_times_;
    std::unique_ptr<event_set> wakeups_;  ///< of the application's own loop
    bool armed_ = false;                  ///< … which may sleep
    alignas(64) std::atomic<bool> asleep_{false};
};

}  // namespace accel::core
