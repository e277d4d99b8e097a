// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/connection.hpp"
#include "core/lent_range.hpp"
#include "core/protocol.hpp"
#include "core/slot_memory.hpp"

#include <accel_transport/memory.hpp>
#include <accel_transport/status.hpp>

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>

namespace accel::core {

/// One message for the peer's slot. The header is already in `send` slot memory, complete.
struct outgoing {
    std::uint32_t slot = 0;
    /// Where the payload lies: in its slot right behind the header, or in a lent slice.
    std::span<const std::byte> payload;
    const region_state* region = nullptr;  ///< of a lent payload; null when it lies in the slot
    /// Requests: where the response goes instead of its slot; empty if nowhere else.
    slice response_into;
    std::uint16_t extension_bytes = 0;  ///< of the core's own, in front of the header, which names them
    /// Requests over a link that `gathers`: the payload lies here, and `payload` is empty. The list stays as it is
    /// until the message was delivered or its slot is used anew; the link may keep it until then.
    std::span<const lent_range> ranges{};
    std::size_t range_bytes = 0;  ///< of them together
    /// Requests over a link that `scatters`: the response goes here, and `response_into` is empty. Room for no more
    /// than that. The list stays as it is until the response has arrived, `retract`, or the slot is used anew.
    std::span<const lent_range> response_ranges{};
    std::size_t response_bytes = 0;  ///< of them together

    /// Bytes of the payload, wherever it lies.
    [[nodiscard]] std::size_t length() const noexcept { return ranges.empty() ? payload.size() : range_bytes; }
    [[nodiscard]] bool lends() const noexcept {
        return region != nullptr || !response_into.empty() || !response_ranges.empty();
    }
    /// `deliver_plain` is enough.
    [[nodiscard]] bool plain() const noexcept { return !lends() && extension_bytes == 0; }
};

enum class event_kind : std::uint8_t {
    arrived,          ///< a message is complete in a slot; header and payload are set, unchecked by the link
                      ///< but for what it needed itself (slot and length within the geometry)
    buffer_released,  ///< the transport no longer touches memory lent for `header.slot`; only after `retract`
                      ///< said no, and on a server for every lent payload
    lost,             ///< the link is dead; `reason` says why; nothing more comes from it
};

struct link_event {
    event_kind kind = event_kind::arrived;
    bool borrowed = true;  ///< arrived: `link::consumed` has to be called; false: it may be left out
    status reason = status::ok;
    void* owner = nullptr;
    slot_header header;
    std::span<std::byte> payload;        ///< arrived: the bytes, valid until `link::consumed(slot)`
    std::span<std::byte> response_room;  ///< server: where the response is written; empty: the send slot
};

// Events that carry no message, as links of every backend make them.

[[nodiscard]] inline link_event buffer_released_event(void* owner, std::uint32_t slot) noexcept {
    link_event event;
    event.kind = event_kind::buffer_released;
    event.owner = owner;
    event.header.slot = slot;
    return event;
}

[[nodiscard]] inline link_event lost_event(void* owner, status why) noexcept {
    link_event event;
    event.kind = event_kind::lost;
    event.reason = why;
    event.owner = owner;
    return event;
}

/// The state of a client's memory that a handler works in.
enum class recall : std::uint8_t {
    none,
    readable,  ///< wanted back; readable until `link::consumed`
    gone,      ///< wanted back, and must not be touched any more
};

/// The data path between two connected peers.
class link : public connection {
  public:
    /// Server, if `backend::shares_memory`, on the polling thread after `close`: true once, when the client
    /// wants back the memory that handlers work in.
    [[nodiscard]] virtual recall recalled() noexcept { return recall::none; }
    /// Likewise, for a lent answer that its client has not released: true: the link decrements `leases` when it has.
    [[nodiscard]] virtual bool leave_lease(std::uint32_t /*slot*/, std::atomic<std::uint32_t>& /*leases*/) noexcept {
        return false;
    }

    // Data path: no allocation, lock or log line.
    /// Sends a message. `ok`: it will arrive, or the link will be lost. Header and payload must not change
    /// until the answer (client) or the next request in that slot (server). `again`: nothing was done, or with
    /// `ranges` only some of them were sent; the peer knows nothing of the message. The same call goes on with the
    /// rest, `retract` gives it up. `peer_lost`.
    [[nodiscard]] virtual status deliver(const outgoing& message) noexcept = 0;
    /// The same if nothing is lent, there are no extensions, and the answer goes into its slot, as in most messages.
    [[nodiscard]] virtual status deliver_plain(std::uint32_t slot, std::span<const std::byte> payload) noexcept = 0;
    /// Client: stops touching lent memory of this slot (payload and response_into). True: done. False: a
    /// `buffer_released` event or the late response says when.
    [[nodiscard]] virtual bool retract(std::uint32_t slot) noexcept = 0;
    /// The receiver is done with the payload of the last arrival in this slot. Also after close.
    virtual void consumed(std::uint32_t slot) noexcept = 0;

    /// True: lent device memory of this region is read in place (`written`: written by the peer); else the core
    /// stages it. The first call for a region may take long.
    [[nodiscard]] virtual bool reaches(const region_state& /*region*/, bool /*written*/) noexcept { return false; }

    /// Server, after attach: its client wants to reach a handler's slots on a device by itself.
    [[nodiscard]] virtual bool wants_device_slots() const noexcept { return false; }
    /// Server, once, before `describe`: lets the client reach them, if it can. A request may then arrive in its slot
    /// there, with `response_room` in the slot of its response.
    virtual void share_device_slots(const std::shared_ptr<slot_memory>& /*requests*/,
                                    const std::shared_ptr<slot_memory>& /*responses*/) noexcept {}

    /// Client: an answer has come whose event waits for a copy by a device.
    [[nodiscard]] virtual bool receives() const noexcept { return false; }

    /// Client: true: `deliver` takes a payload in ranges; else the core gathers it in the slot.
    [[nodiscard]] virtual bool gathers() const noexcept { return false; }
    /// Client: true: a response goes to `outgoing::response_ranges`; else the core copies it there. The payload of its
    /// arrival names the slot then, and tells no more than the length. The text of a failure is in the slot.
    [[nodiscard]] virtual bool scatters() const noexcept { return false; }

    /// This end's slots; server: valid after attach.
    [[nodiscard]] virtual slot_memory& send() const noexcept = 0;
    /// Where messages arrive; server: valid after attach.
    [[nodiscard]] virtual slot_memory& receive() const noexcept = 0;
};

}  // namespace accel::core
