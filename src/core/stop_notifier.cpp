// SPDX-License-Identifier: Apache-2.0
#include "core/stop_notifier.hpp"

#include "core/cancel_board.hpp"
#include "core/log.hpp"
#include "core/thread.hpp"

#include <algorithm>
#include <system_error>

#include <poll.h>

namespace accel::core {
namespace {

/// Where no descriptor is left to wake the thread.
constexpr nanoseconds blind_sleep = std::chrono::milliseconds{10};

}  // namespace

std::stop_source stop_notifier::watch(const cancel_board& board, call_id which, nanoseconds deadline) {
    const std::lock_guard lock{mutex_};
    start();
    watched added{std::stop_source{}, which.generation, deadline};
    const auto [place, is_new] = watched_.try_emplace({&board, which.slot}, std::move(added));
    if (is_new && deadline != never) wake();
    return place->second.source;
}

/// Without a thread no token stops; the next call tries again.
void stop_notifier::start() {
    if (!wake_) wake_.emplace();
    if (thread_.joinable() || ending_) return;
    try {
        thread_ = start_thread("accel-stops", [this] { run(); });
    } catch (const std::system_error&) {
        limited_log("stop_token").error("no thread can be started to stop tokens; use cancelled() meanwhile");
    }
}

void stop_notifier::forget(const cancel_board& board, std::uint32_t slot) {
    const std::lock_guard lock{mutex_};
    watched_.erase({&board, slot});
}

void stop_notifier::end() {
    {
        const std::lock_guard lock{mutex_};
        ending_ = true;
        if (wake_) wake();
    }
    if (thread_.joinable()) thread_.join();
}

void stop_notifier::run() noexcept {
    nanoseconds next = never;
    while (stop_some(next)) {
        pollfd woken{wake_->fd(), POLLIN, 0};
        const bool blind = !wake_->open();
        sleep_on({&woken, 1}, blind ? std::min(next, deadline_after(blind_sleep)) : next);
        wake_->clear();
    }
}

/// False: the end has come, and nothing is due. `next`: when it is to be called again. Callbacks run without the lock.
bool stop_notifier::stop_some(nanoseconds& next) noexcept {
    bool ends = false;
    due_stops due;
    {
        const std::lock_guard lock{mutex_};
        take_due(due, next);
        ends = ending_ && !due.back();
    }
    for (auto& each : due)
        if (each) each->request_stop();
    return !ends;
}

void stop_notifier::take_due(due_stops& due, nanoseconds& next) noexcept {
    auto free = due.begin();
    next = never;
    const nanoseconds at = now();
    for (auto& [key, each] : watched_) {
        if (each.told) continue;
        if (free == due.end()) {
            next = at;
            return;
        }
        each.told = each.deadline <= at || key.first->cancelled({key.second, each.generation});
        if (each.told)
            *free++ = each.source;
        else
            next = std::min(next, each.deadline);
    }
}

}  // namespace accel::core
