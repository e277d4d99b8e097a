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

/// Names one call of one channel. Each use of a slot has a new generation, so old ids are recognised.
struct call_id {
    std::uint32_t slot = 0;
    std::uint32_t generation = 0;
    friend constexpr auto operator<=>(call_id, call_id) noexcept = default;
};

/// The `code` of a completion with `closed` or `not_found` whose call no handler has seen. A handler that fails with
/// such a status and this code also asks the client to send the call to another server.
inline constexpr std::uint32_t unseen_code = 1;

/// The result of a call, from `channel::poll`. Every accepted call has exactly one completion without `more`, its last.
/// With `submit_options::parts`, completions with parts of the response come before it, in order.
struct completion {
    call_id id;  ///< for `release`; a part has its own id
    accel::status status = accel::status::ok;
    bool more = false;           ///< a part of the response; another part or the last completion follows
    std::uint32_t code = 0;      ///< the handler's code, or `unseen_code`
    call_id call;                ///< as returned by `begin`; equal to `id` except for parts
    std::uint64_t tag = 0;       ///< as given to submit
    std::uint64_t trace_id = 0;  ///< as given to submit
    /// As given to submit; null if none, or invalid. Valid until `channel::release(id)`.
    const trace_context* trace = nullptr;
    /// The response in place: in its slot, or in the slice given as `response_into`. On a failure: the handler's
    /// message, if any, on the host. Valid until `channel::release(id)`.
    std::span<const std::byte> response;
    accel::timeline timeline;

    /// No handler has seen the call, because its server is stopping or has no such target; another server may be asked.
    [[nodiscard]] bool unseen() const noexcept {
        return code == unseen_code && (status == accel::status::closed || status == accel::status::not_found);
    }
};

}  // namespace accel
