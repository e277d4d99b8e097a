// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/device/detail/channel/calls.hpp>

#include <cstdint>

/// The slots of a shared channel, as responses in parts need them.
namespace accel::device::detail {

/// Slots of a shared channel. Those of a call in parts belong to the scope that has it, but for their arrival, which
/// any thread notices. `owned_channel_slots` has the same functions.
struct shared_channel_slots {
    static constexpr call_phase room_come = call_phase::room_arrived;   ///< of a room that has come back
    static constexpr call_phase last_come = call_phase::parts_arrived;  ///< of a call whose last response is there

    const channel_ref& channel;

    ACCEL_HOST_DEVICE const channel_ref& of() const noexcept { return channel; }
    ACCEL_HOST_DEVICE std::uint32_t count() const noexcept { return channel.slots; }
    ACCEL_HOST_DEVICE status end() const noexcept { return end_of(channel); }
    ACCEL_HOST_DEVICE status refusal() const noexcept { return refusal_of(channel); }
    ACCEL_HOST_DEVICE void fail(status why) const noexcept { fail_channel(channel, why); }
    ACCEL_HOST_DEVICE void look(std::int64_t /*now*/) const noexcept { detail::look(channel); }
    ACCEL_HOST_DEVICE void look_for_free(std::int64_t now) const noexcept { look(now); }
    ACCEL_HOST_DEVICE std::int64_t clock_offset() const noexcept {
        return mlx5::load_whole(&channel.state->clock_offset);
    }

    // Phases.
    /// `free`: the slot is not of this generation.
    [[nodiscard]] ACCEL_HOST_DEVICE call_phase phase(std::uint32_t slot, std::uint32_t generation) const noexcept {
        if (slot >= channel.slots) return call_phase::free;
        const std::uint64_t word = load_acquire(&channel.calls[slot].word);
        return generation_in(word) == generation ? phase_in(word) : call_phase::free;
    }
    /// False: it is in another phase by now.
    [[nodiscard]] ACCEL_HOST_DEVICE bool move(std::uint32_t slot, std::uint32_t generation, call_phase from,
                                              call_phase to) const noexcept {
        std::uint64_t expected = word_of(generation, from);
        return hand_over(&channel.calls[slot].word, expected, word_of(generation, to));
    }
    /// A free slot, which is begun; `no_call`: there is none.
    [[nodiscard]] ACCEL_HOST_DEVICE std::uint32_t take(std::uint32_t& generation) const noexcept {
        const std::uint32_t slot = take_slot(channel);
        if (slot != no_call) generation = next_generation(begin_slot(channel, slot));
        return slot;
    }
    ACCEL_HOST_DEVICE void put_free(std::uint32_t slot, std::uint32_t generation, call_phase from) const noexcept {
        if (move(slot, generation, from, call_phase::free)) put_slot_back(channel, slot);
    }
    /// A part's slot becomes a room again. Returns its next generation.
    ACCEL_HOST_DEVICE std::uint32_t renew(std::uint32_t slot, std::uint32_t generation) const noexcept {
        const std::uint32_t next = next_generation(generation);
        std::uint64_t expected = word_of(generation, call_phase::part);
        (void)hand_over(&channel.calls[slot].word, expected, word_of(next, call_phase::lent));
        return next;
    }
    /// A lent slot whose call has ended: it is free once the server has given it back.
    ACCEL_HOST_DEVICE void let_return(std::uint32_t slot, std::uint32_t generation) const noexcept {
        (void)count_up(&channel.state->quarantined);
        if (move(slot, generation, call_phase::lent, call_phase::returning)) return;
        count_down(&channel.state->quarantined);  // it has come just now
        put_free(slot, generation, call_phase::room_arrived);
    }

    // Arrivals.
    [[nodiscard]] ACCEL_HOST_DEVICE bool has_come(std::uint32_t slot, std::uint32_t generation) const noexcept {
        return phase(slot, generation) == call_phase::room_arrived;
    }
    [[nodiscard]] ACCEL_HOST_DEVICE bool has_last(const call_ref& call) const noexcept {
        return phase(call.slot, call.generation) == call_phase::parts_arrived;
    }
    /// Reads a header that has come, once. `again`: not all of it has been seen; `protocol_error`: it does not come.
    [[nodiscard]] ACCEL_HOST_DEVICE status read(std::uint32_t slot, std::uint32_t generation,
                                                wire::slot_header& out) const noexcept {
        const bool whole = await_header(header_of(channel.responses, slot), generation, true, out);
        return whole ? status::ok : status::protocol_error;
    }

    // Posting. What is posted in the room that was waited for can fail only if others take that.
    /// `again`: the send queue has no room for this number of work requests before `until`.
    [[nodiscard]] ACCEL_HOST_DEVICE status wait_for_room(std::uint32_t requests, std::int64_t until) const noexcept {
        while (!has_room(channel.sends, requests)) {
            if (const status over = end(); over != status::ok) return over;
            if (clock_ns() >= until) return status::again;
            detail::look(channel);
        }
        return status::ok;
    }
    /// A request whose header is written. The slot says which phase it is in.
    [[nodiscard]] ACCEL_HOST_DEVICE status post(const call_ref& call, std::uint64_t length,
                                                std::uint32_t extensions) const noexcept {
        return post_request(channel, call, length, extensions);
    }

    // Counting.
    ACCEL_HOST_DEVICE void count_submitted() const noexcept { (void)count_up(&channel.state->submitted); }
    ACCEL_HOST_DEVICE void count_completed() const noexcept { (void)count_up(&channel.state->completed); }
    ACCEL_HOST_DEVICE void count_ended_early() const noexcept { (void)count_up(&channel.state->ended_early); }
    ACCEL_HOST_DEVICE void tell_cancelled(const call_ref& call) const noexcept {
        detail::tell_cancelled(channel, call);
    }
};

}  // namespace accel::device::detail
