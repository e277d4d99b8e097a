// SPDX-License-Identifier: Apache-2.0
#include "core/server/part_inbox.hpp"

#include <algorithm>
#include <utility>

namespace accel::core {
namespace {

/// The number of a part lies where a request has its trace id.
std::uint64_t number_of(const exchange_state& part) noexcept {
    return part.trace_id;
}

/// A skew heap, whose nodes have `next` and `other` below them. A sequence of n merges takes n log n steps, in whatever
/// order a client sends.
exchange_state* merge(exchange_state* a, exchange_state* b) noexcept {
    exchange_state* lowest = nullptr;
    exchange_state** at = &lowest;
    while (a != nullptr && b != nullptr) {
        if (number_of(*b) < number_of(*a)) std::swap(a, b);
        *at = a;
        at = &a->next;
        a = std::exchange(a->other, a->next);
    }
    *at = a != nullptr ? a : b;
    return lowest;
}

}  // namespace

void part_inbox::start(std::uint32_t generation) noexcept {
    generation_ = generation;
    expected_ = highest_ = 0;
    count_ = unknown;
    complete_ = false;
}

bool part_inbox::add(exchange_state& part, std::uint64_t number, bool last, std::uint32_t slots) noexcept {
    if (number < expected_ || number - expected_ >= slots || number >= count_) return false;
    if (last && (count_ != unknown || number + 1 < highest_)) return false;
    highest_ = std::max(highest_, number + 1);
    if (last) count_ = number + 1;
    part.trace_id = number;
    part.next = part.other = nullptr;
    if (number != expected_) {
        early_ = merge(early_, &part);
        return true;
    }
    hand_on(part);
    while (early_ != nullptr && number_of(*early_) == expected_) hand_on(*take_early());
    wake();
    return early_ == nullptr || number_of(*early_) > expected_;
}

exchange_state* part_inbox::take_early() noexcept {
    return std::exchange(early_, merge(early_->next, early_->other));
}

void part_inbox::hand_on(exchange_state& part) noexcept {
    ++expected_;
    exchange_state* head = arrived_.load(std::memory_order_relaxed);
    do {
        part.next = head;
    } while (!arrived_.compare_exchange_weak(head, &part, std::memory_order_seq_cst));
}

/// True: `next_` is the next part.
bool part_inbox::look() noexcept {
    if (next_ != nullptr) return true;
    if (arrived_.load(std::memory_order_seq_cst) == nullptr) return false;
    exchange_state* newest = arrived_.exchange(nullptr, std::memory_order_seq_cst);
    while (newest != nullptr) {
        exchange_state* const older = std::exchange(newest->next, next_);
        next_ = std::exchange(newest, older);
    }
    return true;
}

exchange_state* part_inbox::take() noexcept {
    if (!look()) return nullptr;
    exchange_state& part = *std::exchange(next_, next_->next);
    complete_ = (part.extras & exchange_extra::continues) == 0;
    return &part;
}

exchange_state* part_inbox::end() noexcept {
    generation_ = 0;
    exchange_state* left = nullptr;
    while (look()) {
        exchange_state& each = *std::exchange(next_, next_->next);
        each.next = std::exchange(left, &each);
    }
    while (early_ != nullptr) {
        exchange_state& each = *take_early();
        each.next = std::exchange(left, &each);
    }
    wake();
    return left;
}

}  // namespace accel::core
