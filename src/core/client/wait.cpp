// SPDX-License-Identifier: Apache-2.0
#include "core/client/channel_core.hpp"
#include "core/handle.hpp"

#include <algorithm>

/// A thread that waits for completions: looks for a while, then sleeps.
namespace accel::core {

std::size_t channel_core::wait(std::span<completion> out, nanoseconds timeout) noexcept {
    if (life_.inherited()) return 0;
    completion_room room = room_in(out);
    look(room, timeout);
    const nanoseconds deadline = timeout >= never - now_ ? never : now_ + timeout;
    spin_then_sleep(room, deadline, [&] {
        const bool nothing_to_come = life_.over() && slots_.open() == 0;
        return room.left < out.size() || slots_.ready() > 0 || nothing_to_come;
    });
    if (slots_.ready() > 0) [[unlikely]]
        room = hand_out(room);
    return out.size() - room.left;
}

completion channel_core::wait_for(call_id id) noexcept {
    completion_room none;
    look(none, never);
    channel_slot& slot = slots_[id.slot];
    spin_then_sleep(none, never, [&slot] { return slot.state == slot_state::done; });
    slots_.take_done(slot);
    count(slot, slot.content);
    completion made;
    completion_room room{&made, 1};
    next_of(room) = slot.content;
    return made;
}

status channel_core::wait_for_part(call_id call, nanoseconds timeout, completion& out) noexcept {
    if (life_.inherited()) return status::invalid_state;
    const auto is_over = [&] {
        const channel_slot* const own = slots_.find(call);
        return own == nullptr ||
               !(is_awaited(own->state) || own->state == slot_state::settling || own->state == slot_state::done);
    };
    completion_room none;
    look(none, timeout);
    channel_slot* found = nullptr;
    const nanoseconds deadline = timeout >= never - now_ ? never : now_ + timeout;
    spin_then_sleep(none, deadline, [&] { return (found = slots_.find_done(call)) != nullptr || is_over(); });
    if (found == nullptr) return is_over() ? status::invalid_state : status::again;
    slots_.take_done(*found);
    count(*found, found->content);
    completion_room room{&out, 1};
    next_of(room) = found->content;
    return status::ok;
}

result<call_view, status> channel_core::wait_to_begin_part(call_id call, nanoseconds timeout) noexcept {
    const result<call_view, status> begun = begin_part(call);
    if (begun.code() != status::again) return begun;
    completion_room none;
    now_ = clock_.now();
    const nanoseconds deadline = timeout >= never - now_ ? never : now_ + timeout;
    spin_then_sleep(none, deadline, [&] { return slots_.free() > 0 || !request_parts_.is_open(call); });
    return begin_part(call);
}

void channel_core::end_parts(call_id call) noexcept {
    (void)cancel(call);
    completion each;
    bool more = true;
    while (more && wait_for_part(call, never, each) == status::ok) {
        more = each.more;
        each.release();
    }
}

/// How a wait begins. One that goes to sleep anyway need not look first: `arm` does.
void channel_core::look(completion_room& out, nanoseconds timeout) noexcept {
    const bool sleeps = request_.options.poll == poll_mode::block && life_.has_link();
    if (!sleeps || timeout <= nanoseconds{0}) return progress(out);
    now_ = clock_.now();
}

template <class Done>
void channel_core::spin_then_sleep(completion_room& out, nanoseconds deadline, Done done) noexcept {
    const poll_mode mode = request_.options.poll;
    const nanoseconds start = now_;
    const nanoseconds spin_end = mode == poll_mode::busy       ? deadline
                                 : mode == poll_mode::adaptive ? std::min(deadline, start + request_.options.spin)
                                                               : start;
    spinner_.restart();
    while (!done() && now_ < deadline) {
        if (now_ < spin_end)
            spinner_.pause();
        else if (mode != poll_mode::busy && (!life_.has_link() || life_.in_doubt() || life_.events().arm()))
            sleep(deadline);
        progress(out);
    }
}

/// When there is something to do though nothing says so: a deadline, or a link that may have room by now.
nanoseconds channel_core::next_look() const noexcept {
    const nanoseconds deadline = std::min(slots_.next_deadline(), life_.doubt_ends());
    return backlog_.empty() ? deadline : std::min(deadline, now() + std::chrono::milliseconds{1});
}

void channel_core::sleep(nanoseconds deadline) noexcept {
    nanoseconds until = std::min(deadline, next_look());
    if (staging_.active() && !staging_.wakes()) until = std::min(until, now() + std::chrono::microseconds{50});
    life_.sleep(until, staging_.active() ? staging_.event_fd() : -1);
}

bool channel_core::arm() noexcept {
    life_.be_watched();
    if (slots_.ready() > 0) return false;
    if (staging_.active() && !staging_.wakes()) return false;
    // A copy's end may be told after it was seen.
    if (!staging_.active()) staging_.clear_event();
    wakeups_.set_timer(next_look());
    return life_.arm();
}

}  // namespace accel::core

/// The public `channel`, as in submit.cpp.
namespace accel {

std::size_t channel::wait(std::span<completion> out, std::chrono::nanoseconds timeout) noexcept {
    core::channel_core& own = core::behind(core_, "channel");
    [[maybe_unused]] const auto inside = own.enter("wait");
    return own.wait(out, timeout);
}

}  // namespace accel
