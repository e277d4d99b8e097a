// SPDX-License-Identifier: Apache-2.0
#include "staging/channel_staging.hpp"

#include "core/context_state.hpp"
#include "core/event_signal.hpp"
#include "core/log.hpp"
#include "core/region_state.hpp"

#include <sys/eventfd.h>

namespace accel::core {

void channel_staging::clear_event() const noexcept {
    if (copied_.open()) core::clear_event(copied_.get());
}

/// The first use of all: streams for each slot as it comes, and slots that GPUs copy fast.
status channel_staging::prepare_stream(std::uint32_t slot, accelerator_device& gpu) {
    if (copies_ == nullptr) {
        const bool sleeps = request_.options.poll != poll_mode::busy;
        if (sleeps && !copied_.open()) {
            copied_ = unique_fd(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
            if (!copied_.open()) return status::system_error;
            wakeups_.add(copied_.get());
        }
        copies_ = std::make_unique<gpu_staging>(slots_.count(), copied_.get());
        for (slot_memory* slots : {request_.requests.get(), request_.responses.get()}) {
            const auto pinned = slots->pin(request_.context->devices());
            if (!pinned) log().warn("copies from and to {} will be slow: {}", gpu.name(), pinned.error().message);
        }
    }
    return copies_->prepare(slot, gpu);
}

status channel_staging::prepare(const outgoing& message, staged_parts staged) {
    const region_state& lent = staged.payload ? *message.region : *message.response_into.region();
    if (const status bad = prepare_stream(message.slot, *lent.device()); bad != status::ok) return bad;
    staged_call& call = (*copies_)[message.slot];
    call.into = staged.response ? message.response_into : slice{};
    call.copied_out = {};
    call.message = message;
    if (staged.response) call.message.response_into = {};
    return status::ok;
}

void channel_staging::copy_out(channel_slot& slot) noexcept {
    const std::uint32_t index = slot.content.id.slot;
    outgoing& message = (*copies_)[index].message;
    const std::span<const std::byte> from = message.payload;
    std::byte* const room = slot.header + header_bytes;
    message.payload = {room, from.size()};
    message.region = nullptr;
    slot.owed = false;
    slot.lent = true;
    copies_->start(index, staging_phase::copying_out, room, from.data(), from.size());
}

status channel_staging::deliver(channel_slot& slot, link& path, std::uint32_t epoch) noexcept {
    staged_call& call = (*copies_)[slot.content.id.slot];
    const outgoing& message = call.message;
    const status sent = message.plain() ? path.deliver_plain(message.slot, message.payload) : path.deliver(message);
    if (sent != status::ok) return sent;
    call.phase = staging_phase::away;
    slot.set_delivered(message, epoch);
    return status::ok;
}

void channel_staging::wait_for_link(channel_slot& slot) noexcept {
    slot.owed = slot.lent = false;
    copies_->wait_for_link(slot.content.id.slot);
}

status channel_staging::poll(link* path, std::uint32_t epoch) noexcept {
    clear_event();
    status failure = status::ok;
    copies_->poll([&](std::uint32_t index, staged_call& call) noexcept {
        channel_slot& slot = slots_[index];
        if (call.copying()) {
            const stream_progress far = copies_->go_on(call);
            if (far != stream_progress::running) on_copied(slot, call, far == stream_progress::done);
        }
        if (call.phase != staging_phase::copied_out || path == nullptr || failure != status::ok) return;
        const status sent = deliver(slot, *path, epoch);
        if (sent != status::ok && sent != status::again) failure = sent;
    });
    return failure;
}

/// The end of a copy, in either direction.
void channel_staging::on_copied(channel_slot& slot, staged_call& call, bool done) noexcept {
    const bool out = call.phase == staging_phase::copying_out;
    call.phase = staging_phase::none;
    slot.lent = false;
    if (slot.state == slot_state::settling) return slots_.finish(slot);  // it has ended before
    const nanoseconds ended = now();
    if (!done) {
        slot.fail(call.gpu->alive() ? status::system_error : status::device_lost, ended);
        return slots_.finish(slot);
    }
    const nanoseconds copied = call.stream->between(stream_mark::start, stream_mark::copied_in);
    if (out) {
        call.copied_out = copied;
        call.phase = staging_phase::copied_out;
        return;
    }
    slot.content.timeline.copy += copied;
    slot.content.timeline.total = ended - slot.submitted;
    slots_.finish(slot);
}

/// The failures' messages stay where they can be read: in the slot.
bool channel_staging::on_response(channel_slot& slot, const link_event& event, nanoseconds at,
                                  nanoseconds clock_offset) noexcept {
    staged_call& call = (*copies_)[slot.content.id.slot];
    const bool copies = !call.into.empty() && event.header.code == status::ok;
    if (copies && event.payload.size() > call.into.size()) return false;
    slot.owed = slot.lent = false;
    slot.holds_response = event.borrowed;
    slot.fill(slot.content, event, at, clock_offset);
    timeline& times = slot.content.timeline;
    times.copy += call.copied_out;
    times.request = not_negative(times.request - call.copied_out);
    call.phase = staging_phase::none;
    const auto into = copies ? call.into.bytes().first(event.payload.size()) : std::span<std::byte>{};
    if (copies) slot.content.response = into;
    if (into.empty()) {
        slots_.finish(slot);
        return true;
    }
    copies_->start(slot.content.id.slot, staging_phase::copying_in, into.data(), event.payload.data(), into.size());
    return true;
}

bool channel_staging::abandon(const channel_slot& slot) noexcept {
    if (copies(slot)) return true;
    (*copies_)[slot.content.id.slot].phase = staging_phase::none;
    return false;
}

bool channel_staging::copies(const channel_slot& slot) const noexcept {
    return (*copies_)[slot.content.id.slot].copying();
}

bool channel_staging::finish(nanoseconds deadline) noexcept {
    if (copies_ == nullptr) return true;
    for (;; sleep_on({}, now() + std::chrono::microseconds{200})) {
        if (active()) (void)poll(nullptr, 0);
        if (!active()) return true;
        if (now() >= deadline) return false;
    }
}

}  // namespace accel::core
