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
    outgoing_call(call_id its_id, std::size_t bytes, const submit_options& asked) noexcept
        : id(its_id), request_bytes(bytes), options(asked) {}
    outgoing_call(const outgoing_call&) = delete;
    outgoing_call& operator=(const outgoing_call&) = delete;

    /// Adds an entry to `options.metadata`, and copies it. The call is refused if key or value is not valid.
    /// `message_too_large`: more than `max_metadata_entries`, or the entries added here have more than
    /// `max_metadata_bytes`.
    ACCEL_API status add_metadata(std::string_view key, std::string_view value) noexcept;

    const call_id id;
    const std::size_t request_bytes;  ///< of the payload
    /// What the call asks for; may be changed. What it refers to must live until the call has been sent.
    submit_options options;

  private:
    metadata_room room_;
    std::size_t used_ = 0;  ///< bytes of `room_`
};

/// Sees the calls of channels, before they are sent and when they have ended: for authentication, tracing and limits.
/// In `channel_options::interceptors`. Runs on the thread that uses the channel, perhaps under the lock of a
/// `shared_channel`: must not block, and must not use the channel. Several channels may call it at once.
class client_interceptor {
  public:
    client_interceptor() = default;
    client_interceptor(const client_interceptor&) = delete;
    client_interceptor& operator=(const client_interceptor&) = delete;
    virtual ~client_interceptor() = default;

    /// Before the call is sent, in the order of the list. Another status than `ok` refuses it: `submit` returns this
    /// status, and nothing is sent. A pool that offers a call to another server asks again.
    virtual status before(outgoing_call& call) noexcept {
        static_cast<void>(call);
        return status::ok;
    }
    /// Once for each `before`, in reverse order: with the completion that is handed out, or with the failure of a call
    /// that was not sent. Not for parts of a response. `ended.response` is valid only meanwhile. A completion that
    /// nobody has taken ends with its channel.
    virtual void after(const call_outcome& ended) noexcept { static_cast<void>(ended); }
};

/// A request that has its answer, for `server_interceptor::after`, during which its texts are valid.
struct served_call {
    std::uint64_t session_id = 0;
    std::uint64_t trace_id = 0;
    std::string_view scheme;
    std::string_view peer;                     ///< as `exchange::peer`
    std::string_view target;                   ///< as `exchange::target`
    accel::status status = accel::status::ok;  ///< of the answer; `peer_lost`: it did not leave
    std::uint32_t code = 0;                    ///< of the handler
    std::size_t request_bytes = 0;
    std::size_t response_bytes = 0;  ///< of the answer, without parts before it
    accel::timeline timeline;        ///< `queue`, `copy`, `preprocessing`, `inference` and `server`
};

/// Sees the requests of a server, before their handler and when they have their answer. In
/// `server_options::interceptors`; several workers call it at once. Requests that no handler gets are not seen:
/// expired, cancelled, too many, or for a target that the server does not have.
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
    /// Once for each `before`, in reverse order, on the worker's thread. Must not block.
    virtual void after(const served_call& call) noexcept { static_cast<void>(call); }
};

}  // namespace accel
