// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/status.hpp>
#include <accel_transport/timeline.hpp>
#include <accel_transport/trace.hpp>

#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>

namespace accel {

/// Names one call of one channel. A slot is used again under the next generation, so an old id is recognised.
struct call_id {
    std::uint32_t slot = 0;
    std::uint32_t generation = 0;
    friend constexpr auto operator<=>(call_id, call_id) noexcept = default;
};

/// The `code` of a completion with `closed` or `not_found` whose call no handler has seen. A handler that fails with
/// such a status and this code asks for the same: that the call goes to another server.
inline constexpr std::uint32_t unseen_code = 1;

/// The result of a call, from `channel::poll`: for every accepted call exactly one without `more`, its last. With
/// `submit_options::parts`, parts of the response come before it, in order.
struct completion {
    call_id id;  ///< to be released; a part has its own
    accel::status status = accel::status::ok;
    bool more = false;           ///< a part of the response: others follow, or the last completion
    std::uint32_t code = 0;      ///< the handler's own, or `unseen_code`
    call_id call;                ///< as `begin` gave it; equal to `id` unless this is a part
    std::uint64_t tag = 0;       ///< as given to submit
    std::uint64_t trace_id = 0;  ///< as given to submit
    /// As given to submit; null: none that is valid. Good until `channel::release(id)`.
    const trace_context* trace = nullptr;
    /// The response in place: in its slot, or in the slice given as `response_into`. Valid until
    /// `channel::release(id)`. On a failure it holds the handler's message, if any, on the host.
    std::span<const std::byte> response;
    accel::timeline timeline;

    /// No handler has seen the call: its server stops, or has no such target. So it may be sent to another.
    [[nodiscard]] bool unseen() const noexcept {
        return code == unseen_code && (status == accel::status::closed || status == accel::status::not_found);
    }
};

}  // namespace accel
