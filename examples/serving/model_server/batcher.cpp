// SPDX-License-Identifier: Apache-2.0
#include "serving/model_server/batcher.hpp"

#include <algorithm>
#include <utility>

namespace accel::examples::serving {
namespace {

using std::chrono::nanoseconds;
using std::chrono::steady_clock;

/// A deadline that is farther away is none: sums with it must not overflow.
constexpr nanoseconds far_away = std::chrono::hours{24};

steady_clock::time_point end_of(const exchange& request, steady_clock::time_point now) {
    return now + std::min(request.time_left(), far_away);
}

}  // namespace

steady_clock::time_point leaving_time(steady_clock::time_point arrived, steady_clock::time_point gives_up,
                                      nanoseconds longest_wait, nanoseconds work) noexcept {
    constexpr nanoseconds min_spare = std::chrono::milliseconds{1};
    const nanoseconds needed =
        work == nanoseconds::zero() ? (gives_up - arrived) / 2 : work + std::max(work / 4, min_spare);
    return std::min(arrived + longest_wait, gives_up - needed);
}

batcher::batcher(const batch_limits& limits, work does) : limits_(limits), does_(std::move(does)) {
    ring_.resize(std::max(limits.waiting, limits.most));
    for (std::uint32_t i = 0; i < limits.threads; ++i) threads_.emplace_back([this, i] { run(i); });
}

batcher::~batcher() {
    stop();
}

void batcher::put(exchange request, const request_form& form) noexcept {
    const auto now = steady_clock::now();
    const auto gives_up = end_of(request, now);
    {
        const std::lock_guard lock(mutex_);
        if (!stopping_ && count_ < ring_.size()) {
            ring_[(first_ + count_) % ring_.size()].emplace(batch_member{std::move(request), form, now, gives_up});
            ++count_;
            changed_.notify_one();
            return;
        }
        ++seen_.refused;
    }
    (void)request.fail(status::overloaded, 0, "too many requests wait for this model: try again later");
}

void batcher::stop() noexcept {
    {
        const std::lock_guard lock(mutex_);
        stopping_ = true;
    }
    changed_.notify_all();
    for (std::thread& each : threads_) each.join();
    threads_.clear();
}

batch_statistics batcher::statistics() const {
    const std::lock_guard lock(mutex_);
    return seen_;
}

void batcher::run(std::uint32_t index) noexcept {
    std::vector<batch_member> batch;
    batch.reserve(limits_.most);
    while (collect(batch)) {
        const std::size_t given_up = leave_out(batch);
        const auto start = steady_clock::now();
        if (!batch.empty()) does_(index, batch);
        note(steady_clock::now() - start, batch.size(), given_up);
        batch.clear();
    }
}

/// Waits for a batch. False: there will be none.
bool batcher::collect(std::vector<batch_member>& into) noexcept {
    std::unique_lock lock(mutex_);
    while (true) {
        changed_.wait(lock, [this] { return count_ > 0 || stopping_; });
        if (count_ == 0) return false;
        const auto until = leaves_at();
        if (count_ >= limits_.most || stopping_ || steady_clock::now() >= until) break;
        // Woken for each arrival, because a new request may be less patient.
        (void)changed_.wait_until(lock, until);
    }
    take(into);
    if (count_ > 0) changed_.notify_one();
    return true;
}

batcher::time_point batcher::leaves_at() const noexcept {
    time_point gives_up = time_point::max();
    const std::size_t members = std::min(count_, limits_.most);
    for (std::size_t i = 0; i < members; ++i)
        gives_up = std::min(gives_up, ring_[(first_ + i) % ring_.size()]->gives_up);
    return leaving_time(ring_[first_]->arrived, gives_up, limits_.longest_wait, usual_work_);
}

void batcher::take(std::vector<batch_member>& into) noexcept {
    for (std::size_t members = std::min(count_, limits_.most); members > 0; --members) {
        into.push_back(std::move(*ring_[first_]));
        ring_[first_].reset();
        first_ = (first_ + 1) % ring_.size();
        --count_;
    }
}

/// Ends the members that nobody waits for; says how many those were. The others keep their order.
std::size_t batcher::leave_out(std::vector<batch_member>& batch) noexcept {
    const auto gone = [](batch_member& each) {
        if (!each.request.cancelled()) return false;
        const bool late = each.request.time_left() == nanoseconds::zero();
        (void)each.request.fail(late ? status::timed_out : status::cancelled);
        return true;
    };
    return std::erase_if(batch, gone);
}

/// The longest batch is forgotten slowly, so that one slow batch does not make all others small for long.
void batcher::note(nanoseconds took, std::size_t requests, std::size_t given_up) noexcept {
    const std::lock_guard lock(mutex_);
    seen_.given_up += given_up;
    if (requests == 0) return;
    ++seen_.batches;
    seen_.requests += requests;
    usual_work_ = std::max(took, usual_work_ - usual_work_ / 8);
}

}  // namespace accel::examples::serving
