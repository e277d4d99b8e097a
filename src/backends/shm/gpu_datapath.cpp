// SPDX-License-Identifier: Apache-2.0
#include "backends/shm/link.hpp"
#include "backends/shm/poller.hpp"
#include "core/region_state.hpp"

#include <cstring>
#include <utility>

/// The way of payloads into slots on the server's GPU, and out of them. Headers and lanes are those of every session:
/// a slot is announced when its payload is complete. Other sessions pass none of this.
namespace accel::shm {

using core::link_event;

bool shm_link::reaches(const core::region_state& region, bool /*written*/) noexcept {
    return copies_ != nullptr && copies_->reaches(region);
}

// Sending.

status shm_link::deliver_by_gpu(const core::outgoing& message) noexcept {
    if (state_ != state::open_to_gpu) return status::peer_lost;
    if (!fits(message)) return status::message_too_large;
    if (is_server()) return deliver_answer_by_gpu(message);
    const std::uint32_t slot = message.slot;
    const core::slot_header header = core::read_header(config_.send->header(slot));
    const bool answer_on_gpu = !message.response_into.empty() && message.response_into.region()->device() != nullptr;
    targets_[slot] = {message.response_into.bytes(), header.generation, answer_on_gpu};
    const std::uint32_t entry = slot | (answer_on_gpu ? entry_flag::response_on_gpu : 0);
    const std::size_t extensions = message.extension_bytes;
    std::memcpy(outgoing_.slots->header(slot) - extensions, config_.send->header(slot) - extensions,
                core::header_bytes + extensions);
    if (copies_->takes(message)) {
        const status begun = copies_->send(message, entry | entry_flag::payload_on_gpu);
        if (begun == status::ok) return begun;
        lose(begun);
        return status::peer_lost;
    }
    std::byte* const to = outgoing_.slots->payload(slot);
    if (!message.ranges.empty())
        core::range_cursor{}.copy_out(message.ranges, to, message.range_bytes);
    else if (!message.payload.empty())
        std::memcpy(to, message.payload.data(), message.payload.size());
    announce(entry);
    return status::ok;
}

status shm_link::deliver_plain_by_gpu(std::uint32_t slot, std::span<const std::byte> payload) noexcept {
    return deliver_by_gpu({slot, payload, nullptr, {}});
}

/// Most lie where the client takes them from: in a slot on the GPU or on the host.
status shm_link::deliver_answer_by_gpu(const core::outgoing& message) noexcept {
    const std::byte* const from = message.payload.data();
    const bool on_gpu = !message.payload.empty() && from == shared_.responses->payload(message.slot);
    if (!on_gpu && from != outgoing_.slots->payload(message.slot)) return deliver_lent_response(message);
    announce(message.slot | (on_gpu ? entry_flag::payload_on_gpu : 0));
    return status::ok;
}

// Receiving.

std::size_t shm_link::take_by_gpu(std::span<link_event> out) noexcept {
    std::size_t count = take_copied(out);
    std::uint32_t entry = 0;
    while (state_ == state::open_to_gpu && count < out.size() && reader_.take(entry)) {
        const taken got = fill_by_gpu(out[count], entry);
        if (got == taken::event) ++count;
        if (got == taken::wrong) lose(status::protocol_error);
    }
    return count;
}

shm_link::taken shm_link::fill_by_gpu(link_event& event, std::uint32_t entry) noexcept {
    const std::uint32_t slot = entry & ~entry_flag::all;
    if (!read_message(event, slot)) return taken::wrong;
    const bool on_gpu = (entry & entry_flag::payload_on_gpu) != 0;
    const bool answer_on_gpu = (entry & entry_flag::response_on_gpu) != 0;
    if (is_server()) {
        if (on_gpu) event.payload = shared_.requests->room(slot).first(event.header.length);
        if (answer_on_gpu) event.response_room = shared_.responses->room(slot);
        return taken::event;
    }
    const bool kept = event.header.extension_bytes == 0 || keep_extensions(event.header);
    // No server answers a request that is still on its way, nor one twice.
    if (!kept || answer_on_gpu || copies_->under_way(slot)) return taken::wrong;
    target& wanted = targets_[slot];
    if (wanted.on_gpu && wanted.generation == event.header.generation) return place_by_gpu(event, wanted, on_gpu);
    if (on_gpu) return taken::wrong;
    return wanted.room.empty() || place(event, wanted) ? taken::event : taken::wrong;
}

/// The response of a call that wants it in memory of the GPU. The text of a failure stays in its slot on the host.
shm_link::taken shm_link::place_by_gpu(link_event& event, target& wanted, bool on_gpu) noexcept {
    const std::size_t length = event.header.length;
    const bool failed = event.header.code != status::ok;
    const std::span<std::byte> room = std::exchange(wanted.room, {});
    if (on_gpu && failed) return taken::wrong;
    if (failed) return taken::event;
    if (!on_gpu && length > 0) return taken::wrong;
    if (room.empty()) {  // the call has ended: nobody reads this
        event.payload = copies_->response(event.header.slot, length);
        return taken::event;
    }
    if (length > room.size()) return taken::wrong;
    event.payload = room.first(length);
    event.borrowed = false;
    if (length == 0) return taken::event;
    const status begun = copies_->receive(event);
    if (begun != status::ok) lose(begun);
    return taken::nothing;
}

/// Finished copies: requests are announced, responses are told.
std::size_t shm_link::take_copied(std::span<link_event> out) noexcept {
    if (copies_ == nullptr || !copies_->active()) return 0;
    std::size_t count = 0;
    copies_->poll([&](gpu_copies::copy& ended, bool done) noexcept {
        if (!done) {
            lose(copies_->gpu().alive() ? status::system_error : status::device_lost);
        } else if (ended.request) {
            if (state_ == state::open_to_gpu) announce(ended.entry);
            if (ended.wanted_back) released_.push_back(ended.slot);  // within reserved capacity
        } else if (count == out.size()) {
            return false;
        } else {
            out[count++] = ended.response;
        }
        return true;
    });
    return count;
}

/// As `take_last`, of a client. Responses that are being copied come before the loss, and so does memory that a copy
/// has left.
std::size_t shm_link::take_last_by_gpu(std::span<link_event> out) noexcept {
    std::size_t count = take_copied(out);
    std::uint32_t entry = 0;
    while (count < out.size() && last_left_ > 0 && reader_.take(entry)) {
        --last_left_;
        const taken got = fill_by_gpu(out[count], entry);
        if (got == taken::event) ++count;
        if (got == taken::wrong) last_left_ = 0;
    }
    const bool more = count == out.size() || copies_->receives() || !released_.empty();
    return more ? count : tell_loss(out, count);
}

bool shm_link::has_other_work() const noexcept {
    if (state_ != state::open_to_gpu) return state_ == state::losing;
    const bool arrived = !released_.empty() || !reader_.empty();
    return arrived || (copies_ != nullptr && !copies_->wakes(poller_.waker()));
}

}  // namespace accel::shm
