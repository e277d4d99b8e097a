// SPDX-License-Identifier: Apache-2.0
#include "core/region_state.hpp"
#include "device/harness/link.hpp"
#include "device/harness/poller.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

/// The data path of one session, by the functions of `device/service.hpp`: as a kernel would take a request
/// and answer it, but for what the core does for handlers anyway (deadlines, headers of answers).
namespace accel::tests {
namespace {

/// Of the longest answer: its extensions, its payload, its header, and a marker behind it.
constexpr std::uint32_t requests_of_an_answer = 4;

std::uint64_t address_of(const std::byte* bytes) noexcept {
    return reinterpret_cast<std::uintptr_t>(bytes);
}

}  // namespace

bool harness_link::take(const device::detail::ready_entry& arrived, core::link_event& out) noexcept {
    device::exchange_ref& exchange = exchanges_[arrived.slot];
    exchange.request = nullptr;
    core::slot_header header;
    const bool asked = device::detail::look_into(poller_.sessions().ref(), arrived, header, exchange);
    if (!asked) exchange.request = nullptr;
    if (!asked && !take_part_room(header)) return false;
    if (state_ != state::open || closing_) return false;  // the end releases it
    out.kind = core::event_kind::arrived;
    out.borrowed = false;
    out.reason = status::ok;
    out.owner = config_.owner;
    out.header = header;
    out.payload = {config_.receive->payload(arrived.slot), header.length};
    out.response_room = {};
    return true;
}

/// Room that the device code has kept is the core's to give out. Else it was given back, or was none.
bool harness_link::take_part_room(const core::slot_header& room) noexcept {
    const device::detail::session_entry& session = poller_.sessions().entry(*place_);
    if (!device::detail::is_room(room) || !device::detail::is_open(session)) return false;
    return device::detail::take_room(parts_.data(), static_cast<std::uint32_t>(room.parts_call)) != 0;
}

// Sending.

device::detail::answer_bytes harness_link::own_bytes(std::uint32_t slot) const noexcept {
    const std::uint64_t header = address_of(config_.send->header(slot));
    return {header, header + core::header_bytes, responses_->lkey, responses_->lkey};
}

status harness_link::deliver_plain(std::uint32_t slot, std::span<const std::byte> payload) noexcept {
    return send_from(slot, own_bytes(slot), payload.size());
}

/// Also lent memory, under its key. What cannot be registered is copied into the slot instead.
status harness_link::deliver(const core::outgoing& message) noexcept {
    const std::size_t length = message.payload.size();
    device::detail::answer_bytes from = own_bytes(message.slot);
    if (message.region == nullptr || length == 0) return send_from(message.slot, from, length);
    if (const auto* keys = keys_of(*message.region, verbs::access::send); keys != nullptr) {
        from.payload = address_of(message.payload.data());
        from.payload_key = keys->local;
    } else {
        std::copy(message.payload.begin(), message.payload.end(), config_.send->payload(message.slot));
    }
    const status sent = send_from(message.slot, from, length);
    if (sent != status::ok) return sent;
    // The marker's completion tells that the device has read what was lent.
    if (post_marker() != status::ok) {
        fail(status::system_error);
        return status::ok;  // released when the link ends
    }
    lent_.push_back({message.slot, device::detail::posted_by(queue_.port)});
    poller_.mark_pending(*this);
    return status::ok;
}

status harness_link::send_from(std::uint32_t slot, const device::detail::answer_bytes& from,
                               std::size_t length) noexcept {
    const device::service_ref& service = poller_.sessions().ref();
    device::detail::session_entry& session = poller_.sessions().entry(*place_);
    if (state_ != state::open || !device::detail::is_open(session)) return status::peer_lost;
    if (!device::detail::has_room(queue_.port, requests_of_an_answer)) return status::again;
    device::exchange_ref& exchange = exchanges_[slot];
    if (exchange.request == nullptr) return answer_room(slot, length);
    core::slot_header header;
    core::read_header(header, config_.send->header(slot));
    if (header.extension_bytes > 0 && post_extensions(slot, header.extension_bytes) != status::ok)
        return status::peer_lost;
    // The core has all rooms that were kept.
    if (exchange.parts != nullptr) (void)device::detail::end_rooms(parts_[slot]);
    const status sent = device::detail::send_off(service, exchange, {header.code, 0, length}, from);
    exchange.request = nullptr;
    device::detail::finish_exchange(session);
    return sent == status::ok ? status::ok : status::peer_lost;
}

/// A part, or room that is given back without one.
status harness_link::answer_room(std::uint32_t slot, std::size_t length) noexcept {
    const device::service_ref& service = poller_.sessions().ref();
    core::slot_header header;
    core::read_header(header, config_.send->header(slot));
    device::exchange_ref room;
    device::detail::prepare_room(service, *place_, slot, room);
    const device::detail::answer with{header.code, 0, length, header.flags};
    const status sent = device::detail::send_off(service, room, with, device::detail::bytes_in_slot(room));
    return sent == status::ok ? status::ok : status::peer_lost;
}

/// A write of their own, ahead of the header's: kernels send none.
status harness_link::post_extensions(std::uint32_t slot, std::size_t bytes) noexcept {
    const device::detail::peer_slots_layout& peer = poller_.sessions().entry(*place_).is.peer;
    const mlx5::local_range range{address_of(config_.send->header(slot)) - bytes, static_cast<std::uint32_t>(bytes),
                                  responses_->lkey};
    mlx5::work_request request;
    request.ranges = 1;
    request.first = &range;
    request.remote_address = peer.headers + peer.headers_stride * slot - bytes;
    request.remote_key = peer.headers_key;
    return device::detail::post_and_tell(queue_.port, request);
}

/// An empty write that asks for its completion: it tells that everything before it has arrived.
status harness_link::post_marker() noexcept {
    if (!device::detail::has_room(queue_.port, 1)) return status::again;
    mlx5::work_request request;
    const device::detail::peer_slots_layout& peer = poller_.sessions().entry(*place_).is.peer;
    request.remote_address = peer.headers;
    request.remote_key = peer.headers_key;
    return device::detail::post_and_tell(queue_.port, request);
}

bool harness_link::reaches(const core::region_state& region, bool written) noexcept {
    return keys_of(region, written ? verbs::access::peer_writes : verbs::access::send) != nullptr;
}

std::size_t harness_link::drain_events(std::span<core::link_event> out) noexcept {
    std::size_t count = 0;
    while (!lent_.empty() && count < out.size() && has_been_sent(lent_.front().until)) {
        out[count++] = core::buffer_released_event(config_.owner, lent_.front().slot);
        lent_.erase(lent_.begin());
    }
    if (state_ == state::losing && count < out.size()) {
        out[count++] = core::lost_event(config_.owner, reason_);
        state_ = state::lost;
    }
    return count;
}

}  // namespace accel::tests
