// SPDX-License-Identifier: Apache-2.0
#include "kernels/proxy/proxy_threads.hpp"

#include "core/thread_times.hpp"

#include <algorithm>
#include <utility>

namespace accel::gpu {
namespace {

core::nanoseconds time_of(const proxy_thread& which) {
    const core::thread_times used = core::times_of(which.id());
    return used.user + used.kernel;
}

}  // namespace

core::nanoseconds proxy_threads::seat::cpu_time() const {
    return by == nullptr ? before : before + std::max(time_of(*by) - since, core::nanoseconds{0});
}

result<void> proxy_threads::add(served_rings& rings, std::uint32_t threads) {
    const std::lock_guard lock(mutex_);
    seats_.push_back({&rings, std::max(threads, 1U)});
    while (sound_threads() < threads_wanted()) {
        auto made = proxy_thread::start(pace_);
        if (made) {
            threads_.push_back(std::move(*made));
            continue;
        }
        if (sound_threads() > 0) break;  // fewer threads serve all the same
        seats_.pop_back();
        return made.error();
    }
    (void)move(seats_.back(), least_busy());
    while (spread()) continue;
    return {};
}

bool proxy_threads::remove(const served_rings& rings, core::nanoseconds bound) noexcept {
    std::unique_lock lock(mutex_);
    const auto found = std::ranges::find(seats_, &rings, &seat::rings);
    if (found == seats_.end()) return true;
    found->leaves = true;
    proxy_thread& by = *found->by;  // stays for as long as the seat does
    lock.unlock();
    if (!by.remove(rings, bound)) return false;
    lock.lock();
    std::erase_if(seats_, [&](const seat& each) { return each.rings == &rings; });
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

// Services and their threads.

/// Counts the services that stay.
std::size_t proxy_threads::threads_wanted() const noexcept {
    std::uint32_t most = 0;
    std::size_t services = 0;
    for (const seat& each : seats_) {
        if (each.leaves) continue;
        most = std::max(most, each.threads);
        ++services;
    }
    return std::min<std::size_t>(most, services);
}

/// A thread that a service has left is sound again. Until then it may be stuck, and gets no other.
bool proxy_threads::is_sound(const proxy_thread& which) const noexcept {
    return std::ranges::none_of(seats_, [&](const seat& each) { return each.by == &which && each.leaves; });
}

std::size_t proxy_threads::sound_threads() const noexcept {
    return static_cast<std::size_t>(std::ranges::count_if(threads_, [&](const auto& each) { return is_sound(*each); }));
}

/// Among the sound threads.
proxy_thread& proxy_threads::least_busy(const proxy_thread* except) const noexcept {
    proxy_thread* least = nullptr;
    for (const auto& each : threads_) {
        if (each.get() == except || !is_sound(*each)) continue;
        if (least == nullptr || each->size() < least->size()) least = each.get();
    }
    return *least;
}

/// False: the thread that has them is stuck, and keeps them.
bool proxy_threads::move(seat& which, proxy_thread& to) noexcept {
    if (which.by != nullptr && !which.by->remove(*which.rings, longest_move_)) {
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
    if (sound_threads() < 2) return false;
    proxy_thread& least = least_busy();
    for (seat& each : seats_)
        if (is_sound(*each.by) && each.by->size() >= least.size() + 2) return move(each, least);
    return false;
}

/// Threads beyond those that are wanted end, once the others have taken what they served.
void proxy_threads::end_spare() noexcept {
    while (sound_threads() > threads_wanted()) {
        const proxy_thread& spare = least_busy();
        for (seat& each : seats_)
            if (each.by == &spare && !move(each, least_busy(&spare))) return;
        std::erase_if(threads_, [&](const auto& each) { return each.get() == &spare; });
    }
}

}  // namespace accel::gpu
