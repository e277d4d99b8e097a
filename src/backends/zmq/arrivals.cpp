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

/// To where they would be over a transport that writes into slots.
[[gnu::noinline]] void arrival_slots::keep_extensions(const incoming& in) noexcept {
    std::byte* const header = memory_->header(in.header.slot);
    std::memcpy(header - in.header.extension_bytes, in.extensions.data(), in.header.extension_bytes);
    std::memcpy(header, &in.header, sizeof in.header);
}

status arrival_slots::place(incoming& in, std::span<std::byte>& payload) noexcept {
    arrival* slot = free_slot(in.header);
    if (slot == nullptr) return status::protocol_error;
    slot->occupied = true;
    if (in.header.extension_bytes > 0) [[unlikely]]
        keep_extensions(in);
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
    if (in.header.extension_bytes > 0) [[unlikely]]
        keep_extensions(in);
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
