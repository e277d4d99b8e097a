// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/client/call_backlog.hpp"
#include "core/client/channel_lifecycle.hpp"
#include "core/client/channel_slots.hpp"

#include <accel_transport/channel.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace accel::core {

/// Responses in parts, at the client. A call that takes n unread parts lends n slots: each goes to the server as room
/// for one part, comes back with it, and goes again when the application has released the part. Parts are numbered,
/// because a transport may let short ones pass long ones. Only calls in parts come here. Allocates when it is made.
class part_reader {
  public:
    /// `room`: bytes of the longest part.
    part_reader(channel_slots& slots, call_backlog& backlog, const channel_lifecycle& life, std::size_t room)
        : slots_(slots), backlog_(backlog), life_(life), room_(room), calls_(slots.count()), places_(slots.count()) {}

    /// A call is about to be submitted: lends as many free slots as it asks for, before its request leaves.
    void start(const channel_slot& call, const submit_options& options) noexcept;
    /// It has been submitted.
    void accept(channel_slot& call, nanoseconds at) noexcept;
    /// … or could not be.
    void undo(const channel_slot& call) noexcept;

    /// A part. False: no correct server sends it.
    [[nodiscard]] bool on_part(const link_event& event, nanoseconds at) noexcept;
    /// The response that ends the parts, of a current call. It waits for parts that have not arrived. False: likewise.
    [[nodiscard]] bool on_last(channel_slot& call, const link_event& event, nanoseconds at) noexcept;
    /// The server gives a slot back without a part.
    void on_returned(channel_slot& room) noexcept;
    /// The slot is, or was, a part's.
    [[nodiscard]] bool has(const channel_slot& slot) const noexcept {
        return places_[slot.content.id.slot].call.generation != 0;
    }
    /// The application has read a part: the slot is lent again while its call is open, else free.
    void release(channel_slot& part) noexcept;
    /// A call ends before its last response has arrived.
    void end_early(channel_slot& call) noexcept;
    /// The deadline that has passed is one between two parts, which the server does not know.
    [[nodiscard]] bool server_waits(const channel_slot& call, nanoseconds at) const noexcept;
    /// Slots that the server still has for parts of calls that have ended.
    [[nodiscard]] std::uint32_t left_behind() const noexcept;
    /// The connection is gone: its server keeps no slot.
    void settle_all() noexcept;

  private:
    static constexpr std::uint32_t none = ~std::uint32_t{0};
    /// The last call in parts in a slot.
    struct call {
        std::uint64_t next = 0;      ///< number of the part that is handed out next
        std::uint64_t count = 0;     ///< of all parts, once `answered`
        nanoseconds deadline{};      ///< of the whole call
        nanoseconds part_timeout{};  ///< 0: none
        std::uint32_t early = none;  ///< parts that came before others, by number
        std::uint32_t lent = 0;      ///< slots that the server has
        bool answered = false;       ///< its last response has arrived
    };
    /// A slot in its use for parts.
    struct place {
        call_id call;  ///< generation 0: not in this use
        std::uint64_t number = 0;
        std::uint32_t next = none;  ///< in `call::early`
    };

    [[nodiscard]] bool is_open(call_id id) const noexcept;
    void lend(channel_slot& slot, call_id id) noexcept;
    void put_free(channel_slot& slot) noexcept;
    [[nodiscard]] bool keep_early(call& of, channel_slot& part) noexcept;
    void hand_on(call& of, channel_slot& part) noexcept;
    void hand_on_early(call_id id) noexcept;
    void renew_deadline(channel_slot& of, nanoseconds at) noexcept;

    channel_slots& slots_;
    call_backlog& backlog_;
    const channel_lifecycle& life_;
    std::size_t room_;
    std::vector<call> calls_;
    std::vector<place> places_;
};

}  // namespace accel::core
