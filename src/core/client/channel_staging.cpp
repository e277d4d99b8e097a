#include "core/client/channel_core.hpp"
#include "core/context_state.hpp"
#include "core/log.hpp"
#include "core/region_state.hpp"

#include <sys/eventfd.h>

/// The part of a call's way that leads over a GPU whose memory the transport does not reach: its payload into
/// the request's slot, its response to where it is wanted. As in channel_core.cpp nothing allocates, locks or
/// logs, but for the first use of a slot.
namespace accel::core {

/// The first use of all: streams for each slot as it comes, and slots that GPUs copy fast.
status channel_core::prepare_staging(std::uint32_t index, accelerator_device& gpu) {
    if (staging_ == nullptr) {
        const bool sleeps = request_.options.poll != poll_mode::busy;
        if (sleeps && copied_fd_ < 0) {
            copied_fd_ = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
            if (copied_fd_ < 0) return status::system_error;
            watch_fd(copied_fd_);
        }
        staging_ = std::make_unique<gpu_staging>(slots_.count(), copied_fd_);
        for (slot_memory* slots : {request_.requests.get(), request_.responses.get()}) {
            const auto pinned = slots->pin(request_.context->gpus());
            if (!pinned)
                log().warn("copies from and to {} will be slow: {}", gpu.name(), pinned.error().message);
        }
    }
    return staging_->prepare(index, gpu);
}

/// `payload` is in its slot unless it says whose it is.
status channel_core::submit_staged(client_slot& slot, std::span<const std::byte> payload,
                                   const region_state* lent, staged_parts staged,
                                   const submit_options& options) noexcept {
    const std::uint32_t index = slot.content.id.slot;
    accelerator_device& gpu = staged.payload ? *lent->gpu() : *options.response_into.region()->gpu();
    if (const status bad = prepare_staging(index, gpu); bad != status::ok) return bad;
    staged_call& call = (*staging_)[index];
    call.into = staged.response ? options.response_into : slice{};
    call.copied_out = {};
    call.message = {index, payload, lent, staged.response ? slice{} : options.response_into};

    stamp_staged(slot, payload.size(), options);
    if (staged.payload) {
        std::byte* const room = slot.header + header_bytes;
        call.message.payload = {room, payload.size()};
        call.message.region = nullptr;
        slot.owed = false;
        slot.lent = true;
        detours_ = true;
        staging_->start(index, staging_phase::copying_out, room, payload.data(), payload.size());
    } else if (const status sent = deliver_staged(slot, call); sent != status::ok) {
        if (sent != status::again && !doubt(sent)) return loss_;
        slot.owed = slot.lent = false;
        detours_ = true;
        staging_->wait_for_link(index);
    }
    slot.staged = true;
    accept_later(slot, options);
    return status::ok;
}

/// `again` leaves it to be tried later.
status channel_core::deliver_staged(client_slot& slot, staged_call& call) noexcept {
    if (!backlog_.empty() || in_doubt()) return status::again;
    const outgoing& message = call.message;
    const bool lends = message.region != nullptr || !message.response_into.empty();
    const status sent = lends ? connection_.path->deliver(message)
                              : connection_.path->deliver_plain(message.slot, message.payload);
    if (sent != status::ok) return sent;
    call.phase = staging_phase::away;
    slot.owed = true;
    slot.lent = lends;
    slot.epoch = epoch_;
    return status::ok;
}

void channel_core::poll_staging() noexcept {
    if (copied_fd_ >= 0) clear_event(copied_fd_);
    now_ = now();
    staging_->poll([this](std::uint32_t index, staged_call& call) noexcept {
        client_slot& slot = slots_[index];
        if (call.copying()) {
            const stream_progress far = staging_->go_on(call);
            if (far != stream_progress::running) on_copied(slot, call, far == stream_progress::done);
        }
        if (call.phase != staging_phase::copied_out || state_ != state::connected) return;
        const status sent = deliver_staged(slot, call);
        if (sent != status::ok && sent != status::again) (void)doubt(sent);
    });
}

/// The end of a copy, in either direction.
void channel_core::on_copied(client_slot& slot, staged_call& call, bool done) noexcept {
    const bool out = call.phase == staging_phase::copying_out;
    call.phase = staging_phase::none;
    slot.lent = false;
    if (slot.state == slot_state::settling) return slots_.finish(slot);  // it has ended before
    if (!done) return end_early(slot, call.gpu->alive() ? status::system_error : status::device_lost);
    const nanoseconds copied = call.stream->between(stream_mark::start, stream_mark::copied_in);
    if (out) {
        call.copied_out = copied;
        call.phase = staging_phase::copied_out;
        return;
    }
    slot.content.timeline.copy += copied;
    slot.content.timeline.total = now_ - slot.submitted;
    slots_.finish(slot);
}

/// The failures' messages stay where they can be read: in the slot.
[[gnu::noinline]] void channel_core::on_staged_response(client_slot& slot, const link_event& event) noexcept {
    staged_call& call = (*staging_)[slot.content.id.slot];
    const bool copies = !call.into.empty() && event.header.code == status::ok;
    if (copies && event.payload.size() > call.into.size()) return lose(status::protocol_error);
    slot.owed = slot.lent = false;
    slot.holds_response = event.borrowed;
    fill_staged(slot, event);
    timeline& times = slot.content.timeline;
    times.copy += call.copied_out;
    times.request = not_negative(times.request - call.copied_out);
    call.phase = staging_phase::none;
    if (!copies) return slots_.finish(slot);
    const std::span<std::byte> into = call.into.bytes().first(event.payload.size());
    slot.content.response = into;
    if (into.empty()) return slots_.finish(slot);
    detours_ = true;
    staging_->start(slot.content.id.slot, staging_phase::copying_in, into.data(), event.payload.data(),
                    into.size());
}

/// A call ends early. True: a copy still touches what it lent.
bool channel_core::abandon_staging(const client_slot& slot) noexcept {
    staged_call& call = (*staging_)[slot.content.id.slot];
    if (call.copying()) return true;
    call.phase = staging_phase::none;
    return false;
}

/// Waits for what is being copied. False: it goes on after `deadline`.
bool channel_core::end_staging(nanoseconds deadline) noexcept {
    if (staging_ == nullptr) return true;
    for (;; sleep_on({}, now() + std::chrono::microseconds{200})) {
        if (staging_->active()) poll_staging();
        if (!staging_->active()) return true;
        if (now() >= deadline) return false;
    }
}

}  // namespace accel::core
