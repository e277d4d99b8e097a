// SPDX-License-Identifier: Apache-2.0
#include "verbs/proxy_threads.hpp"

#include "core/server/thread_times.hpp"

#include <algorithm>
#include <chrono>
#include <span>
#include <utility>

namespace accel::verbs {
namespace {

/// Rings whose turn takes longer stay where they are.
constexpr std::chrono::milliseconds longest_move{100};

core::nanoseconds time_of(const proxy_thread& which) {
    const core::thread_times used = core::times_of(which.id());
    return used.user + used.kernel;
}
bool serves_fewer(const std::unique_ptr<proxy_thread>& one, const std::unique_ptr<proxy_thread>& other) {
    return one->size() < other->size();
}

}  // namespace

core::nanoseconds proxy_threads::seat::cpu_time() const {
    return by == nullptr ? before : before + std::max(time_of(*by) - since, core::nanoseconds{0});
}

result<void> proxy_threads::add(served_rings& rings, std::uint32_t threads) {
    const std::lock_guard lock(mutex_);
    seats_.push_back({&rings, std::max(threads, 1U)});
    while (threads_.size() < threads_wanted()) {
        auto made = proxy_thread::start(pace_);
        if (made) {
            threads_.push_back(std::move(*made));
            continue;
        }
        if (!threads_.empty()) break;  // fewer threads serve all the same
        seats_.pop_back();
        return made.error();
    }
    (void)move(seats_.back(), least_busy(threads_.size()));
    while (spread()) continue;
    return {};
}

bool proxy_threads::remove(const served_rings& rings, core::nanoseconds bound) noexcept {
    const std::lock_guard lock(mutex_);
    const auto found = std::ranges::find(seats_, &rings, &seat::rings);
    if (found == seats_.end()) return true;
    if (!found->by->remove(rings, bound)) {
        found->leaves = true;
        return false;
    }
    seats_.erase(found);
    end_spare();
    while (spread()) continue;
    return true;
}

core::nanoseconds proxy_threads::cpu_time(const served_rings& rings) const {
    const std::lock_guard lock(mutex_);
    const auto found = std::ranges::find(seats_, &rings, &seat::rings);
    return found == seats_.end() ? core::nanoseconds{} : found->cpu_time();
}

std::size_t proxy_threads::size() const {
    const std::lock_guard lock(mutex_);
    return threads_.size();
}

// Who serves whom.

std::size_t proxy_threads::threads_wanted() const noexcept {
    std::uint32_t most = 0;
    for (const seat& each : seats_) most = std::max(most, each.threads);
    return std::min<std::size_t>(most, seats_.size());
}

/// Of the first threads.
proxy_thread& proxy_threads::least_busy(std::size_t among) const noexcept {
    return **std::ranges::min_element(std::span{threads_}.first(among), serves_fewer);
}

/// False: the thread that has them is stuck, and keeps them.
bool proxy_threads::move(seat& which, proxy_thread& to) noexcept {
    if (which.leaves) return false;
    if (which.by != nullptr && !which.by->remove(*which.rings, longest_move)) {
        which.by->add(*which.rings);
        return false;
    }
    which.before = which.cpu_time();
    which.by = &to;
    which.since = time_of(to);
    to.add(*which.rings);
    return true;
}

/// Moves one service, if a thread serves two more than another. True: it did.
bool proxy_threads::spread() noexcept {
    if (threads_.size() < 2) return false;
    const auto [least, most] = std::ranges::minmax_element(threads_, serves_fewer);
    if ((*most)->size() < (*least)->size() + 2) return false;
    const proxy_thread* const by = most->get();
    const auto one = std::ranges::find_if(seats_, [&](const seat& each) { return each.by == by && !each.leaves; });
    return one != seats_.end() && move(*one, **least);
}

/// Threads beyond those that are wanted end, once the others have taken what they served.
void proxy_threads::end_spare() noexcept {
    while (threads_.size() > threads_wanted()) {
        std::swap(*std::ranges::min_element(threads_, serves_fewer), threads_.back());
        for (seat& each : seats_)
            if (each.by == threads_.back().get() && !move(each, least_busy(threads_.size() - 1))) return;
        threads_.pop_back();
    }
}

}  // namespace accel::verbs
