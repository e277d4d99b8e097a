// SPDX-License-Identifier: Apache-2.0
#include "verbs/proxy.hpp"

#include "core/event_signal.hpp"
#include "core/log.hpp"
#include "core/thread.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

namespace accel::verbs {
namespace {

/// What a device makes of the depth that is asked for may be twice as much, and while queue pairs come and go
/// some receives are posted before the completions of others have been taken.
constexpr std::uint32_t completions_per_receive = 3;

error misused(std::string what) {
    return {status::invalid_argument, 0, "proxy: " + std::move(what)};
}
bool is_ring(std::size_t count) {
    return std::has_single_bit(count) && count >= 2 && count <= proxy::max_entries;
}

}  // namespace

proxy_engine::sender::sender(queue_pair& of, const proxy_send_ring& from)
    : pair(&of),
      number(of.number()),
      name(from.name.value_or(of.number())),
      ring(from),
      count(static_cast<std::uint32_t>(from.descriptors.size())),
      next(from.first),
      asked_for(count) {
    const std::uint32_t depth = std::min(count, of.sizes().send);
    pair->limit_sends(depth, depth / 2);
}

result<std::unique_ptr<proxy_engine>> proxy_engine::create(std::shared_ptr<device> on,
                                                           const proxy_completion_ring& ring,
                                                           const proxy_options& options) {
    if (on->driver() != nullptr) return misused("a device that is not driven directly (direct=false)");
    if (!is_ring(ring.entries.size()) || ring.consumed == nullptr)
        return misused(fmt::format("a ring of 2 to {} completions, a power of two", proxy::max_entries));
    if (options.batch < 1 || options.batch > max_batch)
        return misused(fmt::format("a batch of 1 to {} descriptors", max_batch));
    if (options.receives < 1 || options.sends < 1) return misused("neither receives nor sends may be 0");
    std::unique_ptr<proxy_engine> made(new proxy_engine(std::move(on), ring, options));
    if (auto ready = made->make_queues(); !ready) return ready.error();
    return made;
}

proxy_engine::proxy_engine(std::shared_ptr<device> on, const proxy_completion_ring& ring,
                           const proxy_options& options) noexcept
    : device_(std::move(on)),
      ring_(ring),
      options_(options),
      ring_count_(static_cast<std::uint32_t>(ring.entries.size())),
      wake_fd_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
      reported_(ring.first) {
    device_->events().subscribe(*this);
}

proxy_engine::~proxy_engine() {
    stop();
    device_->events().unsubscribe(*this);
    completions_.reset();
    receives_.reset();
    ::close(wake_fd_);
}

result<void> proxy_engine::make_queues() {
    if (wake_fd_ < 0) return error{status::system_error, errno, "proxy: no event descriptor"};
    auto receives = receive_queue::create(device_, options_.receives);
    if (!receives) return receives.error();
    receives_ = std::move(*receives);
    use_.at_once = std::clamp(receives_->depth() / 4, 1U, receives_at_once);
    const std::uint32_t of_receives = receives_->depth() * completions_per_receive;
    auto completions = completion_queue::create(device_, of_receives + options_.sends, this);
    if (!completions) return completions.error();
    completions_ = std::move(*completions);
    if (completions_->depth() <= of_receives) {
        return error{status::unsupported, 0,
                     fmt::format("proxy: {} has completion queues of {} entries only; ask for fewer receives",
                                 device_->name(), completions_->depth())};
    }
    sends_ = sends_left_ = std::min(completions_->depth() - of_receives, options_.sends);
    proxy::clear(ring_.entries.data(), ring_count_, ring_.first);
    mlx5::store_flag(ring_.consumed, ring_.first);
    refill(receives_->depth());
    return {};
}

// Queue pairs that come and go.

result<void> proxy_engine::check(const queue_pair& pair, const proxy_send_ring& ring) const {
    if (!is_ring(ring.descriptors.size()) || ring.released == nullptr)
        return misused(fmt::format("a ring of 2 to {} descriptors, a power of two", proxy::max_entries));
    if (pair.sizes().send < 2) return misused("the queue pair takes fewer than 2 work requests");
    if (ring.name.value_or(0) >= mlx5::no_queue_pair) return misused("a name has 24 bits, not all of them set");
    if (pair.get()->send_cq != completions() || pair.get()->recv_cq != completions())
        return misused("the queue pair has another completion queue");
    return {};
}

result<void> proxy_engine::add(queue_pair& pair, const proxy_send_ring& ring) {
    if (auto good = check(pair, ring); !good) return good;
    const std::lock_guard lock(mutex_);
    const std::uint32_t share = pair.sizes().send;
    if (device_failed_) return error{status::system_error, 0, "proxy: the device has failed"};
    if (shares_.contains(pair.number())) return misused("the queue pair has been added before");
    if (share > sends_left_) {
        return error{status::overloaded, 0,
                     fmt::format("proxy: the completion queue has room for {} more work requests, not {}; raise the "
                                 "engine's limit of sends",
                                 sends_left_, share)};
    }
    proxy::clear(ring.descriptors.data(), static_cast<std::uint32_t>(ring.descriptors.size()), ring.first);
    mlx5::store_flag(ring.released, ring.first);
    added_.push_back(std::make_unique<sender>(pair, ring));
    shares_.emplace(pair.number(), share);
    sends_left_ -= share;
    wake();
    return {};
}

void proxy_engine::remove(const queue_pair& pair) noexcept {
    {
        const std::lock_guard lock(mutex_);
        const auto share = shares_.find(pair.number());
        if (share == shares_.end()) return;
        sends_left_ += share->second;
        shares_.erase(share);
        const auto is_it = [&](const auto& each) { return each->pair == &pair; };
        if (std::erase_if(added_, is_it) > 0) return;  // the thread has not seen it
        removed_.push_back(pair.number());
        wake();
    }
    wait_for_round();
}

void proxy_engine::wake() noexcept {
    commands_pending_.store(true, std::memory_order_seq_cst);
    core::signal_event(wake_fd_);
}

/// A round that begins now sees pending commands; a round that is under way may not.
void proxy_engine::wait_for_round() const noexcept {
    const std::uint32_t seen = rounds_.load(std::memory_order_seq_cst);
    if (seen % 2 == 0) return;
    core::spinner spinner(poll_mode::adaptive);
    while (rounds_.load(std::memory_order_acquire) == seen) spinner.pause();
}

void proxy_engine::on_async_event(ibv_event_type) noexcept {
    const std::lock_guard lock(mutex_);
    device_failed_ = true;
    wake();
}

void proxy_engine::take_commands() noexcept {
    const std::lock_guard lock(mutex_);
    commands_pending_.store(false, std::memory_order_relaxed);
    for (const std::uint32_t number : removed_) {
        const sender* const gone = find(number);
        if (gone->unreported) --unreported_;
        by_number_.erase(number);
        std::erase_if(senders_, [&](const auto& each) { return each.get() == gone; });
        any_removed_ = true;
    }
    removed_.clear();
    for (std::unique_ptr<sender>& each : added_) {
        by_number_.emplace(each->number, each.get());
        senders_.push_back(std::move(each));
    }
    added_.clear();
    lost_ = lost_ || device_failed_;
    if (lost_) fail_all();
    top_up();
}

// The thread.

result<void> proxy_engine::start() {
    if (thread_.joinable()) return error{status::invalid_state, 0, "proxy: it has been started"};
    stop_.store(false, std::memory_order_relaxed);
    result<void> outcome;
    try {
        thread_ = core::start_thread("accel-proxy", [this] { run(); });
    } catch (const std::system_error& none) {
        outcome = error{status::system_error, none.code().value(), "proxy: no thread could be started"};
    }
    return outcome;
}

void proxy_engine::stop() noexcept {
    if (!thread_.joinable()) return;
    stop_.store(true, std::memory_order_release);
    core::signal_event(wake_fd_);
    thread_.join();
}

void proxy_engine::run() noexcept {
    thread_id_.store(::gettid(), std::memory_order_relaxed);
    ::prctl(PR_SET_TIMERSLACK, 1);  // naps are as long as they say
    core::spinner spinner(poll_mode::adaptive);
    core::nanoseconds quiet_since = core::now();
    while (!stop_.load(std::memory_order_acquire)) {
        if (progress()) {
            spinner.restart();
            quiet_since = core::now();
            continue;
        }
        const core::nanoseconds silence = core::now() - quiet_since;
        if (silence < options_.spin)
            spinner.pause();
        else if (nap(std::clamp(silence / 64, options_.nap, options_.longest_nap)))
            quiet_since = core::now();
    }
}

/// True: there was something to do before it began. What had completed before the queue was armed makes no event.
bool proxy_engine::nap(core::nanoseconds bound) noexcept {
    top_up();
    if (!armed_) {
        armed_ = completions_->request_event();
        if (progress()) return true;
    }
    std::array<pollfd, 2> wake{{{wake_fd_, POLLIN, 0}, {completions_->event_fd(), POLLIN, 0}}};
    core::sleep_on(wake, core::now() + bound);
    if ((wake[0].revents & POLLIN) != 0) core::clear_event(wake_fd_);
    if ((wake[1].revents & POLLIN) != 0) {
        completions_->take_events();
        armed_ = false;
    }
    return false;
}

}  // namespace accel::verbs
