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

}  // namespace accel::core
