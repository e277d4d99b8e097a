// SPDX-License-Identifier: Apache-2.0
#include "kernels/proxy/proxy.hpp"

#include <algorithm>

/// One round of the proxy's thread.
namespace accel::gpu {
namespace {

constexpr unsigned known_flags = mlx5::flag_solicited | mlx5::flag_signalled | mlx5::flag_fence;

}  // namespace

bool proxy_engine::progress() noexcept {
    if (abandoned()) return false;
    const std::uint32_t before = rounds_.load(std::memory_order_relaxed);
    rounds_.store(before + 1, std::memory_order_seq_cst);
    bool any = commands_pending_.load(std::memory_order_seq_cst);
    if (any) take_commands();
    any = take_completions() || any;
    any = post_all() || any;
    if (use_.missing >= use_.at_once && !abandoned()) refill(use_.missing);
    rounds_.store(before + 2, std::memory_order_release);
    return any;
}

// Completions.

proxy_engine::sender* proxy_engine::find(std::uint32_t number) noexcept {
    const auto found = by_number_.find(number);
    return found == by_number_.end() ? nullptr : found->second;
}

std::uint32_t proxy_engine::room() const noexcept {
    return proxy::room(ring_count_, ring_.consumed, reported_);
}

void proxy_engine::tell(const mlx5::completion& what) noexcept {
    proxy::tell(ring_.entries.data(), ring_count_, reported_, what);
    ++reported_;
}

/// Each makes one entry of the ring at most.
bool proxy_engine::take_completions() noexcept {
    if (abandoned()) return false;
    if (unreported_ > 0) report_failures();
    const std::size_t most = std::min<std::size_t>(room(), fetched_.size());
    if (most == 0 || lost_) return false;
    const int got = completions_->poll(std::span{fetched_}.first(most));
    if (abandoned()) return false;
    if (got < 0) {
        lost_ = true;
        fail_all();
        return true;
    }
    for (int i = 0; i < got; ++i) take(fetched_[static_cast<std::size_t>(i)]);
    return got > 0;
}

/// A queue pair may have been added, and its peer have written, since the round began.
void proxy_engine::take(const mlx5::completion& completion) noexcept {
    sender* whose = find(completion.queue_pair);
    if (whose == nullptr && commands_pending_.load(std::memory_order_seq_cst)) {
        take_commands();
        whose = find(completion.queue_pair);
    }
    if (verbs::is_receive(completion)) {
        ++use_.missing;
        if (whose != nullptr) take_received(*whose, completion);
    } else if (whose != nullptr && whose->pair->take_sent(completion)) {
        take_sent(*whose, completion);
    }
}

void proxy_engine::take_sent(sender& from, const mlx5::completion& completion) noexcept {
    const std::uint32_t released = from.ring.first + from.pair->credits().completed();
    mlx5::store_flag(from.ring.released, released);
    const bool failed = verbs::has_failed(completion);
    const bool asked = from.asked_for[(released - 1) & (from.count - 1)];
    const bool first_failure = failed && !from.failed;
    if (!asked && !first_failure) return;
    from.failed = from.failed || failed;
    mlx5::completion out = completion;
    out.queue_pair = from.name;
    out.counter = static_cast<std::uint16_t>(released - 1);
    tell(out);
}

void proxy_engine::take_received(sender& to, const mlx5::completion& completion) noexcept {
    if (verbs::has_failed(completion) || !options_.arrivals) {
        if (to.failed) return;
        to.failed = true;
    }
    mlx5::completion out = completion;
    out.queue_pair = to.name;
    out.counter = 0;
    tell(out);
}

// Failures that no completion of the device tells of.

void proxy_engine::fail(sender& which, proxy::refusal why, std::uint32_t number, std::uint8_t operation) noexcept {
    if (which.failed) return;
    which.failed = true;
    mlx5::completion out;
    out.queue_pair = which.name;
    out.kind = mlx5::entry_kind::request_error;
    out.operation = static_cast<mlx5::opcode>(operation);
    out.counter = static_cast<std::uint16_t>(number);
    out.failure = mlx5::syndrome::local_queue_pair;
    out.vendor_syndrome = static_cast<std::uint8_t>(why);
    which.unreported = out;
    ++unreported_;
}

void proxy_engine::fail_all() noexcept {
    for (const auto& each : senders_) fail(*each, proxy::refusal::lost, each->next, 0);
}

void proxy_engine::report_failures() noexcept {
    for (const auto& each : senders_) {
        if (!each->unreported || room() == 0) continue;
        tell(*each->unreported);
        each->unreported.reset();
        --unreported_;
    }
}

// Posting.

/// A ring that a full round leaves out is the first of the next.
bool proxy_engine::post_all() noexcept {
    const std::size_t count = senders_.size();
    if (first_ >= count) first_ = 0;
    std::size_t at = first_;
    std::uint32_t left = options_.round;
    for (std::size_t i = 0; i < count && left > 0 && !abandoned(); ++i) {
        left -= post_some(*senders_[at], std::min(options_.batch, left));
        at = at + 1 < count ? at + 1 : 0;
    }
    first_ = left > 0 ? first_ + 1 : at;
    return left < options_.round;
}

/// The words of a kernel are trusted no more than a peer's: each is read once, then checked.
std::uint32_t proxy_engine::post_some(sender& from, std::uint32_t most) noexcept {
    const verbs::send_queue_credits& credits = from.pair->credits();
    std::uint32_t unsignalled = credits.unsignalled();
    std::uint32_t count = 0;
    proxy::request next;
    while (!from.failed && count < most && credits.has_room(count + 1)) {
        if (!proxy::read(from.ring.descriptors.data(), from.count, from.next, next)) break;
        if (next.is_answer && !(from.ring.answers != nullptr && complete(*from.ring.answers, from.name, next))) {
            fail(from, proxy::refusal::answer, from.next, 0);
            break;
        }
        if (const proxy::refusal why = check(from, next); why != proxy::refusal::none) {
            fail(from, why, from.next, next.operation);
            break;
        }
        from.asked_for[from.next & (from.count - 1)] = (next.flags & mlx5::flag_signalled) != 0;
        if (++unsignalled >= credits.signal_interval()) next.flags |= mlx5::flag_signalled;
        if ((next.flags & mlx5::flag_signalled) != 0) unsignalled = 0;
        prepare(count, next);
        ++from.next;
        ++count;
    }
    if (count > 0) post_batch(from, count);
    return count;
}

proxy::refusal proxy_engine::check(const sender& from, const proxy::request& what) const noexcept {
    if (what.queue_pair != from.name) return proxy::refusal::queue_pair;
    if (!proxy::is_known(static_cast<mlx5::opcode>(what.operation))) return proxy::refusal::operation;
    if (!what.known_bits_only || (what.flags & ~known_flags) != 0) return proxy::refusal::flags;
    if (what.from.length > device_->port().max_message_bytes) return proxy::refusal::length;
    return proxy::refusal::none;
}

void proxy_engine::prepare(std::uint32_t place, const proxy::request& what) noexcept {
    mlx5::work_request& out = requests_[place];
    ranges_[place] = what.from;
    out.operation = static_cast<mlx5::opcode>(what.operation);
    out.flags = what.flags;
    out.immediate = what.immediate;
    out.remote_address = what.remote_address;
    out.remote_key = what.remote_key;
    out.ranges = 1;
    out.first = &ranges_[place];
}

void proxy_engine::post_batch(sender& from, std::uint32_t count) noexcept {
    const std::uint32_t accepted = from.pair->post(std::span{requests_}.first(count));
    if (accepted == count) return;
    const std::uint32_t number = from.next - (count - accepted);
    fail(from, proxy::refusal::device, number, static_cast<std::uint8_t>(requests_[accepted].operation));
}

// Receives.

void proxy_engine::refill(std::uint32_t receives) noexcept {
    (void)receives_->post(receives, receive_chain_);
    use_.missing = 0;
}

/// A queue pair may be destroyed before its completions are taken. Some drivers drop these completions, so that the
/// receives that they stand for do not come back by themselves.
void proxy_engine::top_up() noexcept {
    if (any_removed_) refill(receives_->depth());
}

}  // namespace accel::gpu
