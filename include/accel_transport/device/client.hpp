// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/detail/wire/tensor_extension.hpp>
#include <accel_transport/device/channel_ref.hpp>
#include <accel_transport/device/detail/channel/parts.hpp>
#include <accel_transport/device/scope.hpp>

#include <cstdint>

/// Calls from a GPU: a kernel writes a request, posts it to the adapter itself and waits for the response.
/// The steps of a call: begin → (write the request) → submit → wait or poll → (read the response) → release.
/// Any number of threads may use one channel; each call belongs to one scope at a time (`scope.hpp`). Without a GPU,
/// the same code runs on a host thread. Names in the folder `detail` are not part of the interface.
namespace accel::device {

/// Takes a free slot, without waiting.
/// `again`: no slot is free.
/// `closed`: the server is draining, or the session is closed.
/// `peer_lost`, `device_lost` (the server's GPU has failed): the session is closed. After `closed` and these two, no
/// call begins any more.
/// `unsupported`: the host was compiled with another version of these headers, or the channel is owned (`own`).
template <class Scope = thread_scope>
[[nodiscard]] ACCEL_HOST_DEVICE_INLINE status begin(const channel_ref& channel, call_ref& out) noexcept {
    return detail::by_first_of<Scope>([&] { return detail::begin_call(channel, out); });
}

/// Sends the first `length` bytes of `request`, as written by the threads of the scope. Unless `submit` returns `ok`,
/// nothing was sent, and the call stays begun.
/// `message_too_large`, `invalid_argument`, `invalid_state`, `peer_lost`, `closed`, `device_lost`.
/// `again`: the send queue stayed full, or too few slots are free for `parts`.
/// `invalid_argument`: also if the channel has too few slots for `parts`.
template <class Scope = thread_scope>
[[nodiscard]] ACCEL_HOST_DEVICE_INLINE status submit(const channel_ref& channel, call_ref& call, std::uint64_t length,
                                                     const call_options& with = {}) noexcept {
    return detail::by_first_of<Scope>([&] { return detail::submit_any(channel, call, length, with); });
}

/// The state of a call, without waiting. `again`: in flight. Any other status is the call's `outcome`: `ok` with the
/// response, a failure from the server, `timed_out`, `peer_lost`, `closed` or `device_lost`; then release the call. If
/// the server answers `again`, the outcome is `overloaded`.
template <class Scope = thread_scope>
[[nodiscard]] ACCEL_HOST_DEVICE_INLINE status poll(const channel_ref& channel, call_ref& call) noexcept {
    return detail::by_first_of<Scope>([&] { return detail::poll_call(channel, call); });
}

/// Waits without a limit of its own: every call ends by its deadline, or with the session.
inline constexpr std::int64_t until_its_end = INT64_MAX;

/// As `poll`, but waits up to `timeout_ns` for the end of the call; then returns `again`.
template <class Scope = thread_scope>
[[nodiscard]] ACCEL_HOST_DEVICE_INLINE status wait(const channel_ref& channel, call_ref& call,
                                                   std::int64_t timeout_ns = until_its_end) noexcept {
    return detail::by_first_of<Scope>([&] { return detail::wait_for_call(channel, call, timeout_ns); });
}

/// The tensors that the response of a call describes; valid until its release. `invalid_state`: the outcome is not
/// `ok`. Otherwise as for a request (`service.hpp`). A kernel describes its request with `accel::describe(call.request,
/// …)`.
[[nodiscard]] ACCEL_HOST_DEVICE inline status tensors(const call_ref& call, tensor* out, std::uint32_t room,
                                                      std::uint32_t& count) noexcept {
    count = 0;
    if (call.outcome != status::ok || call.response == nullptr) return status::invalid_state;
    return wire::tensors_of_message(call.response, call.response_bytes, call.generation, out, room, count);
}

// Responses in parts (`call_options::parts`). Use these two functions for such calls; they accept other calls as well.

/// As `poll(channel, call)`, but the response comes piece by piece. `ok` with `out.more`: a part, in the order in which
/// the server sent them. Without `more`: `again`, or the end of the call, exactly once; it stays. Each part keeps its
/// memory until `release(channel, out)`, also after the end of the call. Calls without parts end in the same way.
template <class Scope = thread_scope>
[[nodiscard]] ACCEL_HOST_DEVICE_INLINE status poll(const channel_ref& channel, call_ref& call,
                                                   arrival_ref& out) noexcept {
    return detail::by_first_of<Scope>([&] { return detail::wait_any(channel, call, out, 0); });
}

/// As `poll(channel, call, out)`, but waits up to `timeout_ns` for a part or the end; then returns `again`.
template <class Scope = thread_scope>
[[nodiscard]] ACCEL_HOST_DEVICE_INLINE status wait(const channel_ref& channel, call_ref& call, arrival_ref& out,
                                                   std::int64_t timeout_ns = until_its_end) noexcept {
    return detail::by_first_of<Scope>([&] { return detail::wait_any(channel, call, out, timeout_ns); });
}

/// Releases a part, so that the server may send another one, or a call that has ended. While the call is in flight,
/// only its scope may release parts.
/// `again`: the send queue stayed full, and nothing was released.
/// `invalid_state`: there is nothing to release.
template <class Scope = thread_scope>
ACCEL_HOST_DEVICE_INLINE status release(const channel_ref& channel, const arrival_ref& arrival) noexcept {
    return detail::by_first_of<Scope>([&] { return detail::release_any(channel, arrival); });
}

/// Ends a submitted call early, with the outcome `cancelled`. The server is notified within about 50 ms.
/// `invalid_state`: the response has arrived, or the call has ended.
template <class Scope = thread_scope>
ACCEL_HOST_DEVICE_INLINE status cancel(const channel_ref& channel, call_ref& call) noexcept {
    return detail::by_first_of<Scope>([&] { return detail::cancel_any(channel, call); });
}

/// Releases a call that has ended, or was begun and never submitted. Its slot is free at once, or when the server's
/// late response has arrived. `invalid_state`: the call is in flight, or already released.
template <class Scope = thread_scope>
ACCEL_HOST_DEVICE_INLINE status release(const channel_ref& channel, const call_ref& call) noexcept {
    return detail::by_first_of<Scope>([&] { return detail::release_call(channel, call); });
}

// An owned channel (`service_sharing::exclusive`). The functions do the same as those above.

/// Makes the calling scope the owner of the channel. An exclusive channel has one owner at a time, and may pass from
/// kernel to kernel. On a shared channel (`gpu_channel::sharing`), any number of scopes may call `own`; their calls
/// then work as shared calls. `unsupported`: the host was compiled with another version of these headers.
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
