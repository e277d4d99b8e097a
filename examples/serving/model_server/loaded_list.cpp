// SPDX-License-Identifier: Apache-2.0
#include "serving/model_server/loaded_list.hpp"

#include <cstring>
#include <utility>

namespace accel::examples::serving {

loaded_list::loaded_list(context& ctx, std::size_t most) : ctx_(ctx), most_(most), current_(add()) {}

/// Null: there is no memory.
loaded_list::answer* loaded_list::add() {
    auto made = ctx_.allocate(most_ * sizeof(target::number));
    if (!made) return nullptr;
    answer& out = answers_.emplace_back();
    out.memory = std::move(*made);
    return &out;
}

/// One that nobody reads. A client that does not read its answer keeps it from being reused for as long as it likes.
loaded_list::answer* loaded_list::idle() {
    const answer* const now = current_.load(std::memory_order_relaxed);
    // A handler that begins after `telling_` was 0 uses the current answer.
    if (telling_.load(std::memory_order_seq_cst) == 0)
        for (answer& each : answers_)
            if (&each != now && each.leases.load(std::memory_order_acquire) == 0) return &each;
    return add();
}

void loaded_list::set(std::span<const target> loaded) {
    if (!usable()) return;
    answer* const next = idle();
    if (next != nullptr) {
        std::size_t length = 0;
        for (const target& each : loaded) {
            std::memcpy(next->memory.data() + length, &each.number, sizeof each.number);
            length += sizeof each.number;
        }
        next->content = next->memory.part(0, length).value();
    }
    current_.store(next, std::memory_order_seq_cst);
}

void loaded_list::tell(exchange request) noexcept {
    telling_.fetch_add(1, std::memory_order_seq_cst);
    answer* const now = current_.load(std::memory_order_seq_cst);
    status told = status::out_of_memory;
    if (now != nullptr) told = now->content.empty() ? request.reply(0) : request.reply(now->content, now->leases);
    telling_.fetch_sub(1, std::memory_order_release);
    if (told == status::message_too_large || told == status::out_of_memory) (void)request.fail(told);
}

}  // namespace accel::examples::serving
