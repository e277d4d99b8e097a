// SPDX-License-Identifier: Apache-2.0
#include "serving/model_server/loaded_list.hpp"

#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

namespace accel::examples::serving {

loaded_list::loaded_list(context& ctx, std::size_t most) {
    for (answer& each : answers_)
        if (auto made = ctx.allocate(most * sizeof(target::number)); made) each.memory = std::move(*made);
}

void loaded_list::set(std::span<const target> loaded) {
    if (!usable()) return;
    const std::size_t other = 1 - current_.load(std::memory_order_relaxed);
    answer& next = answers_[other];
    // A handler that begins after `telling_` was 0 uses the current answer.
    while (telling_.load(std::memory_order_seq_cst) > 0 || next.leases.load(std::memory_order_acquire) > 0)
        std::this_thread::sleep_for(std::chrono::microseconds{50});
    std::size_t length = 0;
    for (const target& each : loaded) {
        std::memcpy(next.memory.data() + length, &each.number, sizeof each.number);
        length += sizeof each.number;
    }
    next.content = next.memory.part(0, length).value();
    current_.store(other, std::memory_order_seq_cst);
}

void loaded_list::tell(exchange request) noexcept {
    telling_.fetch_add(1, std::memory_order_seq_cst);
    answer& now = answers_[current_.load(std::memory_order_seq_cst)];
    const bool lent = !now.content.empty();
    const status told = lent ? request.reply(now.content, now.leases) : request.reply(0);
    telling_.fetch_sub(1, std::memory_order_release);
    if (told == status::message_too_large) (void)request.fail(told);
}

}  // namespace accel::examples::serving
