// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/detail/wire/tensor_extension.hpp>
#include <accel_transport/detail/wire/trace_extension.hpp>
#include <accel_transport/device/clock.hpp>
#include <accel_transport/device/detail/service/exclusive_requests.hpp>
#include <accel_transport/device/detail/service/requests.hpp>
#include <accel_transport/device/scope.hpp>
#include <accel_transport/device/service_ref.hpp>

#include <cstddef>
#include <cstdint>

/// GPU-resident services: a kernel waits for a request, computes, and posts the response to the adapter itself. Without
/// a GPU, the same code serves on a host thread. `scope.hpp` says how threads call together. Names in the folder
/// `detail` are not part of the interface.
namespace accel::device {

/// Time until the client's deadline; zero after the deadline.
[[nodiscard]] ACCEL_HOST_DEVICE inline std::int64_t time_left_ns(const exchange_ref& exchange) noexcept {
    const std::int64_t left = exchange.deadline - clock_ns();
    return left > 0 ? left : 0;
}

namespace detail {

/// Only for an exchange that has not ended, so that the row still belongs to its session.
[[nodiscard]] ACCEL_HOST_DEVICE inline bool is_given_up(const service_ref& service,
                                                        const exchange_ref& exchange) noexcept {
    if (!is_own_version(service.layout)) return false;  // a recorded kernel has not called `take`
    const std::uint32_t left = service.cancels_of_session - 1;
    const std::uint32_t* const row = service.cancels + std::size_t{exchange.session} * service.cancels_of_session;
    return mlx5::load_whole(row + exchange.slot) == exchange.generation || mlx5::load_whole(row + left) != 0 ||
           time_left_ns(exchange) == 0;
}

}  // namespace detail

/// True: nobody waits for the answer any more, because the client has cancelled the call or has disconnected, or the
/// deadline has passed. Stays true. The exchange must still be ended, with `reply(…, 0)` for example. Works for shared
/// and owned services. Reads two words of host memory, which takes a GPU about a microsecond each: ask between steps of
/// the work, not in its innermost loop.
template <class Scope = thread_scope>
[[nodiscard]] ACCEL_HOST_DEVICE_INLINE bool cancelled(const service_ref& service,
                                                      const exchange_ref& exchange) noexcept {
    const auto look = [&] { return detail::is_given_up(service, exchange) ? status::cancelled : status::ok; };
    return detail::by_first_of<Scope>(look) == status::cancelled;
}

/// Reads the tensors that a request describes, in the header or in a table, into `out`, which has `room` elements, and
/// sets `count`. Fails as `accel::tensors` does. Any thread that has the exchange. A kernel describes its response with
/// `accel::describe(exchange.response, …)`.
[[nodiscard]] ACCEL_HOST_DEVICE inline status tensors(const exchange_ref& exchange, tensor* out, std::uint32_t room,
                                                      std::uint32_t& count) noexcept {
    return wire::tensors_of_message(exchange.request, exchange.request_bytes, exchange.generation, out, room, count);
}

/// The trace of a request. Any thread that has the exchange.
/// `not_found`: the request names none.
/// `protocol_error`: the client sent an invalid trace, or has overwritten it.
[[nodiscard]] ACCEL_HOST_DEVICE inline status trace(const exchange_ref& exchange, trace_context& out) noexcept {
    return wire::trace_before(exchange.request - wire::header_bytes, exchange.generation, out);
}

/// Takes the oldest request that is ready, without waiting. Any number of scopes may take at once.
/// `again`: no request is ready.
/// `closed`: the service is stopping.
/// `unsupported`: the host was compiled with another version of these headers.
template <class Scope = thread_scope>
[[nodiscard]] ACCEL_HOST_DEVICE_INLINE status take(const service_ref& service, exchange_ref& out) noexcept {
    return detail::by_first_of<Scope>([&] { return detail::take_request(service, out); });
}

/// The same, but waits up to `timeout_ns` for a request; then returns `timed_out`.
template <class Scope = thread_scope>
[[nodiscard]] ACCEL_HOST_DEVICE_INLINE status wait(const service_ref& service, exchange_ref& out,
                                                   std::int64_t timeout_ns) noexcept {
    return detail::by_first_of<Scope>([&] { return detail::wait_for_request(service, out, timeout_ns); });
}

/// Answers with the first `length` bytes of `response`, as written by the threads of the scope. Ends the exchange,
/// except with `message_too_large`: no answer was sent. `peer_lost`: the client has disconnected.
template <class Scope = thread_scope>
ACCEL_HOST_DEVICE_INLINE status reply(const service_ref& service, const exchange_ref& exchange,
                                      std::uint64_t length) noexcept {
    return detail::by_first_of<Scope>([&] {
        return length > exchange.response_room ? status::message_too_large
                                               : detail::answer_with(service, exchange, {status::ok, 0, length});
    });
}

/// Answers with a failure: a status other than ok, and the service's own code.
template <class Scope = thread_scope>
ACCEL_HOST_DEVICE_INLINE status fail(const service_ref& service, const exchange_ref& exchange, status reason,
                                     std::uint32_t code = 0) noexcept {
    return detail::by_first_of<Scope>([&] {
        return detail::answer_with(service, exchange, {detail::failure_of(reason), code, 0});
    });
}

/// True: the client takes the response in parts. Otherwise only `reply` and `fail` answer.
[[nodiscard]] ACCEL_HOST_DEVICE inline bool in_parts(const exchange_ref& exchange) noexcept {
    return exchange.parts != nullptr;
}

/// Room for the next part of the response, to be written in place. Does not change until `send`. Checks for room
/// itself, so one thread can serve alone. Called by the exchange's scope; `out` is one object per scope, like the
/// exchange.
/// `again`: the client has not read enough yet. Try later, and ask `cancelled`: a client that has cancelled frees no
/// room.
/// `peer_lost`: the client has disconnected.
/// `unsupported`: the client takes no parts.
template <class Scope = thread_scope>
[[nodiscard]] ACCEL_HOST_DEVICE_INLINE status next_part(const service_ref& service, const exchange_ref& exchange,
                                                        part_ref& out) noexcept {
    return detail::by_first_of<Scope>([&] { return detail::name_part(service, exchange, out); });
}

/// Sends the first `length` bytes of the last `next_part`, as written by the threads of the scope. The response
/// continues until `reply` or `fail`. Fails as `next_part`, except:
/// `again`: there is no room from `next_part`.
/// `message_too_large`: nothing was sent.
template <class Scope = thread_scope>
[[nodiscard]] ACCEL_HOST_DEVICE_INLINE status send(const service_ref& service, const exchange_ref& exchange,
                                                   std::uint64_t length) noexcept {
    return detail::by_first_of<Scope>([&] { return detail::send_part(service, exchange, length); });
}

// An owned service (`service_sharing::exclusive`). The functions above return `unsupported` for it.

/// Makes the calling scope the owner of every `parts`th session, starting with number `part`. For block b of n:
/// `own<block_scope>(service, b, n, mine)`. All parts need an owner; owners that run at the same time must use the same
/// `parts`.
/// `unsupported`: the service is shared, or the host was compiled with another version of these headers.
/// `invalid_argument`: `part` is out of range.
template <class Scope = thread_scope>
[[nodiscard]] ACCEL_HOST_DEVICE_INLINE status own(const service_ref& service, std::uint32_t part, std::uint32_t parts,
                                                  owned_sessions& out) noexcept {
    return detail::by_first_of<Scope>([&] { return detail::own_sessions(service, part, parts, out); });
}

/// As for a shared service, but only from the caller's own sessions. The request that follows the last taken one in its
/// session comes first.
template <class Scope = thread_scope>
[[nodiscard]] ACCEL_HOST_DEVICE_INLINE status take(owned_sessions& mine, exchange_ref& out) noexcept {
    return detail::by_lanes_of<Scope>([&] {
        std::int64_t now = 0;
        return detail::look_once<Scope>(mine, out, now);
    });
}

/// Likewise.
template <class Scope = thread_scope>
[[nodiscard]] ACCEL_HOST_DEVICE_INLINE status wait(owned_sessions& mine, exchange_ref& out,
                                                   std::int64_t timeout_ns) noexcept {
    return detail::by_lanes_of<Scope>([&] { return detail::wait_for_request<Scope>(mine, out, timeout_ns); });
}

/// Likewise, by the scope that took the exchange.
template <class Scope = thread_scope>
ACCEL_HOST_DEVICE_INLINE status reply(owned_sessions& mine, const exchange_ref& exchange,
                                      std::uint64_t length) noexcept {
    return detail::by_first_of<Scope>([&] {
        return length > exchange.response_room ? status::message_too_large
                                               : detail::answer_with(mine, exchange, {status::ok, 0, length});
    });
}

/// Likewise.
template <class Scope = thread_scope>
ACCEL_HOST_DEVICE_INLINE status fail(owned_sessions& mine, const exchange_ref& exchange, status reason,
                                     std::uint32_t code = 0) noexcept {
    return detail::by_first_of<Scope>([&] {
        return detail::answer_with(mine, exchange, {detail::failure_of(reason), code, 0});
    });
}

/// Likewise.
template <class Scope = thread_scope>
[[nodiscard]] ACCEL_HOST_DEVICE_INLINE status next_part(owned_sessions& mine, const exchange_ref& exchange,
                                                        part_ref& out) noexcept {
    return detail::by_first_of<Scope>([&] { return detail::name_part(mine, exchange, out); });
}

/// Likewise.
template <class Scope = thread_scope>
[[nodiscard]] ACCEL_HOST_DEVICE_INLINE status send(owned_sessions& mine, const exchange_ref& exchange,
                                                   std::uint64_t length) noexcept {
    return detail::by_first_of<Scope>([&] { return detail::send_part(mine, exchange, length); });
}

}  // namespace accel::device
