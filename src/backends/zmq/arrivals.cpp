// SPDX-License-Identifier: Apache-2.0
#include "backends/zmq/arrivals.hpp"

#include <cstring>

namespace accel::zmq {
namespace {

/// Shorter payloads are copied: keeping a message costs as much.
constexpr std::size_t adopted_from = 1'024;

[[nodiscard]] bool aligned(const std::byte* data) noexcept {
    return reinterpret_cast<std::uintptr_t>(data) % 8 == 0;
}

}  // namespace

arrival_slots::arrival* arrival_slots::free_slot(const core::slot_header& header) noexcept {
    const bool fits = header.slot < slots_.size() && header.length <= capacity_;
    return fits && !slots_[header.slot].occupied ? &slots_[header.slot] : nullptr;
}

status arrival_slots::place(incoming& in, std::span<std::byte>& payload) noexcept {
    arrival* slot = free_slot(in.header);
    if (slot == nullptr) return status::protocol_error;
    slot->occupied = true;
    const std::size_t length = in.header.length;
    std::byte* from = in.body.data() + in.offset;
    slot->adopted = length >= adopted_from && aligned(from);
    if (slot->adopted) {
        slot->message.take_from(in.body);
        payload = {from, length};
    } else {
        std::byte* to = memory_->payload(in.header.slot);
        if (length > 0) std::memcpy(to, from, length);
        payload = {to, length};
    }
    return status::ok;
}

status arrival_slots::place_in(std::span<std::byte> target, incoming& in, std::span<std::byte>& payload) noexcept {
    arrival* slot = free_slot(in.header);
    if (slot == nullptr) return status::protocol_error;
    slot->occupied = true;
    slot->adopted = false;
    payload = target.first(in.header.length);
    if (!payload.empty()) std::memcpy(payload.data(), in.body.data() + in.offset, payload.size());
    return status::ok;
}

void arrival_slots::consumed(std::uint32_t slot) noexcept {
    arrival& done = slots_[slot];
    if (done.adopted) done.message.release();
    done.adopted = false;
    done.occupied = false;
}

}  // namespace accel::zmq
