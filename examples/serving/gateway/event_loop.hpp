// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/gateway/forwarder.hpp"
#include "serving/gateway/opener.hpp"
#include "serving/gateway/settings.hpp"

#include <array>
#include <chrono>
#include <cstddef>
#include <functional>
#include <list>
#include <vector>

namespace accel::examples::gateway {

/// The gateway's one thread: serves requests, takes completions, and sleeps when there is nothing of both.
class event_loop {
  public:
    event_loop(forwarder& passing, std::vector<route>& routes, std::list<upstream>& servers, opener& opening,
               const settings& chosen);
    ~event_loop();
    event_loop(const event_loop&) = delete;
    event_loop& operator=(const event_loop&) = delete;

    /// Takes the servers that were reached by now, and those that names do not have any more.
    void take_changes();
    /// Until SIGINT or SIGTERM; calls `on_hangup` at each SIGHUP. The process has blocked all three.
    void run(server& front, const std::function<void()>& on_hangup);
    /// Goes on until no request is under way, or `patience` has passed.
    void drain(server& front, std::chrono::nanoseconds patience);

  private:
    using clock = std::chrono::steady_clock;

    [[nodiscard]] std::size_t round(server& front) noexcept;
    [[nodiscard]] std::size_t poll(line& one) noexcept;
    bool look_after(clock::time_point now);
    [[nodiscard]] upstream& join(const opener::change& one);
    void let_leave();
    void look_for_missed();
    [[nodiscard]] bool arm(server& front) noexcept;
    void sleep(const std::function<void()>& on_hangup);
    void take_signals(const std::function<void()>& on_hangup);
    void add(int fd, void* what) const noexcept;

    forwarder& passing_;
    std::vector<route>& routes_;
    std::list<upstream>& servers_;
    opener& opening_;
    const settings& chosen_;
    int epoll_;
    int signals_;
    std::array<completion, 32> done_;  ///< of the poll at hand; kept, because clearing it costs more than the poll
    bool stopping_ = false;
    bool slept_ = false;        ///< since the last round
    bool missed_ = false;       ///< a server of a name is
    std::size_t unlisted_ = 0;  ///< servers that their names do not have any more
    clock::time_point looked_;  ///< after requests that wait or were cancelled
};

}  // namespace accel::examples::gateway
