// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/config.hpp>
#include <accel_transport/metadata.hpp>
#include <accel_transport/status.hpp>
#include <accel_transport/tensor.hpp>
#include <accel_transport/timeline.hpp>
#include <accel_transport/trace.hpp>

#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace accel {

namespace core {
class channel_core;
}

/// Names one call of one channel. Each use of a slot has a new generation, so old ids are recognised.
struct call_id {
    std::uint32_t slot = 0;
    std::uint32_t generation = 0;
    friend constexpr auto operator<=>(call_id, call_id) noexcept = default;
};

/// The `code` of a completion with `closed` or `not_found` whose call no handler has seen. A handler that fails with
/// such a status and this code also asks the client to send the call to another server.
inline constexpr std::uint32_t unseen_code = 1;

/// How a call has ended, or a part of its response. Plain data of a `completion`.
struct call_outcome {
    call_id id;  ///< of the slot; a part has its own
    accel::status status = accel::status::ok;
    bool more = false;           ///< a part of the response; another part or the last completion follows
    std::uint32_t code = 0;      ///< the handler's code, or `unseen_code`
    call_id call;                ///< as returned by `begin`; equal to `id` except for parts
    std::uint64_t tag = 0;       ///< as given to submit
    std::uint64_t trace_id = 0;  ///< as given to submit
    /// As given to submit; null if none, or invalid. Valid until the slot is released.
    const trace_context* trace = nullptr;
    /// The response in place: in its slot, or in the slice given as `response_into`. On a failure: the handler's
    /// message, if any, on the host. Valid until the slot is released.
    std::span<const std::byte> response;
    accel::timeline timeline;

    /// No handler has seen the call, because its server is stopping or has no such target; another server may be asked.
    [[nodiscard]] bool unseen() const noexcept {
        return code == unseen_code && (status == accel::status::closed || status == accel::status::not_found);
    }
};

/// The result of a call, from `channel::poll` or `channel::call`. Every accepted call has exactly one completion
/// without `more`, its last. With `submit_options::parts`, completions with parts of the response come before it, in
/// order. Owner of the call's slot; move-only. The slot is released when the completion is destroyed or overwritten,
/// also by `poll`. The channel may meanwhile be moved, closed or destroyed: the response stays valid, and with it the
/// channel's memory. Belongs to the thread of its channel.
class completion : public call_outcome {
  public:
    /// Owns no slot.
    completion() noexcept = default;
    completion(completion&& other) noexcept : call_outcome(other), owner_(std::exchange(other.owner_, nullptr)) {}
    completion& operator=(completion&& other) noexcept {
        if (this == &other) return *this;
        release();
        call_outcome::operator=(other);
        owner_ = std::exchange(other.owner_, nullptr);
        return *this;
    }
    ~completion() { release(); }

    /// Releases the slot now; the response and the trace are not valid any more. Releasing a part lets the server send
    /// another one. Without effect on a completion that owns no slot.
    void release() noexcept {
        if (owner_ != nullptr) give_back();
    }
    /// Keeps the slot, whose response stays valid, until `channel::release` of the returned id, or the channel's end.
    ACCEL_API call_id detach() noexcept;

    /// The tensors that the response describes, in the header or in a table. They are at the start of `room`, and all
    /// are within `response`. Room for `max_tensors` is always enough.
    /// `not_found`: the response describes none.
    /// `protocol_error`: the description is malformed.
    /// `message_too_large`: the response describes more than `room` holds.
    /// `unsupported`: the response is in GPU memory or in `response_ranges`, which this function cannot read.
    /// `invalid_state`: not a response, or this object owns no slot any more.
    [[nodiscard]] ACCEL_API result<std::span<tensor>, accel::status> tensors(std::span<tensor> room) const noexcept;
    /// The metadata of the answer, a copy in `room`. The bytes come from an untrusted peer; keys and values are valid.
    /// `not_found`: the answer has none.
    /// `protocol_error`: the metadata is malformed.
    /// `unsupported`: it came after a response that is in GPU memory or in `response_ranges`.
    /// `invalid_state`: not a response, or this object owns no slot any more.
    [[nodiscard]] ACCEL_API result<std::span<const metadata_entry>, accel::status> metadata(
        metadata_room& room) const noexcept;

  private:
    friend class core::channel_core;
    ACCEL_API void give_back() noexcept;
    core::channel_core* owner_ = nullptr;  ///< null: owns no slot
};

}  // namespace accel
