// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/channel.hpp>
#include <accel_transport/completion.hpp>
#include <accel_transport/config.hpp>
#include <accel_transport/metadata.hpp>
#include <accel_transport/server.hpp>
#include <accel_transport/status.hpp>
#include <accel_transport/timeline.hpp>

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace accel {

/// A call that is about to be sent, for `client_interceptor::before`. Lives until the call has been sent or refused.
class outgoing_call {
  public:
    outgoing_call(std::uint64_t its_channel, call_id its_id, std::size_t bytes, const submit_options& asked) noexcept
        : channel(its_channel), id(its_id), request_bytes(bytes), options(asked) {}
    outgoing_call(const outgoing_call&) = delete;
    outgoing_call& operator=(const outgoing_call&) = delete;

    /// Adds an entry to `options.metadata`, and copies it. The call is refused if key or value is not valid.
    /// `message_too_large`: more than `max_metadata_entries`, or the entries added here have more than
    /// `max_metadata_bytes`.
    ACCEL_API status add_metadata(std::string_view key, std::string_view value) noexcept;

    const std::uint64_t channel;      ///< a number of its own for each channel of this process; a pool has several
    const call_id id;                 ///< in that channel
    const std::size_t request_bytes;  ///< of the payload; of its first piece, if the request comes in parts
    /// An interceptor may change `timeout`, `trace_id`, `trace`, `baggage`, `metadata` and `target`; changes of the
    /// other options have no effect. What they refer to must live until the call has been sent.
    submit_options options;

  private:
    metadata_room room_;
    std::size_t used_ = 0;  ///< bytes of `room_`
};

/// A call that has ended, for `client_interceptor::after`. `channel` and `outcome.call` name it as `before` did.
struct ended_call {
    std::uint64_t channel = 0;
    const call_outcome& outcome;  ///< its response and trace are valid only during `after`
};

/// Sees the calls of channels, before they are sent and when they have ended: for authentication, tracing and limits.
/// In `channel_options::interceptors`. Runs on the thread that uses the channel, under the locks of a `shared_channel`
/// or pool: must not block, must not use the channel or pool, and must not take a lock that is held while these are
/// used. Several channels may call it at once.
class client_interceptor {
  public:
    client_interceptor() = default;
    client_interceptor(const client_interceptor&) = delete;
    client_interceptor& operator=(const client_interceptor&) = delete;
    virtual ~client_interceptor() = default;

    /// Before the call is sent, in the order of the list. Another status than `ok` refuses it: nothing is sent, and
    /// `submit` returns this status, or `overloaded` in place of `again`, `closed`, `peer_lost` and `device_lost`,
    /// which speak of the channel. A call that a pool offers to another server is another one.
    virtual status before(outgoing_call& call) noexcept {
        static_cast<void>(call);
        return status::ok;
    }
    /// Once for each `before`, in reverse order: with the completion that is handed out, with the failure of a call
    /// that was not sent, or, if nobody takes the completion, when the channel is destroyed. Not for parts of a
    /// response.
    virtual void after(const ended_call& ended) noexcept { static_cast<void>(ended); }
};

/// An answered request, for `server_interceptor::after`. Its strings are valid only during `after`.
struct served_call {
    std::uint64_t session_id = 0;
    call_id id;  ///< as `exchange::id`
    std::uint64_t trace_id = 0;
    std::string_view scheme;
    std::string_view peer;                     ///< as `exchange::peer`
    std::string_view target;                   ///< as `exchange::target`
    accel::status status = accel::status::ok;  ///< of the answer; `peer_lost`: it did not leave
    std::uint32_t code = 0;                    ///< of the handler
    std::size_t request_bytes = 0;             ///< of the first piece, if the request came in parts
    /// Of the answer with metadata that follows it, or of the failure's text; without parts before it.
    std::size_t response_bytes = 0;
    accel::timeline timeline;  ///< `queue`, `copy`, `preprocessing`, `inference` and `server`
};

/// Sees the requests of a server, before their handler and when they have their answer. In
/// `server_options::interceptors`; several workers call it at once. Requests that no handler gets are not seen:
/// expired, cancelled, too many, or for a target that the server does not have. Nor are questions for targets and
/// health.
class server_interceptor {
  public:
    server_interceptor() = default;
    server_interceptor(const server_interceptor&) = delete;
    server_interceptor& operator=(const server_interceptor&) = delete;
    virtual ~server_interceptor() = default;

    /// On the worker's thread, in place of the handler's first lines and as the handler may do there; in the order of
    /// the list. An error is the answer, with its code, `error::native` as the handler's code, and its message; then
    /// neither later interceptors nor the handler see the request.
    virtual result<void> before(const exchange& request) {
        static_cast<void>(request);
        return {};
    }
    /// Once for each `before`, in reverse order. On the worker's thread, perhaps within the handler's `reply` or
    /// `fail`: must not block, nor take a lock that a handler holds around these. An answer that comes after the server
    /// has stopped is seen on the thread of the last such answer. An answer whose stream is stuck when the server stops
    /// is not seen.
    virtual void after(const served_call& call) noexcept { static_cast<void>(call); }
};

}  // namespace accel
