// SPDX-License-Identifier: Apache-2.0
#include "core/server/part_credits.hpp"

namespace accel::core {

void part_credits::add(exchange_state& room) noexcept {
    exchange_state* head = given_.load(std::memory_order_relaxed);
    do {
        room.next = head;
    } while (!given_.compare_exchange_weak(head, &room, std::memory_order_seq_cst));
    wake();
}

/// Only one thread pops, so that a head which has not changed still has the same next one.
exchange_state* part_credits::pop() noexcept {
    exchange_state* head = given_.load(std::memory_order_seq_cst);
    while (head != nullptr && !given_.compare_exchange_weak(head, head->next, std::memory_order_seq_cst)) {
    }
    return head;
}

void part_credits::wake() noexcept {
    if (waiter_.load(std::memory_order_seq_cst) == nullptr) return;
    if (part_waiter* const who = waiter_.exchange(nullptr, std::memory_order_seq_cst); who != nullptr) who->wake(*who);
}

bool part_credits::await(part_waiter& who) noexcept {
    if (next() != nullptr) return true;
    part_waiter* none = nullptr;
    if (!waiter_.compare_exchange_strong(none, &who, std::memory_order_seq_cst)) return false;
    // Room may have come between the two looks.
    return next() != nullptr && forget_waiter();
}

}  // namespace accel::core
