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

/// GPU-resident services: a kernel waits for a request, computes, and posts the response to the adapter
/// itself. The same code serves on a thread of the host, where no GPU is. `scope.hpp` says how threads call
/// together. Nothing in the folder `detail` is promised.
namespace accel::device {

/// Time until the client gives up; zero once it has.
[[nodiscard]] ACCEL_HOST_DEVICE inline std::int64_t time_left_ns(const exchange_ref& exchange) noexcept {
    const std::int64_t left = exchange.deadline - clock_ns();
    return left > 0 ? left : 0;
}

namespace detail {

/// The exchange is not ended yet, so that the row is still its session's.
[[nodiscard]] ACCEL_HOST_DEVICE inline bool is_given_up(const service_ref& service,
                                                        const exchange_ref& exchange) noexcept {
    if (!is_own_version(service.layout)) return false;  // a recorded kernel has not called `take`
    const std::uint32_t left = service.cancels_of_session - 1;
    const std::uint32_t* const row = service.cancels + std::size_t{exchange.session} * service.cancels_of_session;
    return mlx5::load_whole(row + exchange.slot) == exchange.generation || mlx5::load_whole(row + left) != 0 ||
           time_left_ns(exchange) == 0;
}

}  // namespace detail

/// True: nobody waits for the answer any more. The client has cancelled the call or has left, or the deadline has
/// passed; it stays so. The exchange still has to be ended, with `reply(…, 0)` for example. Of any
/// service, shared or exclusive. Reads two words of the host's memory, on a GPU about a microsecond each: ask between
/// steps of the work, not in its innermost loop.
template <class Scope = thread_scope>
[[nodiscard]] ACCEL_HOST_DEVICE_INLINE bool cancelled(const service_ref& service,
                                                      const exchange_ref& exchange) noexcept {
    const auto look = [&] { return detail::is_given_up(service, exchange) ? status::cancelled : status::ok; };
    return detail::by_first_of<Scope>(look) == status::cancelled;
}

/// The tensors that a request describes, in either form; into `out`, with room for so many, and how
/// many there are. Fails as `accel::tensors` does. Any thread that has the exchange. A kernel describes its response
/// with `accel::describe(exchange.response, …)`.
[[nodiscard]] ACCEL_HOST_DEVICE inline status tensors(const exchange_ref& exchange, tensor* out, std::uint32_t room,
                                                      std::uint32_t& count) noexcept {
    return wire::tensors_of_message(exchange.request, exchange.request_bytes, exchange.generation, out, room, count);
}

/// The trace that a request belongs to. `not_found`: it names none; `protocol_error`: what its client says is no trace,
/// or is none any more. Any thread that has the exchange.
[[nodiscard]] ACCEL_HOST_DEVICE inline status trace(const exchange_ref& exchange, trace_context& out) noexcept {
    return wire::trace_before(exchange.request - wire::header_bytes, exchange.generation, out);
}

/// Takes the oldest request that is ready, without waiting. `again`: there is none. `closed`: the service has
/// been told to stop. `unsupported`: the host was compiled against another version of these headers. Any
/// number of scopes may take at once.
template <class Scope = thread_scope>
[[nodiscard]] ACCEL_HOST_DEVICE_INLINE status take(const service_ref& service, exchange_ref& out) noexcept {
    return detail::by_first_of<Scope>([&] { return detail::take_request(service, out); });
}

/// The same, and waits for one, at most `timeout_ns`: then `timed_out`.
template <class Scope = thread_scope>
[[nodiscard]] ACCEL_HOST_DEVICE_INLINE status wait(const service_ref& service, exchange_ref& out,
                                                   std::int64_t timeout_ns) noexcept {
    return detail::by_first_of<Scope>([&] { return detail::wait_for_request(service, out, timeout_ns); });
}

/// Answers with the first `length` bytes of `response`, as the threads of the scope have written them.
/// `message_too_large` answers nothing, and leaves the exchange as it is; any other result ends it.
/// `peer_lost`: the client is gone.
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

/// True: the client takes the response in parts. Else only `reply` and `fail` answer.
[[nodiscard]] ACCEL_HOST_DEVICE inline bool in_parts(const exchange_ref& exchange) noexcept {
    return exchange.parts != nullptr;
}

/// Room for the next part of the response, to be written in place; the same until `send`. `again`: the client has not
/// read enough yet. Then try later, and ask `cancelled`: nobody else hears that the client gives no room any more.
/// `peer_lost`: the client is gone. `unsupported`: it takes no parts. Looks for room itself, so that one thread can
/// serve alone. By the scope that has the exchange; `out` is one object for it, as the exchange is.
template <class Scope = thread_scope>
[[nodiscard]] ACCEL_HOST_DEVICE_INLINE status next_part(const service_ref& service, const exchange_ref& exchange,
                                                        part_ref& out) noexcept {
    return detail::by_first_of<Scope>([&] { return detail::name_part(service, exchange, out); });
}

/// Sends the first `length` bytes of what `next_part` has named, as the threads of the scope have written them, and
/// goes on: `reply` or `fail` ends the response. Fails as `next_part`, where `again` says that nothing is named;
/// `message_too_large` sends nothing and changes nothing.
template <class Scope = thread_scope>
[[nodiscard]] ACCEL_HOST_DEVICE_INLINE status send(const service_ref& service, const exchange_ref& exchange,
                                                   std::uint64_t length) noexcept {
    return detail::by_first_of<Scope>([&] { return detail::send_part(service, exchange, length); });
}

// A service whose sessions have one owner each (`service_sharing::exclusive`). The functions above say
// `unsupported` for it.

/// Makes the calling scope the owner of every `parts`th session, from number `part` on: of block b of n,
/// `own<block_scope>(service, b, n, mine)`. All parts need an owner, and all that run at once the same `parts`.
/// `unsupported`: the service is shared, or the host was compiled against another version of these headers.
/// `invalid_argument`: there is no such part.
template <class Scope = thread_scope>
[[nodiscard]] ACCEL_HOST_DEVICE_INLINE status own(const service_ref& service, std::uint32_t part, std::uint32_t parts,
                                                  owned_sessions& out) noexcept {
    return detail::by_first_of<Scope>([&] { return detail::own_sessions(service, part, parts, out); });
}

/// As for a shared service, but from the caller's own sessions, and for no other scope. The request that lies
/// behind the one taken last comes first.
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
