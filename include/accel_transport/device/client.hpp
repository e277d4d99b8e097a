// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/detail/wire/tensor_extension.hpp>
#include <accel_transport/device/channel_ref.hpp>
#include <accel_transport/device/detail/channel/parts.hpp>
#include <accel_transport/device/scope.hpp>

#include <cstdint>

/// Calls from a GPU: a kernel writes a request, posts it to the adapter itself and waits for the response. A
/// call goes begin → (write the request) → submit → wait or poll → (read the response) → release. Any number
/// of threads use one channel; each call has one scope at a time (`scope.hpp`). The same code runs on a
/// thread of the host, where no GPU is. Nothing in the folder `detail` is promised.
namespace accel::device {

/// Takes a free slot, without waiting. `again`: none is free. `closed`: the server drains, or the session is over;
/// `peer_lost`, `device_lost` (the server's GPU has failed): the session is over. After these three no call begins any
/// more. `unsupported`: the host was compiled against another version of these headers, or the channel has
/// `service_sharing::exclusive` (`own`).
template <class Scope = thread_scope>
[[nodiscard]] ACCEL_HOST_DEVICE_INLINE status begin(const channel_ref& channel, call_ref& out) noexcept {
    return detail::by_first_of<Scope>([&] { return detail::begin_call(channel, out); });
}

/// Sends the first `length` bytes of `request`, as the threads of the scope have written them. On anything
/// but `ok` nothing was sent, and the call stays begun: `message_too_large`, `invalid_argument`,
/// `invalid_state`, `again` (the send queue stayed full), `peer_lost`, `closed`, `device_lost`. With `parts` also
/// `again`: too few slots are free; `invalid_argument`: the channel has too few.
template <class Scope = thread_scope>
[[nodiscard]] ACCEL_HOST_DEVICE_INLINE status submit(const channel_ref& channel, call_ref& call, std::uint64_t length,
                                                     const call_options& with = {}) noexcept {
    return detail::by_first_of<Scope>([&] { return detail::submit_any(channel, call, length, with); });
}

/// The state of a call, without waiting. `again`: it is in flight. Anything else is its outcome, as in
/// `outcome`: `ok` with the response, a failure that the server answered, `timed_out`, `peer_lost`, `closed` or
/// `device_lost`; then release the call. A server's answer `again` is reported as `overloaded`.
template <class Scope = thread_scope>
[[nodiscard]] ACCEL_HOST_DEVICE_INLINE status poll(const channel_ref& channel, call_ref& call) noexcept {
    return detail::by_first_of<Scope>([&] { return detail::poll_call(channel, call); });
}

/// Every call ends: by its own deadline at the latest, or with the session.
inline constexpr std::int64_t until_its_end = INT64_MAX;

/// As `poll`, and waits for the end of the call for at most `timeout_ns`: then `again`.
template <class Scope = thread_scope>
[[nodiscard]] ACCEL_HOST_DEVICE_INLINE status wait(const channel_ref& channel, call_ref& call,
                                                   std::int64_t timeout_ns = until_its_end) noexcept {
    return detail::by_first_of<Scope>([&] { return detail::wait_for_call(channel, call, timeout_ns); });
}

/// The tensors that the response of a call describes, if its outcome is `ok`, until its release; otherwise as for a
/// request (`service.hpp`). A kernel describes its request with `accel::describe(call.request, …)`.
[[nodiscard]] ACCEL_HOST_DEVICE inline status tensors(const call_ref& call, tensor* out, std::uint32_t room,
                                                      std::uint32_t& count) noexcept {
    count = 0;
    if (call.outcome != status::ok || call.response == nullptr) return status::invalid_state;
    return wire::tensors_of_message(call.response, call.response_bytes, call.generation, out, room, count);
}

// Responses in parts (`call_options::parts`). Such a call is looked at by these two, which take other calls as well.

/// As `poll(channel, call)`, but the response comes piece by piece: `ok` with `out.more` is a part, in the order in
/// which the server sent them. Everything else is said without `more`: `again`, or exactly one end, which stays. Each
/// part keeps its memory until `release(channel, out)`, also after the end of the call. A call that takes no parts ends
/// so too.
template <class Scope = thread_scope>
[[nodiscard]] ACCEL_HOST_DEVICE_INLINE status poll(const channel_ref& channel, call_ref& call,
                                                   arrival_ref& out) noexcept {
    return detail::by_first_of<Scope>([&] { return detail::wait_any(channel, call, out, 0); });
}

/// As `poll(channel, call, out)`, and waits for a part or the end for at most `timeout_ns`: then `again`.
template <class Scope = thread_scope>
[[nodiscard]] ACCEL_HOST_DEVICE_INLINE status wait(const channel_ref& channel, call_ref& call, arrival_ref& out,
                                                   std::int64_t timeout_ns = until_its_end) noexcept {
    return detail::by_first_of<Scope>([&] { return detail::wait_any(channel, call, out, timeout_ns); });
}

/// Releases a part, so that the server may send one more, or the call that has ended. While its call goes on, by the
/// scope that has the call. `again`: the send queue stayed full, and nothing was released; `invalid_state`: there is
/// nothing to release.
template <class Scope = thread_scope>
ACCEL_HOST_DEVICE_INLINE status release(const channel_ref& channel, const arrival_ref& arrival) noexcept {
    return detail::by_first_of<Scope>([&] { return detail::release_any(channel, arrival); });
}

/// Ends a submitted call early: its outcome is `cancelled`. The server hears of it, about 50 ms later at the
/// latest. `invalid_state`: its response is there, or it has ended.
template <class Scope = thread_scope>
ACCEL_HOST_DEVICE_INLINE status cancel(const channel_ref& channel, call_ref& call) noexcept {
    return detail::by_first_of<Scope>([&] { return detail::cancel_any(channel, call); });
}

/// Releases a call that has ended, or was begun and never submitted. Its slot is free at once, or when the
/// server's late response has come. `invalid_state`: the call is in flight, or has been released.
template <class Scope = thread_scope>
ACCEL_HOST_DEVICE_INLINE status release(const channel_ref& channel, const call_ref& call) noexcept {
    return detail::by_first_of<Scope>([&] { return detail::release_call(channel, call); });
}

// A channel whose calls have one owner (`service_sharing::exclusive`). What is said above holds for each function.

/// Makes the calling scope the owner of the channel: a channel has one at a time, and passes from kernel to kernel. Of
/// a shared channel, which `gpu_channel::sharing` tells, any number of scopes may be "owners": their calls go the
/// shared way. `unsupported`: the host was compiled against another version of these headers.
template <class Scope = thread_scope>
[[nodiscard]] ACCEL_HOST_DEVICE_INLINE status own(const channel_ref& channel, owned_channel& out) noexcept {
    return detail::by_first_of<Scope>([&] { return detail::own_channel(channel, out); });
}
template <class Scope = thread_scope>
[[nodiscard]] ACCEL_HOST_DEVICE_INLINE status begin(owned_channel& mine, call_ref& out) noexcept {
    return detail::by_first_of<Scope>([&] { return detail::begin_call(mine, out); });
}
template <class Scope = thread_scope>
[[nodiscard]] ACCEL_HOST_DEVICE_INLINE status submit(owned_channel& mine, call_ref& call, std::uint64_t length,
                                                     const call_options& with = {}) noexcept {
    return detail::by_first_of<Scope>([&] { return detail::submit_any(mine, call, length, with); });
}
template <class Scope = thread_scope>
[[nodiscard]] ACCEL_HOST_DEVICE_INLINE status poll(owned_channel& mine, call_ref& call) noexcept {
    return detail::by_first_of<Scope>([&] { return detail::poll_call(mine, call); });
}
template <class Scope = thread_scope>
[[nodiscard]] ACCEL_HOST_DEVICE_INLINE status wait(owned_channel& mine, call_ref& call,
                                                   std::int64_t timeout_ns = until_its_end) noexcept {
    return detail::by_first_of<Scope>([&] { return detail::wait_for_call(mine, call, timeout_ns); });
}
template <class Scope = thread_scope>
[[nodiscard]] ACCEL_HOST_DEVICE_INLINE status poll(owned_channel& mine, call_ref& call, arrival_ref& out) noexcept {
    return detail::by_first_of<Scope>([&] { return detail::wait_any(mine, call, out, 0); });
}
template <class Scope = thread_scope>
[[nodiscard]] ACCEL_HOST_DEVICE_INLINE status wait(owned_channel& mine, call_ref& call, arrival_ref& out,
                                                   std::int64_t timeout_ns = until_its_end) noexcept {
    return detail::by_first_of<Scope>([&] { return detail::wait_any(mine, call, out, timeout_ns); });
}
template <class Scope = thread_scope>
ACCEL_HOST_DEVICE_INLINE status release(owned_channel& mine, const arrival_ref& arrival) noexcept {
    return detail::by_first_of<Scope>([&] { return detail::release_any(mine, arrival); });
}
template <class Scope = thread_scope>
ACCEL_HOST_DEVICE_INLINE status cancel(owned_channel& mine, call_ref& call) noexcept {
    return detail::by_first_of<Scope>([&] { return detail::cancel_any(mine, call); });
}
template <class Scope = thread_scope>
ACCEL_HOST_DEVICE_INLINE status release(owned_channel& mine, const call_ref& call) noexcept {
    return detail::by_first_of<Scope>([&] { return detail::release_call(mine, call); });
}

}  // namespace accel::device
