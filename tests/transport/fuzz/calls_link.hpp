// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/backend.hpp"
#include "core/protocol.hpp"
#include "fuzz_target.hpp"

#include <accel_transport/completion.hpp>

#include <array>
#include <chrono>
#include <deque>
#include <memory>

namespace accel::tests::one_channel {

using namespace accel::core;

constexpr std::uint32_t slots = 4;
constexpr std::size_t request_bytes = 40;
constexpr std::size_t response_bytes = 56;
/// The server's clock minus the channel's, which stands below this.
constexpr nanoseconds server_ahead = std::chrono::hours{1};

/// What a correct peer may send into a slot, as far as that does not depend on calls.
inline bool is_sane(const link_event& event) {
    return is_well_formed(event.header, message_kind::response) && event.header.slot < slots &&
           event.payload.size() == event.header.length;
}

/// The application's side of one slot.
struct call {
    enum class phase { none, begun, open, ended } at = phase::none;
    call_id id;
    std::uint64_t tag = 0;
    std::uint64_t order = 0;     ///< of its submission
    bool short_lived = false;    ///< ends by its deadline, at the next look
    bool lends = false;          ///< payload or room
    std::span<std::byte> into;   ///< where its response is wanted
    bool owed = false;           ///< the server has the request, and has not answered
    bool quarantined = false;    ///< released, but owed
    bool holds_arrival = false;  ///< its completion shows memory of the link's
};

/// The transport: takes what the channel delivers, and has what the input made happen.
class calls_link final : public core::link {
  public:
    calls_link(input_reader& input, std::array<call, slots>& calls, std::shared_ptr<slot_memory> send,
               std::shared_ptr<slot_memory> receive, bool borrows)
        : input_(input), calls_(calls), send_(std::move(send)), receive_(std::move(receive)), borrows_(borrows) {}

    link_description describe() const override { return {}; }
    result<void> attach(const link_grant&, nanoseconds) override { return {}; }
    void activate() override {}
    bool close() noexcept override {
        closed_ = closed_ || ending || input_.byte() % 2 == 0;
        queue.clear();
        if (closed_) touched_.fill(false);
        return closed_;
    }
    status deliver(const outgoing& message) noexcept override {
        const bool lends = message.region != nullptr || !message.response_into.empty();
        check(message);
        switch (input_.byte() % 8) {
            case 1:
                return status::again;
            case 2:
                return status::peer_lost;
            default:
                break;
        }
        call& sent = calls_[message.slot];
        require(sent.order > last_order_, "calls leave in their order");
        last_order_ = sent.order;
        sent.owed = true;
        touched_[message.slot] = lends;
        release_owed_[message.slot] = false;
        return status::ok;
    }
    status deliver_plain(std::uint32_t slot, std::span<const std::byte> payload) noexcept override {
        return deliver({slot, payload, nullptr, {}});
    }
    bool retract(std::uint32_t slot) noexcept override {
        require(!closed_ && touched_[slot], "only what was lent is asked back, of a link that is open");
        touched_[slot] = input_.byte() % 2 != 0;
        release_owed_[slot] = touched_[slot];
        return !touched_[slot];
    }
    void consumed(std::uint32_t slot) noexcept override {
        require(slot < slots, "the slot exists");
        require(!borrows_ || held_[slot] != nullptr, "an arrival is given back once");
        held_[slot].reset();
    }
    slot_memory& send() const noexcept override { return *send_; }
    slot_memory& receive() const noexcept override { return *receive_; }

    /// Writes the events that have happened, up to one that ends the session.
    std::size_t take(std::span<link_event> out) {
        std::size_t count = 0;
        while (!queue.empty() && count < out.size()) {
            out[count] = queue.front();
            queue.pop_front();
            bring(out[count]);
            const bool last =
                out[count].kind == event_kind::lost || (out[count].kind == event_kind::arrived && !is_sane(out[count]));
            ++count;
            if (!last) continue;
            queue.clear();
            break;
        }
        return count;
    }
    [[nodiscard]] bool touches(std::uint32_t slot) const { return touched_[slot]; }
    [[nodiscard]] bool holds_arrival(std::uint32_t slot) const { return held_[slot] != nullptr; }
    [[nodiscard]] bool may_release(std::uint32_t slot) const { return release_owed_[slot]; }
    [[nodiscard]] bool borrows() const { return borrows_; }

    std::deque<link_event> queue;
    bool ending = false;  ///< nothing is touched any more

  private:
    void check(const outgoing& message) const {
        require(!closed_, "a closed link is given nothing");
        require(message.slot < slots, "the slot exists");
        const slot_header header = read_header(send_->header(message.slot));
        const call& sent = calls_[message.slot];
        require(is_well_formed(header, message_kind::request) && header.slot == message.slot &&
                    header.generation == sent.id.generation && header.length == message.payload.size() &&
                    header.response_room <= response_bytes,
                "the request's header is what a correct client sends");
        require(header.extension_bytes == message.extension_bytes, "the link is told of all extensions");
        require(header.deadline_ns >= server_ahead.count(), "its deadline is by the server's clock");
        require(message.payload.size() <= request_bytes, "the request fits");
        unsigned sum = 0;
        for (const std::byte b : message.payload) sum += std::to_integer<unsigned>(b);
        require(sum <= 255 * request_bytes, "all of it can be read");
    }
    /// What the transport does with an event before the channel sees it.
    void bring(link_event& event) {
        const std::uint32_t slot = event.header.slot;
        if (event.kind == event_kind::buffer_released) {
            if (slot < slots && release_owed_[slot]) release_owed_[slot] = touched_[slot] = false;
        }
        if (event.kind != event_kind::arrived || slot >= slots) return;
        const std::size_t length = event.header.length;
        if (length > response_bytes || (borrows_ && held_[slot] != nullptr)) {
            event = lost_event(nullptr, status::protocol_error);
            return;
        }
        event.borrowed = borrows_;
        place(event);
        call& asked = calls_[slot];
        if (!is_sane(event) || !asked.owed || event.header.generation != asked.id.generation) return;
        asked.owed = false;
        asked.quarantined = false;
        touched_[slot] = release_owed_[slot] = false;
    }
    void place(link_event& event) {
        const std::uint32_t slot = event.header.slot;
        const std::size_t length = event.header.length;
        const call& asked = calls_[slot];
        std::byte* to = receive_->payload(slot);
        // What no correct peer sends ends the session, and is not given back.
        if (borrows_ && is_well_formed(event.header, message_kind::response)) {
            held_[slot] = std::make_unique<std::byte[]>(length + 1);
            to = held_[slot].get();
        }
        const bool directed = asked.owed && event.header.generation == asked.id.generation &&
                              event.header.code == status::ok && touched_[slot] && asked.into.size() >= length &&
                              !asked.into.empty();
        if (directed) to = asked.into.data();
        event.payload = {to, length};
    }

    input_reader& input_;
    std::array<call, slots>& calls_;
    std::shared_ptr<slot_memory> send_;
    std::shared_ptr<slot_memory> receive_;
    bool borrows_;
    bool closed_ = false;
    std::uint64_t last_order_ = 0;
    std::array<bool, slots> touched_{};       ///< lent memory is still used
    std::array<bool, slots> release_owed_{};  ///< `retract` said no
    std::array<std::unique_ptr<std::byte[]>, slots> held_{};
};

}  // namespace accel::tests::one_channel
