// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/protocol.hpp"
#include "fake_clock.hpp"
#include "fake_queues.hpp"
#include "fuzz_target.hpp"

#include <accel_transport/device/client.hpp>

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

namespace accel::tests {

/// A kernel that makes calls, over a channel whose queues, server and host are in the fuzzer's hands. A Rig derives
/// from it and says how its channel keeps calls:
/// - mine(): what a kernel calls with. failed(), quarantined(): the channel's state.
/// - phase_of(slot), generation_of(slot), next_free(slot): of a call.
/// - may_be_refused(options): whether `again` may answer a good submit.
/// - answer(): the server writes a response. announce_room(slot), announce_anything(): it has written something else.
/// - tell(completion, of_receive): adds a completion, if there is room.
template <typename Rig, std::uint32_t Slots>
class kernel_calls {
  public:
    static constexpr std::uint32_t slots = Slots;
    static constexpr std::uint64_t request_bytes = 48;
    static constexpr std::uint64_t response_bytes = 56;
    static constexpr std::size_t stride = core::extension_room + core::header_bytes + 64;
    static constexpr std::uint64_t peer_base = 0x7000'0000'0000;
    static constexpr std::uint32_t name = 0x5fe;

  protected:
    /// A call as its holder knows it.
    struct held_call {
        device::call_ref ref;
        bool submitted = false;
        bool ended = false;
        bool in_parts = false;
        status outcome = status::again;
    };

    /// `apart`: payloads go to other memory than headers. `parts`: calls may ask for responses in parts.
    kernel_calls(input_reader& input, device::detail::engine by, bool apart, bool parts)
        : input_(input), by_(by), takes_parts_(parts), completions_(by), sends_(by, name) {
        channel_.requests = {requests_.data() + core::extension_room, stride, request_bytes, 1000};
        channel_.responses = {responses_.data() + core::extension_room, stride, response_bytes, 2000};
        channel_.peer.headers = peer_base;
        channel_.peer.headers_stride = stride;
        channel_.peer.headers_key = 3000;
        if (apart) {
            channel_.peer.payloads = peer_base + (1U << 20);
            channel_.peer.payloads_stride = 256;
            channel_.peer.payloads_key = 4000;
        }
        channel_.cancels = cancels_.data();
        channel_.parts = parts_.data();
        channel_.orders = &orders_;
        channel_.report = &report_;
        channel_.call_timeout_ns = device::detail::never_ns;
    }

    /// Steps that all rigs have: numbers below 16.
    void act(unsigned what) {
        switch (what) {
            case 0:
            case 1:
                return begin();
            case 2:
            case 3:
                return submit();
            case 4:
            case 5:
            case 6:
                return poll();
            case 7:
                return cancel();
            case 8:
            case 9:
                return release();
            case 10:
            case 11:
                return rig().answer();
            case 12:
                return answer_anything();
            case 13:
                return complete_anything();
            case 14:
                clock_.pass(std::chrono::microseconds{input_.byte() * 100});
                return;
            default:
                return order();
        }
    }

    // Kernels.
    void begin() {
        if (held_.size() > slots) return;
        held_call made;
        const status got = device::begin(rig().mine(), made.ref);
        if (got != status::ok) {
            const bool over = rig().refuses();
            require(got == status::again ? held_.size() + rig().quarantined() + rooms() == slots : over,
                    "a slot is free, or the channel has ended");
            return;
        }
        require(made.ref.slot < slots && made.ref.request_room == request_bytes, "a slot has its room");
        for (const held_call& each : held_) require(each.ref.slot != made.ref.slot, "it is nobody else's");
        std::memset(made.ref.request, 0x5a, request_bytes);
        held_.push_back(made);
    }
    /// A call that is held, or null.
    held_call* pick() { return held_.empty() ? nullptr : &held_[input_.byte() % held_.size()]; }
    void submit() {
        held_call* const of = pick();
        if (of == nullptr) return;
        const std::uint8_t choice = input_.byte();
        device::call_options with;
        with.trace_id = choice;
        with.max_bytes = choice % 3 == 0 ? choice % (response_bytes + 10) : 0;
        with.timeout_ns = choice % 5 == 0 ? choice * 10'000 : choice == 251 ? -1 : 0;
        trace_context trace;
        trace.trace_id[0] = trace.parent_id[0] = choice;
        if (takes_parts_) {
            with.parts = choice / 4 % 4;
            with.part_timeout_ns = choice % 7 == 0 ? choice * 5'000 : 0;
            with.trace = choice % 2 == 0 ? &trace : nullptr;
        }
        const std::uint64_t length = choice % (request_bytes + 2);
        // The adapter does what is posted meanwhile.
        const status got = device::submit(rig().mine(), of->ref, length, with);
        const bool good = !of->submitted && length <= request_bytes && with.timeout_ns >= 0 && with.parts < slots;
        require(got != status::ok || good, "only what is right is accepted");
        require(got == status::ok || !good || rig().refuses() || (got == status::again && rig().may_be_refused(with)),
                "and all that is");
        if (got != status::ok) return;
        of->submitted = true;
        of->in_parts = with.parts != 0;
    }
    void poll() {
        held_call* const of = pick();
        if (of == nullptr) return;
        look_at(*of, look(*of));
    }
    /// A part is kept, and says `again`.
    status look(held_call& of) {
        if (!of.in_parts) return device::poll(rig().mine(), of.ref);
        device::arrival_ref out;
        const status got = device::poll(rig().mine(), of.ref, out);
        if (!out.more) return got;
        require(got == status::ok && !of.ended && out.slot < slots, "a part is of a call that goes on");
        require(out.response == response_header(out.slot) + core::header_bytes && out.response_bytes <= response_bytes,
                "it lies in its slot");
        for (const device::arrival_ref& each : held_parts_) require(each.slot != out.slot, "which is no other's");
        held_parts_.push_back(out);
        return status::again;
    }
    void release_part() {
        if (held_parts_.empty()) return;
        const std::size_t at = input_.byte() % held_parts_.size();
        const device::arrival_ref part = held_parts_[at];
        const status got = device::release(rig().mine(), part);
        require(got == status::ok || got == status::again, "a part can be released");
        if (got != status::ok) return;
        held_parts_.erase(held_parts_.begin() + static_cast<std::ptrdiff_t>(at));
        require(device::release(rig().mine(), part) == status::invalid_state, "and only once");
    }
    /// Slots that are a call's parts, but for those that come back without it.
    [[nodiscard]] std::size_t rooms() const {
        std::size_t count = 0;
        for (std::uint32_t i = 0; i < slots; ++i) {
            const call_phase phase = rig().phase_of(i);
            count +=
                phase == call_phase::lent || phase == call_phase::room_arrived || phase == call_phase::part ? 1 : 0;
        }
        return count;
    }
    void look_at(held_call& of, status got) {
        if (!of.submitted) return require(got == status::invalid_state, "it was not submitted");
        // A server may answer with that status too.
        require(got != status::invalid_state || got == of.ref.outcome, "a call is its holder's");
        if (of.ended) return require(got == of.outcome, "an outcome stays");
        if (got == status::again) return;
        of.ended = true;
        of.outcome = got;
        ++ended_;
        check_response(of.ref);
    }
    void check_response(const device::call_ref& of) {
        if (of.response == nullptr) return require(of.response_bytes == 0, "no response has no bytes");
        const std::byte* const from = response_header(of.slot) + core::header_bytes;
        const std::uint64_t most = of.outcome == status::ok ? of.response_room : response_bytes;
        require(of.response == from && of.response_bytes <= most, "the response lies in its slot");
        unsigned sum = 0;
        for (std::size_t i = 0; i < of.response_bytes; ++i) sum += std::to_integer<unsigned>(of.response[i]);
        require(sum <= 255 * response_bytes, "all of it can be read");
    }
    void cancel() {
        held_call* const of = pick();
        if (of == nullptr) return;
        const status got = device::cancel(rig().mine(), of->ref);
        require(got == status::invalid_state || (got == status::ok && of->submitted && !of->ended),
                "only a call that goes on is cancelled");
        if (got != status::ok) return;
        of->ended = true;
        of->outcome = status::cancelled;
        ++ended_;
    }
    void release() {
        held_call* const of = pick();
        if (of == nullptr) return;
        const device::call_ref ref = of->ref;
        const bool mine = !of->submitted || of->ended;
        require((device::release(rig().mine(), ref) == status::ok) == mine, "what has ended can be released");
        if (!mine) return;
        held_.erase(held_.begin() + (of - held_.data()));
        require(device::release(rig().mine(), ref) == status::invalid_state, "and only once");
    }

    // The server.
    std::byte* response_header(std::uint32_t slot) { return responses_.data() + core::extension_room + stride * slot; }
    /// A part, or a slot that comes back without one.
    void answer_room() {
        const std::uint8_t choice = input_.byte();
        const std::uint8_t spoilt = input_.byte();
        const std::uint32_t slot = choice % slots;
        wire::slot_header header;
        header.kind = wire::message_kind::response;
        header.slot = slot;
        header.generation = rig().generation_of(slot);
        if (spoilt % 4 == 0)
            header.code = status::cancelled;
        else
            header.flags = wire::header_flag::more;
        header.parts_before = next_part_of(parts_[slot].room) + (spoilt >= 224 ? spoilt - 228U : 0U);
        header.length = spoilt % 4 == 0 ? 0 : input_.byte() % (response_bytes + (spoilt >= 192 ? 2 : 1));
        if (spoilt >= 250) header.flags |= spoilt;
        header.arrival_word = header.generation;
        std::memcpy(response_header(slot), &header, sizeof header);
        rig().announce_room(slot);
    }
    /// As its call counts.
    [[nodiscard]] std::uint64_t next_part_of(const device::detail::parts_room& room) const {
        return parts_[room.call_slot % slots].call.next;
    }
    void answer_anything() {
        const std::size_t at = (std::size_t{input_.byte()} << 8 | input_.byte()) % responses_.size();
        const auto bytes = input_.bytes(std::min<std::size_t>(input_.byte(), responses_.size() - at));
        if (!bytes.empty()) std::memcpy(responses_.data() + at, bytes.data(), bytes.size());
        rig().announce_anything();
    }
    void complete_anything() {
        const std::uint8_t choice = input_.byte();
        mlx5::completion told;
        told.queue_pair = name;
        told.counter = choice;
        told.kind = choice % 3 == 0   ? mlx5::entry_kind::request
                    : choice % 3 == 1 ? mlx5::entry_kind::request_error
                                      : mlx5::entry_kind::receive_error;
        if (choice % 3 != 0) told.failure = mlx5::syndrome::retries_exceeded;
        rig().tell(told, choice % 3 == 2);
    }

    // The host.
    void order() {
        const std::uint8_t choice = input_.byte();
        if (choice >= 232 && orders_.ended == 0) mlx5::store_whole(&orders_.ended, device::detail::going_away);
        if (choice >= 240) mlx5::store_whole(&orders_.ended, choice % 2 == 0 ? closed : lost);
        orders_.clock_ns = device::clock_ns() + 5'000 + choice;
        mlx5::store_flag(&orders_.clock_tick, orders_.clock_tick + 1);
    }
    static constexpr auto closed = static_cast<std::uint32_t>(status::closed);
    static constexpr auto lost = static_cast<std::uint32_t>(status::peer_lost);

    /// Whatever is posted lies in the channel's memory.
    void check_source(const posted_request& found) {
        require(found.queue_pair == name, "it names its queue pair");
        const auto first = reinterpret_cast<std::uint64_t>(requests_.data());
        require(found.from.address >= first && found.from.address + found.from.length <= first + requests_.size() &&
                    found.from.key == 1000,
                "what is sent lies in the channel's requests");
    }
    void check_payload(const posted_request& found) {
        require(found.operation == mlx5::opcode::write && found.remote_key == 4000 &&
                    found.remote_address >= channel_.peer.payloads &&
                    found.remote_address + found.from.length <= channel_.peer.payloads + 256 * slots,
                "a payload goes into the server's slot");
    }
    wire::slot_header check_header(const posted_request& found) {
        wire::slot_header header;
        std::memcpy(&header, requests_.data() + core::extension_room + stride * found.immediate, sizeof header);
        require(core::is_of_parts(header, wire::message_kind::request) && header.slot == found.immediate &&
                    header.length <= request_bytes && header.response_room <= response_bytes,
                "its header is what a correct client sends");
        return header;
    }

    /// Every slot is free once, held, or owed an answer.
    void check_slots(std::uint32_t first_free) {
        std::uint32_t free = 0;
        for (std::uint32_t i = first_free; i != device::detail::no_call; i = rig().next_free(i)) {
            require(i < slots && ++free <= slots, "the free slots are a list");
            require(rig().phase_of(i) == call_phase::free, "of slots that are free");
        }
        require(free + held_.size() + rig().quarantined() + rooms() == slots,
                "no slot is lost, and none is there twice");
    }
    void check_counts(std::uint64_t submitted, std::uint64_t completed, std::uint64_t ended_early) {
        require(completed + ended_early == ended_, "each call ends once");
        require(completed <= submitted, "what is answered was submitted");
    }
    /// Ends and releases all that is held. A call that has failed or was cancelled may need several looks.
    void end_calls(std::uint32_t max_looks) {
        for (held_call& each : held_) {
            if (!each.submitted || each.ended) continue;
            if (!rig().failed()) (void)device::cancel(rig().mine(), each.ref);
            for (std::uint32_t i = 0; i <= max_looks && !each.ended; ++i) look_at(each, look(each));
            require(each.ended, "each call ends");
        }
        for (const held_call& each : held_)
            require(device::release(rig().mine(), each.ref) == status::ok, "and can be released");
        held_.clear();
        for (const device::arrival_ref& each : held_parts_)
            require(device::release(rig().mine(), each) == status::ok, "parts outlive their calls");
        held_parts_.clear();
    }

    fake_clock clock_;
    input_reader& input_;
    device::detail::engine by_;
    bool takes_parts_;
    fake_completions completions_;
    fake_sends sends_;
    std::vector<std::byte> requests_ = std::vector<std::byte>(slots * stride);
    std::vector<std::byte> responses_ = std::vector<std::byte>(slots * stride);
    std::vector<device::detail::channel_part_slot> parts_ = std::vector<device::detail::channel_part_slot>(slots);
    std::vector<std::uint32_t> cancels_ = std::vector<std::uint32_t>(slots);
    device::detail::channel_orders orders_;
    device::detail::channel_report report_;
    device::channel_ref channel_;
    std::vector<held_call> held_;
    std::vector<device::arrival_ref> held_parts_;
    std::uint64_t ended_ = 0;

  private:
    using call_phase = device::detail::call_phase;
    Rig& rig() { return static_cast<Rig&>(*this); }
    [[nodiscard]] const Rig& rig() const { return static_cast<const Rig&>(*this); }
};

}  // namespace accel::tests
