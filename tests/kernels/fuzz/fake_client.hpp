// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/protocol.hpp"
#include "fake_queues.hpp"
#include "fuzz_target.hpp"

#include <accel_transport/device/service_ref.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

namespace accel::tests {

/// A client of a service, played by the input: what its device writes into the session's slots, and what it is
/// sent. Breaks the protocol where the input says so; `hostile` remembers that it did.
class fake_client {
  public:
    static constexpr std::uint64_t request_bytes = 48;
    static constexpr std::uint64_t response_bytes = 56;
    static constexpr std::size_t stride = core::extension_room + core::header_bytes + 64;
    static constexpr std::uint64_t peer_base = 0x7000'0000'0000;

    /// `requests`: the session's slots, which belong to the caller.
    fake_client(input_reader& input, std::uint32_t index, std::span<std::byte> requests)
        : input_(input),
          index_(index),
          slots_(static_cast<std::uint32_t>(requests.size() / stride)),
          requests_(requests),
          responses_(requests.size()),
          asked_(slots_) {}

    /// A client connects in its place: what the host tells of it.
    [[nodiscard]] device::detail::session_offer connect() {
        hostile = false;
        payload_bytes_ = 0;
        std::fill(asked_.begin(), asked_.end(), 0U);
        device::detail::session_offer offer;
        offer.id = 100 + index_;
        offer.slots = slots_;
        offer.requests = {header_at(0), stride, request_bytes, 1000 + index_};
        offer.responses = {response_header(0), stride, response_bytes, response_key()};
        offer.peer.headers = peer_headers();
        offer.peer.headers_stride = stride;
        offer.peer.headers_key = headers_key();
        if (index_ == 1) {
            offer.peer.payloads = offer.peer.headers + (1U << 20);
            offer.peer.payloads_stride = 256;
            offer.peer.payloads_key = payloads_key;
        }
        return offer;
    }

    [[nodiscard]] std::byte* header_at(std::uint32_t slot) const {
        return requests_.data() + core::extension_room + stride * slot;
    }
    [[nodiscard]] std::byte* response_header(std::uint32_t slot) {
        return responses_.data() + core::extension_room + stride * slot;
    }
    /// A correct request has not been answered yet.
    [[nodiscard]] bool waits() const {
        return std::any_of(asked_.begin(), asked_.end(), [](std::uint32_t each) { return each != 0; });
    }

    /// A request as a correct client sends it, but for what the input says. False: there is none. `slot`: where.
    [[nodiscard]] bool ask(std::uint32_t& slot) {
        return ask(slot, [] {});
    }
    /// The header's end becomes visible first, then `between` is called, then the rest comes.
    template <class Between>
    [[nodiscard]] bool ask(std::uint32_t& slot, const Between& between) {
        const std::uint8_t choice = input_.byte();
        slot = choice % slots_;
        const bool early = asked_[slot] != 0;
        if (early && choice < 240) return false;
        wire::slot_header header;
        header.slot = slot;
        header.generation = ++generation_;
        header.length = input_.byte() % (request_bytes + 1);
        header.response_room = input_.byte() % (response_bytes + 1);
        header.trace_id = generation_;
        header.deadline_ns = choice < 200 ? device::detail::never_ns : std::int64_t{choice} * 5'000'000'000;
        if (choice % 8 == 7) place_answer(header);
        hostile = hostile || early || spoil(header, input_.byte());
        header.arrival_word = header.generation;
        constexpr std::size_t end = wire::arrival_word_offset;
        asked_[slot] = generation_;
        std::memcpy(header_at(slot) + end, &header.arrival_word, sizeof header.arrival_word);
        between();
        std::memcpy(header_at(slot), &header, sizeof header);
        return true;
    }
    /// Bytes that its device may write, anywhere in its slots.
    void write_anything() {
        hostile = true;
        const std::size_t at = (std::size_t{input_.byte()} << 8 | input_.byte()) % requests_.size();
        const auto bytes = input_.bytes(std::min<std::size_t>(input_.byte(), requests_.size() - at));
        if (!bytes.empty()) std::memcpy(requests_.data() + at, bytes.data(), bytes.size());
    }
    /// A slot's last word, without a request before it.
    void write_word() {
        hostile = true;
        const std::uint32_t slot = input_.byte() % slots_;
        const std::uint32_t word = generation_ + input_.byte() - 128U;
        std::memcpy(header_at(slot) + wire::arrival_word_offset, &word, sizeof word);
    }

    /// What a kernel is handed lies in the session's own slots, and nowhere else.
    void check_handed_over(const device::exchange_ref& got) {
        require(got.request == header_at(got.slot) + core::header_bytes && got.request_bytes <= request_bytes,
                "its request lies in its slot");
        unsigned sum = 0;
        for (std::size_t i = 0; i < got.request_bytes; ++i) sum += std::to_integer<unsigned>(got.request[i]);
        require(sum <= 255 * request_bytes, "all of it can be read");
        std::byte* const to = response_header(got.slot) + core::header_bytes;
        require(got.response == to && got.response_room <= response_bytes, "its response has its room");
        std::memset(got.response, 0x5a, got.response_room);
        require(got.target.length == 0 || got.response_room <= got.target.length, "an answer fits where it is placed");
    }
    /// What is posted for it comes from its own responses, and goes where it wants it.
    void check_posted(const posted_request& found) {
        const auto first = reinterpret_cast<std::uint64_t>(responses_.data());
        require(found.from.address >= first && found.from.address + found.from.length <= first + responses_.size() &&
                    found.from.key == response_key(),
                "what is sent lies in the session's responses");
        if (found.operation == mlx5::opcode::write) {
            const bool known = found.remote_key == payloads_key || hostile || found.remote_key == target_key ||
                               found.remote_key == headers_key();
            require(known, "a payload goes where the client wants it");
            payload_bytes_ = found.from.length;
            return;
        }
        require(found.operation == mlx5::opcode::write_immediate && found.immediate < slots_,
                "an answer is told of by its slot");
        require(found.remote_key == headers_key() &&
                    found.remote_address == peer_headers() + stride * found.immediate &&
                    found.from.length <= core::header_bytes + response_bytes,
                "its header goes into the client's slot");
        check_answer(found.immediate, found.from.length - core::header_bytes);
    }

    bool hostile = false;  ///< it broke the rules, or its adapter did

  private:
    static constexpr std::uint32_t payloads_key = 4000;
    static constexpr std::uint32_t target_key = 5000;
    [[nodiscard]] std::uint32_t headers_key() const { return 3000 + index_; }
    [[nodiscard]] std::uint32_t response_key() const { return 2000 + index_; }
    [[nodiscard]] std::uint64_t peer_headers() const { return peer_base + (std::uint64_t{index_} << 32); }

    /// `behind_header`: payload that came with it.
    void check_answer(std::uint32_t slot, std::uint64_t behind_header) {
        wire::slot_header header;
        std::memcpy(&header, response_header(slot), sizeof header);
        require(wire::is_well_formed(header, wire::message_kind::response) && header.slot == slot &&
                    header.length <= response_bytes,
                "its header is what a correct server sends");
        require(hostile || (header.generation != 0 && header.generation == asked_[slot]), "it answers what was asked");
        const std::uint64_t sent = behind_header + std::exchange(payload_bytes_, 0);
        // Who asks in a slot that is in use may find a later answer in it, which the first one's request sends.
        require(hostile || header.length == sent, "all of it is sent, and once");
        asked_[slot] = 0;
    }
    /// True: no correct client sends this.
    static bool spoil(wire::slot_header& header, std::uint8_t how) {
        switch (how) {
            case 200:
                header.version = 2;
                return true;
            case 201:
                header.kind = wire::message_kind::response;
                return true;
            case 202:
                header.length = request_bytes + 1;
                return true;
            case 203:
                header.response_room = response_bytes + 1;
                return true;
            case 204:
                header.slot ^= 1U;
                return true;
            case 205:
                --header.generation;
                return true;
            case 206:
                header.extension_bytes = 200;
                return true;
            default:
                return false;
        }
    }
    void place_answer(wire::slot_header& header) {
        wire::response_target_extension extension;
        extension.value = {peer_base + (1U << 24), header.response_room, target_key, 0};
        header.extension_bytes = sizeof extension;
        std::memcpy(header_at(header.slot) - sizeof extension, &extension, sizeof extension);
    }

    input_reader& input_;
    std::uint32_t index_;
    std::uint32_t slots_;
    std::span<std::byte> requests_;
    std::vector<std::byte> responses_;
    std::vector<std::uint32_t> asked_;  ///< generation of a correct request that has not been answered yet
    std::uint32_t generation_ = 0;      ///< of the last request
    std::uint64_t payload_bytes_ = 0;   ///< sent before the header of its answer
};

}  // namespace accel::tests
