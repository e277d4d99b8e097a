// SPDX-License-Identifier: Apache-2.0
#include "kernels/proxy/proxy.hpp"

#include "core/event_signal.hpp"
#include "core/net/descriptor_error.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <utility>

#include <fmt/format.h>

namespace accel::gpu {
namespace {

/// A device may make the receive queue twice as deep as asked. While queue pairs come and go, some receives are posted
/// before the completions of others have been taken.
constexpr std::uint32_t completions_per_receive = 3;

error misused(std::string what) {
    return {status::invalid_argument, 0, "proxy: " + std::move(what)};
}
bool is_ring(std::size_t count) {
    return std::has_single_bit(count) && count >= 2 && count <= proxy::max_entries;
}

}  // namespace

proxy_engine::sender::sender(verbs::queue_pair& of, const proxy_send_ring& from)
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

result<std::unique_ptr<proxy_engine>> proxy_engine::create(std::shared_ptr<verbs::device> on,
                                                           const proxy_completion_ring& ring,
                                                           const proxy_options& options) {
    if (on->driver() != nullptr) return misused("a device that is not driven directly (direct=false)");
    if (!is_ring(ring.entries.size()) || ring.consumed == nullptr)
        return misused(fmt::format("a ring of 2 to {} completions, a power of two", proxy::max_entries));
    if (options.batch < 1 || options.batch > max_batch)
        return misused(fmt::format("a batch of 1 to {} descriptors", max_batch));
    if (options.receives < 1 || options.sends < 1) return misused("neither receives nor sends may be 0");
    if (options.round < 1) return misused("a round of 1 descriptor or more");
    std::unique_ptr<proxy_engine> made(new proxy_engine(std::move(on), ring, options));
    if (auto ready = made->make_queues(); !ready) return ready.error();
    return made;
}

proxy_engine::proxy_engine(std::shared_ptr<verbs::device> on, const proxy_completion_ring& ring,
                           const proxy_options& options) noexcept
    : device_(std::move(on)),
      ring_(ring),
      options_(options),
      ring_count_(static_cast<std::uint32_t>(ring.entries.size())),
      reported_(ring.first) {
    device_->events().subscribe(*this);
}

proxy_engine::~proxy_engine() {
    (void)stop();
    device_->events().unsubscribe(*this);
    completions_.reset();
    receives_.reset();
}

result<void> proxy_engine::make_queues() {
    if (!wake_.open()) return core::no_descriptor("for the proxy", wake_.failure());
    auto receives = verbs::receive_queue::create(device_, options_.receives);
    if (!receives) return receives.error();
    receives_ = std::move(*receives);
    use_.at_once = std::clamp(receives_->depth() / 4, 1U, receives_at_once);
    const std::uint32_t of_receives = receives_->depth() * completions_per_receive;
    auto completions = verbs::completion_queue::create(device_, of_receives + options_.sends, this);
    if (!completions) return completions.error();
    completions_ = std::move(*completions);
    if (completions_->depth() <= of_receives) {
        return error{status::unsupported, 0,
                     fmt::format("proxy: {} has completion queues of only {} entries; ask for fewer receives",
                                 device_->name(), completions_->depth())};
    }
    sends_ = sends_left_ = std::min(completions_->depth() - of_receives, options_.sends);
    proxy::clear(ring_.entries.data(), ring_count_, ring_.first);
    mlx5::store_flag(ring_.consumed, ring_.first);
    refill(receives_->depth());
    return {};
}

// Queue pairs that come and go.

result<void> proxy_engine::check(const verbs::queue_pair& pair, const proxy_send_ring& ring) const {
    if (!is_ring(ring.descriptors.size()) || ring.released == nullptr)
        return misused(fmt::format("a ring of 2 to {} descriptors, a power of two", proxy::max_entries));
    if (pair.sizes().send < 2) return misused("the queue pair takes fewer than 2 work requests");
    if (ring.name.value_or(0) >= mlx5::no_queue_pair) return misused("a name has 24 bits, not all of them set");
    if (pair.get()->send_cq != completions() || pair.get()->recv_cq != completions())
        return misused("the queue pair has another completion queue");
    return {};
}

result<void> proxy_engine::add(verbs::queue_pair& pair, const proxy_send_ring& ring) {
    if (auto good = check(pair, ring); !good) return good;
    const std::lock_guard lock(mutex_);
    const std::uint32_t share = pair.sizes().send;
    if (device_failed_) return error{status::system_error, 0, "proxy: the device has failed"};
    if (shares_.contains(pair.number())) return misused("the queue pair was added before");
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

bool proxy_engine::remove(const verbs::queue_pair& pair, core::nanoseconds bound) noexcept {
    {
        const std::lock_guard lock(mutex_);
        if (const auto share = shares_.find(pair.number()); share != shares_.end()) {
            sends_left_ += share->second;
            shares_.erase(share);
            const auto is_it = [&](const auto& each) { return each->pair == &pair; };
            if (std::erase_if(added_, is_it) > 0) return true;  // the thread has not seen it
            removed_.push_back(pair.number());
            wake();
        } else if (std::ranges::find(removed_, pair.number()) == removed_.end()) {
            return true;
        }
    }
    return wait_for_round(bound);
}

void proxy_engine::wake() noexcept {
    commands_pending_.store(true, std::memory_order_seq_cst);
    wake_.set();
}

/// A round that begins now sees pending commands; a round that is under way may not.
bool proxy_engine::wait_for_round(core::nanoseconds bound) const noexcept {
    const std::uint32_t seen = rounds_.load(std::memory_order_seq_cst);
    if (seen % 2 == 0) return true;
    const core::nanoseconds deadline = core::deadline_after(bound);
    core::spinner spinner(poll_mode::adaptive);
    while (rounds_.load(std::memory_order_acquire) == seen) {
        if (core::now() >= deadline) return false;
        spinner.pause();
    }
    return true;
}

/// A round takes a part of what may be there.
bool proxy_engine::catch_up(core::nanoseconds bound) noexcept {
    const std::uint32_t begun = rounds_.load(std::memory_order_seq_cst);
    const std::uint32_t rounds = ring_count_ / static_cast<std::uint32_t>(fetched_.size()) + 2;
    const core::nanoseconds deadline = core::deadline_after(bound);
    while (rounds_.load(std::memory_order_acquire) - begun < 2 * rounds) {
        if (core::now() >= deadline) return false;
        wake_.set();
        core::sleep_on({}, core::now() + std::chrono::microseconds{20});
    }
    return true;
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
    if (thread_) return error{status::invalid_state, 0, "proxy: already started"};
    auto made = proxy_thread::start(options_.pace);
    if (!made) return made.error();
    thread_ = std::move(*made);
    thread_->add(*this);
    return {};
}

bool proxy_engine::stop() noexcept {
    if (!thread_) return true;
    if (!thread_->remove(*this)) return false;
    thread_.reset();
    return true;
}

/// A completion from before the queue was armed makes no event. A ring without room has to wait for its taker, which
/// makes none either.
bool proxy_engine::fall_asleep() noexcept {
    if (abandoned()) return true;
    top_up();
    if (armed_ || room() == 0) return true;
    armed_ = completions_->request_event();
    return !progress();
}

void proxy_engine::wake_up(bool news, bool events) noexcept {
    if (news) wake_.clear();
    if (!events) return;
    completions_->take_events();
    armed_ = false;
}

}  // namespace accel::gpu
