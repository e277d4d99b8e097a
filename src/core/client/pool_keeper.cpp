// SPDX-License-Identifier: Apache-2.0
#include "core/client/named_servers.hpp"
#include "core/client/pool_state.hpp"
#include "core/guarded.hpp"
#include "core/log.hpp"
#include "core/thread.hpp"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

/// A pool's thread: names, and hosts that are left out.
namespace accel::core {
namespace {

/// How often a name is resolved after failures.
constexpr nanoseconds shortest_refresh = std::chrono::seconds{1};
constexpr nanoseconds longest_keeper_sleep = std::chrono::hours{1};

}  // namespace

/// Starts the keeper where it is missing. Without a thread, no host is put off, and names are resolved when all fail.
void pool_state::wake_keeper() noexcept {
    const auto started = guarded([this]() -> result<void> {
        const std::lock_guard lock(mutex_);
        const bool is_needed = hosts_.by_name() || hosts_.next_due() != never;
        if (!is_needed || closing_.load() || keeper_.joinable()) return {};
        keeper_ = start_thread("accel-pool", [this, stopped = stop_.get_token()] { keep(stopped); });
        return {};
    });
    changed_.notify_all();
    if (started) return;
    const std::lock_guard lock(mutex_);
    for (const auto& each : hosts_.all()) each->out = each->limited = false;
}

void pool_state::keep(const std::stop_token& stopped) {
    while (!stopped.stop_requested()) {
        const auto done = guarded([&]() -> result<void> {
            keep_once();
            return {};
        });
        if (!done) std::this_thread::sleep_for(pause_without_memory);
    }
}

/// Sleeps until there is something to do, and does it.
void pool_state::keep_once() {
    bool looks_up = false;
    {
        std::unique_lock lock(mutex_);
        const auto next = [this] { return std::min(next_lookup(), hosts_.next_due()); };
        for (nanoseconds until = next(); now() < until; until = next()) {
            if (closing_.load()) return;
            changed_.wait_for(lock, std::min(until - now(), longest_keeper_sleep));
        }
        looks_up = now() >= next_lookup();
    }
    if (looks_up) resolve_hosts(deadline_after(connect_timeout_));
    std::shared_ptr<pool_host> due;
    {
        const std::lock_guard lock(mutex_);
        due = hosts_.due(now());
    }
    publish_hosts();
    if (due == nullptr) return;
    try_again(due);
    publish_hosts();
}

/// An ejected host has channels, mostly: then it has been away for long enough. Else this connects, for a row that
/// wants a channel there, one after the other.
void pool_state::try_again(const std::shared_ptr<pool_host>& host) {
    drop_lost([&](const pool_seat& each) { return each.host == host; });
    std::size_t row = 0;
    {
        const std::lock_guard lock(mutex_);
        if (closing_.load() || !host->put_off() || host->due > now()) return;
        const auto seat = wanting(*host);
        if (has_channels(*host) && (host->out || seat == nullptr))
            return hosts_.answered(*host, seat != nullptr, now());
        if (seat != nullptr) row = seat->row;
    }
    auto made = try_hosts({host}, false);
    if (!made) return;
    const std::lock_guard lock(mutex_);
    if (!closing_.load()) (void)put(*made, row);
}

/// After a failure soon, else after `dns_refresh`. The first lookup is that of the thread that connects first.
nanoseconds pool_state::next_lookup() const noexcept {
    if (!hosts_.by_name() || resolved_at_ == nanoseconds{}) return never;
    const bool soon = failed_at_ >= listed_at_;
    const nanoseconds pause = soon ? std::min(limits_.dns_refresh, shortest_refresh) : limits_.dns_refresh;
    return pause >= never - resolved_at_ ? never : resolved_at_ + pause;
}

/// Several threads may do this; the last lookup counts. A name that cannot be resolved is looked up again soon.
void pool_state::resolve_hosts(nanoseconds deadline) {
    const nanoseconds start = now();
    {
        const std::lock_guard lock(mutex_);
        resolved_at_ = start;
    }
    const std::vector<uri> found = resolve_names(hosts_.named(), deadline, stop_.get_token());
    const std::lock_guard lock(mutex_);
    if (start < listed_at_) return;
    const bool changed = hosts_.list(found, now());
    const bool complete = std::ranges::none_of(found, &uri::dns);
    if (complete)
        listed_at_ = start;
    else
        failed_at_ = now();
    if (changed || !complete) changed_.notify_all();
    if (!changed) return;
    limited_log(hosts_.named().front().host)
        .info("{} has {} servers now", hosts_.named().front().text(), hosts_.count_listed());
}

/// Threads use a name's new hosts once one of them answers. Channels to hosts that it has lost close after their last
/// calls.
void pool_state::publish_hosts() {
    std::vector<channel_ptr> dropped;  // closed after the lock
    const std::lock_guard lock(mutex_);
    if (!hosts_.publish()) return;
    const std::size_t most = seats_for_each_host();
    for (const auto& each : seats_) {
        each->given_up = !each->host->used || each->row >= most;
        if (!each->given_up || each->channel() == nullptr) continue;
        dropped.push_back(each->channel());
        empty(*each);
        if (!each->wants) ++counted_.moved;
    }
    std::erase_if(seats_, [](const auto& each) { return each->given_up; });
    version_.fetch_add(1, std::memory_order_release);
}

}  // namespace accel::core
