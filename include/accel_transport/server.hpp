// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/completion.hpp>
#include <accel_transport/config.hpp>
#include <accel_transport/context.hpp>
#include <accel_transport/function.hpp>
#include <accel_transport/metadata.hpp>
#include <accel_transport/options.hpp>
#include <accel_transport/status.hpp>
#include <accel_transport/target.hpp>
#include <accel_transport/tensor.hpp>
#include <accel_transport/timeline.hpp>
#include <accel_transport/trace.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

struct CUstream_st;

namespace accel {

namespace core {
struct exchange_state;
struct internals;
class server_core;
}  // namespace core

/// A part of a request, from `exchange::receive`, or why there is none. Owner of the part's slot; move-only. The client
/// gets the slot back, for another part, when this object is destroyed: in any order, on any thread, also after the
/// answer.
class request_part {
  public:
    /// Owns no part.
    request_part() noexcept = default;
    /// The same, for this reason.
    explicit request_part(accel::status why) noexcept : status_(why) {}
    request_part(request_part&& other) noexcept
        : state_(std::exchange(other.state_, nullptr)), status_(other.status_), last_(other.last_) {}
    request_part& operator=(request_part&& other) noexcept {
        if (this == &other) return *this;
        release();
        state_ = std::exchange(other.state_, nullptr);
        status_ = other.status_;
        last_ = other.last_;
        return *this;
    }
    ~request_part() { release(); }

    /// True: this object has a part. False: `status` says why not.
    explicit operator bool() const noexcept { return state_ != nullptr; }
    [[nodiscard]] accel::status status() const noexcept { return status_; }
    /// The part in place, until the release. The bytes come from an untrusted peer. Where the transport puts them: on
    /// the host, over `gdr` on the GPU. Over `local`, once the client has given up, this is a copy, as
    /// `exchange::request()`.
    [[nodiscard]] ACCEL_API std::span<const std::byte> bytes() const noexcept;
    /// The request ends with this part, which may be empty.
    [[nodiscard]] bool last() const noexcept { return last_; }
    /// Gives the slot back now. Without effect on an object that has no part.
    void release() noexcept {
        if (state_ != nullptr) give_back();
    }

  private:
    friend class exchange;
    request_part(core::exchange_state* part, bool last) noexcept
        : state_(part), status_(accel::status::ok), last_(last) {}
    ACCEL_API void give_back() noexcept;
    core::exchange_state* state_ = nullptr;
    accel::status status_ = accel::status::invalid_state;
    bool last_ = false;
};

/// The server's end of one request: read the request, write the response in place, reply. Owner; move-only.
/// A handler may keep an exchange, move it to any thread and answer later, in any order. Destroying an unanswered
/// exchange answers `abandoned`. Using an exchange after its answer ends the process with a message.
class ACCEL_API exchange {
  public:
    /// A callback for `await_part` and `await_request_part`. Derive from this type to add state.
    struct part_waiter {
        /// Runs on a worker's thread; must not block.
        void (*wake)(part_waiter& self) noexcept = nullptr;
    };

    exchange(exchange&& other) noexcept : state_(other.state_) { other.state_ = nullptr; }
    exchange& operator=(exchange&& other) noexcept;
    ~exchange() {
        if (state_ != nullptr) abandon();
    }

    /// Where `request` and `response` are: `server_options::memory`.
    [[nodiscard]] memory_kind memory() const noexcept;
    /// The request in place; valid until the answer. The bytes come from an untrusted peer. Aligned to at least 8
    /// bytes, except slices lent over `local`, which keep their owner's alignment. Over `local`, once the client has
    /// given up, this is a copy, and earlier spans of lent memory are invalid (docs/memory.md).
    [[nodiscard]] std::span<const std::byte> request() const noexcept;
    /// Room for the response, to be written in place; its size is the longest response that the client accepts. Over
    /// `local`, once the client has given up, this is other memory too.
    [[nodiscard]] std::span<std::byte> response() const noexcept;
    /// The request in place, as memory that channels of the same context can lend (`channel::submit`). Keep the
    /// exchange until the completion of each call that lends this memory; the memory stays valid until then, even after
    /// the client has disconnected (docs/memory.md). Allocates on first use in a session.
    /// `unsupported`: the request is not in a slot on the host (over `local`, on a GPU, and over `zmq` from 1 KiB on);
    /// copy it.
    /// `out_of_memory`.
    [[nodiscard]] result<slice, status> request_slice() const noexcept;
    /// `response()` likewise, for `submit_options::response_into`; `reply(length)` then answers with what has arrived.
    /// For that, the other server gets write access to all response slots of this session (rdma, gdr, gpu).
    [[nodiscard]] result<slice, status> response_slice() const noexcept;
    /// The tensors that the request describes, in the header or in a table. They are at the start of `room`, and all
    /// are within `request()`. Room for `max_tensors` is always enough.
    /// `not_found`: the request describes none.
    /// `protocol_error`: the description is malformed.
    /// `message_too_large`: the request describes more than `room` holds.
    /// `unsupported`: the request is in GPU memory, which this function cannot read.
    /// `peer_lost`: the client has disconnected.
    [[nodiscard]] result<std::span<tensor>, status> tensors(std::span<tensor> room) const noexcept;
    /// The call, as its client names it: unique among the open requests of a session.
    [[nodiscard]] call_id id() const noexcept;
    [[nodiscard]] std::uint64_t trace_id() const noexcept;
    /// The trace of the request, as the parent of the handler's own spans.
    /// `not_found`: the request names none.
    /// `protocol_error`: the client sent an invalid trace, or has overwritten it.
    /// `peer_lost`: the client has disconnected.
    [[nodiscard]] result<trace_context, status> trace() const noexcept;
    /// Copies the request's W3C Baggage to the start of `room` and returns it. The bytes come from an untrusted peer.
    /// Room for `max_baggage_bytes` is always enough.
    /// `not_found`: the request has none.
    /// `message_too_large`: the request has more bytes than `room`.
    /// `protocol_error`: the client's header extensions are malformed.
    /// `peer_lost`: the client has disconnected.
    [[nodiscard]] result<std::string_view, status> baggage(std::span<char> room) const noexcept;
    /// The metadata of the request, a copy in `room`. The bytes come from an untrusted peer; keys and values are valid.
    /// `not_found`: the request has none.
    /// `protocol_error`: the metadata is malformed.
    /// `unsupported`: it came after the payload, and the handler's memory is on a GPU.
    /// `peer_lost`: the client has disconnected.
    [[nodiscard]] result<std::span<const metadata_entry>, status> metadata(metadata_room& room) const noexcept;
    /// The name of the target that the request asked for; empty: none. Valid until the answer, also if the target is
    /// removed meanwhile.
    [[nodiscard]] std::string_view target() const noexcept;
    [[nodiscard]] std::uint64_t session_id() const noexcept;
    [[nodiscard]] std::string_view scheme() const noexcept;
    /// The caller: the client's public key ("ed25519:…"), or its certificate's first DNS name, or else the common name.
    /// Empty if the client is not authenticated: anonymous, with `insecure`, and over `local`. Valid until the answer.
    [[nodiscard]] std::string_view peer() const noexcept;
    /// Time until the client's deadline; zero after the deadline.
    [[nodiscard]] std::chrono::nanoseconds time_left() const noexcept;
    /// True once nobody waits for the answer: the call was cancelled, the deadline has passed, or the client has
    /// disconnected. The client drops any answer, but reuses the slot only after one: end with `reply(0)` or `fail`.
    /// Takes a few ns, and a clock read if there is a deadline. Any thread, until the answer.
    [[nodiscard]] bool cancelled() const noexcept;
    /// The same as an event, for work that waits: requests the stop at that time, until the answer. Callbacks run on a
    /// thread of their own, one after another, and must not stop the server. Allocates; the first call starts that
    /// thread. If the thread cannot be started, a log line says so, and the token stops once a later call has started
    /// the thread.
    [[nodiscard]] std::stop_token stop_token() const;
    /// On a GPU: the stream (a `cudaStream_t`) that brings the request and sends the response. Launch kernels on it and
    /// answer without waiting for them; the answer leaves when the stream reaches it. Null on the host.
    [[nodiscard]] CUstream_st* stream() const noexcept;
    /// On a GPU: this stage (preprocessing, then inference) begins at this point of the stream and ends at the next
    /// mark or the answer. Does not wait for the GPU.
    void mark(stage what) noexcept;
    /// Adds `duration` to a stage of the timeline that travels back to the client.
    void record(stage what, std::chrono::nanoseconds duration) noexcept;

    /// Describes the tensors of the response, before `reply(length)`, for `completion::tensors`. Travels and fails like
    /// `submit_options::tensors`. Also fails with `message_too_large`, and with `peer_lost`: the client has
    /// disconnected.
    [[nodiscard]] status describe(std::size_t length, std::span<const tensor> list) noexcept;
    /// The same, before `reply(payload, leases)`.
    [[nodiscard]] status describe(slice payload, std::span<const tensor> list) noexcept;

    /// True: the client takes the response in parts (`submit_options::parts`); `reply` or `fail` ends the parts.
    [[nodiscard]] bool in_parts() const noexcept;
    /// Room for the next part, to be written in place: on the host, over `gdr` on the GPU. Empty if the client has its
    /// maximum of unread parts, or takes no parts. Does not change until `send`.
    [[nodiscard]] std::span<std::byte> part() noexcept;
    /// The same, but waits up to `timeout` for room, the end of the call, or its client's end; `send` says which. Does
    /// not wait on the thread that serves the client, in its handler or with `workers = 0`: room would not arrive
    /// meanwhile. Allocates if it waits, and starts the thread of `stop_token`. Not while an `await_part` is pending.
    [[nodiscard]] std::span<std::byte> part(std::chrono::nanoseconds timeout) noexcept;
    /// Sends the first `length` bytes of the last `part()`; the response continues. Waits for nothing, not even for
    /// `stream()`.
    /// `again`: the last `part()` was empty.
    /// `message_too_large`.
    /// `unsupported`: the client takes no parts.
    /// `cancelled`, `peer_lost`: nobody waits for the parts any more.
    [[nodiscard]] status send(std::size_t length) noexcept;
    /// The same with a copy of `bytes`, which are on the host.
    /// `unsupported`: also if `part()` is on a GPU; write there and use `send(length)`.
    [[nodiscard]] status send(std::span<const std::byte> bytes) noexcept;
    /// The same, but waits for room as `part(timeout)` does. Unless it returns `ok`, nothing was sent.
    /// `timed_out`: no room came within `timeout`.
    /// `cancelled`: the call was cancelled, or its deadline has passed.
    /// `peer_lost`: the client has disconnected.
    /// `again`: the client takes no part now, and this thread cannot wait, because it serves the client or memory is
    /// short.
    [[nodiscard]] status send(std::span<const std::byte> bytes, std::chrono::nanoseconds timeout) noexcept;
    /// True: there is room for a part, or there never will be; `who` is not called. False: `who` is called once, when
    /// there is room, the client has disconnected, or the exchange is answered; `who` must live until then. It may be
    /// called early: look, and wait again. At most one waiter at a time. Watch `stop_token` as well: a client that has
    /// cancelled frees no room.
    [[nodiscard]] bool await_part(part_waiter& who) noexcept;

    /// True: parts of the request follow (`submit_options::continues`) that `receive` has not given. `request()` is the
    /// first of them. The handler may answer before the last part. If it replies without having called this, `receive`
    /// or `await_request_part`, the client gets `unsupported`: the handler has taken a piece for the whole request.
    [[nodiscard]] bool continues() const noexcept;
    /// The next part of the request, in the order in which the client has sent them. Waits for nothing.
    /// `again`: it has not arrived.
    /// `invalid_state`: there are no more.
    /// `cancelled`, `peer_lost`: nobody waits for the answer any more.
    [[nodiscard]] request_part receive() noexcept;
    /// The same, but waits up to `timeout` for the part, under the conditions of `part(timeout)`.
    /// `timed_out`: nothing came within `timeout`.
    /// `cancelled`: the call was cancelled, or its deadline has passed.
    /// `again`: nothing has arrived, and this thread cannot wait, because it serves the client or memory is short.
    [[nodiscard]] request_part receive(std::chrono::nanoseconds timeout) noexcept;
    /// As `await_part`, for the next part of the request. One waiter for each of the two may be pending.
    [[nodiscard]] bool await_request_part(part_waiter& who) noexcept;

    /// Answers with the first `length` bytes of `response()`. Any thread. Ends the exchange, except with
    /// `message_too_large`: no answer was sent. `peer_lost`: the client has disconnected.
    status reply(std::size_t length) noexcept;
    /// Answers with `payload` in place. Increments `leases` now, and decrements it when the transport has released the
    /// payload; over `local` when the client has released the response, even if this server has ended. Until then both
    /// must stay valid.
    /// `unsupported`: the payload is on a GPU, the handler's memory is not, and the transport cannot read it.
    status reply(slice payload, std::atomic<std::uint32_t>& leases) noexcept;
    /// The same with metadata, for `completion::metadata`, which must not lie in `response()`. It travels with the
    /// header if it fits there, else after the payload, and takes room of the response. Then lent memory is copied, and
    /// nothing is lent. Unless it returns `ok` or `peer_lost`, no answer was sent. `invalid_argument`,
    /// `message_too_large`, `unsupported`: as `submit_options::metadata`.
    status reply(std::size_t length, std::span<const metadata_entry> metadata) noexcept;
    status reply(slice payload, std::atomic<std::uint32_t>& leases, std::span<const metadata_entry> metadata) noexcept;
    /// Answers with a failure: a status other than ok, the handler's own code, and a short message for people.
    status fail(status reason, std::uint32_t code = 0, std::string_view message = {}) noexcept;

  private:
    friend struct core::internals;
    explicit exchange(core::exchange_state* state) noexcept : state_(state) {}
    void abandon() noexcept;
    [[nodiscard]] bool copies_to_gpu(std::span<const std::byte> bytes) const noexcept;
    [[nodiscard]] status describe(std::span<std::byte> payload, bool on_host, std::span<const tensor> list) noexcept;
    [[nodiscard]] status reply_with_copy(slice payload, std::size_t bytes,
                                         std::span<const metadata_entry> metadata) noexcept;
    core::exchange_state* state_;
};

/// Measures the enclosing scope as one stage of an exchange.
class stage_timer {
  public:
    stage_timer(exchange& target, stage what) noexcept
        : target_(target), what_(what), start_(std::chrono::steady_clock::now()) {}
    stage_timer(const stage_timer&) = delete;
    stage_timer& operator=(const stage_timer&) = delete;
    ~stage_timer() { target_.record(what_, std::chrono::steady_clock::now() - start_); }

  private:
    exchange& target_;
    stage what_;
    std::chrono::steady_clock::time_point start_;
};

/// Called on a worker's thread, once per request, in order of arrival; several workers call it at once. May be
/// move-only. If it throws before answering, the answer is `application_error` with the exception's text, which is also
/// logged. A handler may stop or destroy its own server, which then ends once its handlers have returned.
using handler = shared_function<void(exchange)>;

/// The handlers of a server with targets. Requests for any other target get `not_found`.
struct service_table {
    /// A handler for the requests with this target.
    struct entry {
        std::string name;  ///< 1 to 64 printable ASCII characters without blanks
        handler service;
    };
    std::vector<entry> named;  ///< at most `max_targets`
    handler unnamed = {};      ///< for requests without a target; if empty, these get `not_found`
};

/// Counters of a server since it was opened.
struct server_statistics {
    std::uint32_t sessions = 0;  ///< open now
    std::uint64_t sessions_opened = 0;
    std::uint64_t sessions_refused = 0;     ///< by a limit, key or version
    std::uint64_t sessions_lost = 0;        ///< ended by the peer's death or a protocol error
    std::uint64_t requests = 0;             ///< handed to the handler
    std::uint64_t replies = 0;              ///< answers delivered
    std::uint64_t expired = 0;              ///< requests whose deadline passed before arrival or before a free stream
    std::uint64_t cancelled = 0;            ///< requests cancelled before the handler saw them
    std::uint64_t overloaded = 0;           ///< requests refused by `max_exchanges`, or because the server drains
    std::uint64_t not_found = 0;            ///< requests for targets that the server does not have
    std::size_t memory_bytes = 0;           ///< slots of all sessions now
    std::size_t gpu_memory_bytes = 0;       ///< GPU memory now: of these slots and of the handlers' slots
    std::chrono::nanoseconds cpu_user{};    ///< of the workers' threads
    std::chrono::nanoseconds cpu_kernel{};  ///< of the workers' threads
};

/// Serves one handler, or several by name, on any number of URIs. Move-only; any thread may call its methods.
/// A child of fork() has a copy without threads, which serves nothing and ends without effect. A child forked in a
/// handler must call exec or _exit there.
class ACCEL_API server {
  public:
    /// Listens on a URI (`scheme://host:port?key=value…`; port 0: any free port), or fails. May block.
    [[nodiscard]] static result<server> listen(context& ctx, std::string_view uri, handler service,
                                               const server_options& options = {});
    /// The same on all of these URIs, or on none.
    [[nodiscard]] static result<server> listen(context& ctx, std::span<const std::string> uris, handler service,
                                               const server_options& options = {});
    [[nodiscard]] static result<server> listen(context& ctx, std::initializer_list<std::string_view> uris,
                                               handler service, const server_options& options = {});
    /// The same with a handler for each target.
    [[nodiscard]] static result<server> listen(context& ctx, std::string_view uri, const service_table& services,
                                               const server_options& options = {});
    [[nodiscard]] static result<server> listen(context& ctx, std::span<const std::string> uris,
                                               const service_table& services, const server_options& options = {});
    [[nodiscard]] static result<server> listen(context& ctx, std::initializer_list<std::string_view> uris,
                                               const service_table& services, const server_options& options = {});
    server(server&&) noexcept;
    server& operator=(server&&) noexcept;
    /// As `stop()`.
    ~server();

    /// One for each URI, for `channel::connect` as they are: with the real ports, and with loopback in place of `*`,
    /// `0.0.0.0` and `[::]`, for clients on this machine (others use its name). Without options: a client brings its
    /// own keys, or `insecure`, in `channel_options::security`.
    [[nodiscard]] std::vector<std::string> endpoints() const;
    [[nodiscard]] server_statistics statistics() const;

    /// Reads the key files again now. Without this call, changes are noticed within half a second. A client whose key
    /// was removed loses its sessions within a second and is refused from then on. On failure the loaded keys stay in
    /// use.
    [[nodiscard]] result<void> reload_keys();

    /// Adds a target while the server serves: requests that arrive from now on find it. Any thread, also a handler's;
    /// waits for no request. The server may have begun with one handler, which still serves requests without a target.
    /// `invalid_argument`: not a valid name, no handler, a name or number that the server already has, or more than
    /// `max_targets`.
    /// `closed`: the server has stopped.
    [[nodiscard]] result<void> add_target(std::string_view name, handler service);
    /// Removes a target likewise. Requests that its handler has are still answered; later ones get `not_found`. The
    /// handler is destroyed once no request uses it, perhaps on a worker's thread. The same name may be added again,
    /// as a new target with the old number.
    /// `not_found`.
    [[nodiscard]] result<void> remove_target(std::string_view name);
    /// Sets what `channel::health` says of this target, or (empty name) of the whole server; at first, and after a
    /// target was added again, that is `serving`. Requests are served as before. Any thread. `not_found`: the server
    /// has no such target.
    [[nodiscard]] result<void> set_health(std::string_view name, health_state state);

    /// Only with `workers = 0`: serves what is ready and returns the number of events. One thread at a time.
    std::size_t poll() noexcept;
    /// Only with `workers = 0`, on the polling thread; otherwise -1. A descriptor for an epoll loop, which may serve
    /// channels as well: becomes readable when `poll` has something to do. Before sleeping: poll until 0, then `arm()`;
    /// if `arm` returns false, poll again. The first call creates the descriptor; it is valid as long as the server.
    [[nodiscard]] int event_fd() const noexcept;
    [[nodiscard]] bool arm() noexcept;

    // With `workers = 0`, `drain` and `stop` poll: call them on the polling thread, or while no thread polls.
    /// Asks all clients to begin no more calls here, refuses new sessions (`overloaded`) and requests that have not
    /// reached a handler (`closed`), and waits for the answers of open exchanges. Draining cannot be undone.
    /// `timed_out`: some exchanges were still open after `timeout`.
    status drain(std::chrono::nanoseconds timeout);
    /// Drains within `drain_timeout`, closes every session and joins the workers. Exchanges that handlers still hold
    /// stay valid; their answers are dropped, and the clients' calls end with `peer_lost`. In a handler of this server
    /// `stop` returns at once, and the server stops once its handlers have returned.
    void stop();

  private:
    explicit server(std::shared_ptr<core::server_core> core) noexcept;
    std::shared_ptr<core::server_core> core_;
};

}  // namespace accel
