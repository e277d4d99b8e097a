#pragma once

#include "core/backend.hpp"
#include "verbs/response_target.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

/// What a peer has written into a slot, read and checked. The peer can write there at any time: each byte is
/// read once.
namespace accel::verbs {

/// What is known of the message that left from, or arrived in, a slot.
struct slot_use {
    std::span<std::byte> response_into;  ///< client: where the answer arrives, if not in its slot
    verbs::response_target target;       ///< server: where the client wants the answer
    std::uint32_t lent_until = 0;        ///< number of the work request that reads lent memory
    bool lent = false;                   ///< … and it has not completed
    bool release_owed = false;
    bool copies_response = false;  ///< client: `response_into` is no memory the device can write
};

/// Server: where a client wants its answer. False: not what a correct client sends.
[[nodiscard]] bool read_response_target(const core::slot_header& header, const std::byte* at,
                                        verbs::response_target& out) noexcept;
/// Client: a response that arrives, or goes from its slot, where the application wanted it. False: it does
/// not fit.
[[nodiscard]] bool take_elsewhere(slot_use& use, core::link_event& event) noexcept;

/// The message in `slot`, which its peer has announced, as an event of the link. False: not what a correct
/// peer sends. `uses`: of all slots.
[[nodiscard, gnu::always_inline]] inline bool read_arrival(const core::link_config& config,
                                                           std::span<slot_use> uses, std::uint32_t slot,
                                                           core::link_event& out) noexcept {
    if (slot >= config.geometry.slots) return false;
    const core::slot_memory& received = *config.receive;
    const std::byte* const bytes = received.header(slot);
    core::read_header(out.header, bytes);
    if (out.header.slot != slot || out.header.length > received.capacity()) return false;
    out.kind = core::event_kind::arrived;
    out.borrowed = false;
    out.reason = status::ok;
    out.owner = config.owner;
    out.payload = {received.payload(slot), out.header.length};
    out.response_room = {};
    slot_use& use = uses[slot];
    if (config.role == core::link_role::client) {
        return use.response_into.empty() || take_elsewhere(use, out);
    }
    use.target.length = 0;
    return out.header.extension_bytes == 0 || read_response_target(out.header, bytes, use.target);
}

}  // namespace accel::verbs
