// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mutex>
#include <thread>
#include <vector>

#include <infiniband/verbs.h>

namespace accel::verbs {

/// Told by a device of what has no completion. On the thread of `async_events`.
class async_listener {
  public:
    virtual ~async_listener() = default;
    virtual void on_async_event(ibv_event_type type) noexcept = 0;
};

/// Hears the asynchronous events of one device on a thread of its own, which sleeps. Events of a queue pair or
/// completion queue go to the `async_listener` that its creator gave as its context (or null). libibverbs does not
/// destroy an object before its events are acknowledged, so the listener has to outlive the object only.
class async_events {
  public:
    explicit async_events(ibv_context& context);
    ~async_events();
    async_events(const async_events&) = delete;
    async_events& operator=(const async_events&) = delete;

    /// Why nobody is told of anything, as errno: there was no descriptor to end its thread by. 0: it works.
    [[nodiscard]] int failure() const noexcept { return thread_.joinable() ? 0 : -stop_fd_; }
    /// Is told when the whole device has failed, too.
    void subscribe(async_listener& listener);
    void unsubscribe(async_listener& listener) noexcept;

  private:
    void run() noexcept;
    void dispatch(const ibv_async_event& event) noexcept;

    ibv_context& context_;
    int stop_fd_;
    std::mutex mutex_;
    std::vector<async_listener*> subscribers_;
    std::thread thread_;
};

}  // namespace accel::verbs
