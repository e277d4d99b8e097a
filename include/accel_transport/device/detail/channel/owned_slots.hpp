// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/device/detail/channel/exclusive_calls.hpp>

#include <cstdint>

/// The slots of a channel that has an owner, as responses in parts need them (`shared_channel_slots`).
namespace accel::device::detail {

/// Slots of a channel that has an owner, who finds what has come in the slots.
struct owned_channel_slots {
    static constexpr call_phase room_come = call_phase::lent;
    static constexpr call_phase last_come = call_phase::in_parts;

    owned_channel& mine;

    ACCEL_HOST_DEVICE const channel_ref& of() const noexcept { return mine.channel; }
    ACCEL_HOST_DEVICE std::uint32_t count() const noexcept { return mine.channel.exclusive.slots; }
    ACCEL_HOST_DEVICE status end() const noexcept { return end_of(mine); }
    ACCEL_HOST_DEVICE status refusal() const noexcept { return refusal_of(mine); }
    ACCEL_HOST_DEVICE void fail(status why) const noexcept { fail_channel(mine, why); }
    ACCEL_HOST_DEVICE void look(std::int64_t now) const noexcept {
        if (now >= mine.orders_due) look_elsewhere(mine, now);
    }
    ACCEL_HOST_DEVICE void look_for_free(std::int64_t now) const noexcept {
        constexpr std::uint32_t slots_a_look = 64;
        take_late_responses(mine, slots_a_look);
        look(now);
    }
    ACCEL_HOST_DEVICE std::int64_t clock_offset() const noexcept { return mine.clock.clock_offset; }

    // Phases.
    [[nodiscard]] ACCEL_HOST_DEVICE call_phase phase(std::uint32_t slot, std::uint32_t generation) const noexcept {
        if (slot >= count()) return call_phase::free;
        const owned_call call = call_at(mine, slot);
        return call.generation == generation ? call.phase : call_phase::free;
    }
    [[nodiscard]] ACCEL_HOST_DEVICE bool move(std::uint32_t slot, std::uint32_t generation, call_phase from,
                                              call_phase to) const noexcept {
        if (phase(slot, generation) != from) return false;
        set_phase(mine, slot, to);
        return true;
    }
    [[nodiscard]] ACCEL_HOST_DEVICE std::uint32_t take(std::uint32_t& generation) const noexcept {
        const std::uint32_t slot = mine.state.first_free;
        if (slot != no_call) generation = next_generation(begin_slot(mine, slot));
        return slot;
    }
    ACCEL_HOST_DEVICE void put_free(std::uint32_t slot, std::uint32_t generation, call_phase from) const noexcept {
        if (phase(slot, generation) == from) free_slot(mine, slot);
    }
    ACCEL_HOST_DEVICE std::uint32_t renew(std::uint32_t slot, std::uint32_t generation) const noexcept {
        owned_call room = call_at(mine, slot);
        room.generation = next_generation(generation);
        room.phase = call_phase::lent;
        room.torn = 0;
        set_call(mine, slot, room);
        return room.generation;
    }
    ACCEL_HOST_DEVICE void let_return(std::uint32_t slot, std::uint32_t generation) const noexcept {
        if (has_response(mine, slot, generation)) return free_slot(mine, slot);
        set_phase(mine, slot, call_phase::returning);
        count_quarantined(mine);
    }

    // Arrivals.
    [[nodiscard]] ACCEL_HOST_DEVICE bool has_come(std::uint32_t slot, std::uint32_t generation) const noexcept {
        return has_response(mine, slot, generation);
    }
    [[nodiscard]] ACCEL_HOST_DEVICE bool has_last(const call_ref& call) const noexcept {
        return has_response(mine, call.slot, call.generation);
    }
    [[nodiscard]] ACCEL_HOST_DEVICE status read(std::uint32_t slot, std::uint32_t generation,
                                                wire::slot_header& out) const noexcept {
        load_at_once(header_of(mine.channel.responses, slot), out);
        if (out.generation == generation) return status::ok;
        owned_call seen = call_at(mine, slot);
        if (++seen.torn > max_torn) return status::protocol_error;
        set_call(mine, slot, seen);
        return status::again;
    }

    // Posting.
    [[nodiscard]] ACCEL_HOST_DEVICE status wait_for_room(std::uint32_t requests, std::int64_t until) const noexcept {
        if (has_room(mine.state, requests)) return status::ok;
        return make_room(mine, requests, until - clock_ns());
    }
    [[nodiscard]] ACCEL_HOST_DEVICE status post(const call_ref& call, std::uint64_t length,
                                                std::uint32_t extensions) const noexcept {
        if (extensions != 0) put_extensions(mine, call, extensions);
        const bool apart = length > 0 && mine.channel.peer.payloads != 0;
        end_post(mine, post_call(mine, call, length, apart));
        return status::ok;
    }

    // Counting.
    ACCEL_HOST_DEVICE void count_submitted() const noexcept { count_one(&channel_counters::submitted); }
    ACCEL_HOST_DEVICE void count_completed() const noexcept { count_one(&channel_counters::completed); }
    ACCEL_HOST_DEVICE void count_ended_early() const noexcept { count_one(&channel_counters::ended_early); }
    ACCEL_HOST_DEVICE void tell_cancelled(const call_ref& call) const noexcept { detail::tell_cancelled(mine, call); }

  private:
    ACCEL_HOST_DEVICE void count_one(std::uint64_t channel_counters::*what) const noexcept {
        detail::count(mine, what);
    }
};

}  // namespace accel::device::detail
