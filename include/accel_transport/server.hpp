// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/config.hpp>
#include <accel_transport/context.hpp>
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
#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

struct CUstream_st;

namespace accel {

namespace core {
struct exchange_state;
struct internals;
class server_core;
}  // namespace core

/// Derive from it to wait for room for a part (`exchange::await_part`).
struct part_waiter {
    /// Runs on a worker's thread: must not block.
    void (*wake)(part_waiter& self) noexcept = nullptr;
};

/// The server's end of one request: read it, write the response in place, reply. Owner; move-only.
/// May be kept, moved to any thread and answered later, in any order. Destroyed unanswered, it answers
/// `abandoned`. Using it after an answer is a misuse that ends the process with a message.
class ACCEL_API exchange {
  public:
    exchange(exchange&& other) noexcept : state_(other.state_) { other.state_ = nullptr; }
    exchange& operator=(exchange&& other) noexcept;
    ~exchange() {
        if (state_ != nullptr) abandon();
    }

    /// Where `request` and `response` lie: as `server_options::memory` says.
    [[nodiscard]] memory_kind memory() const noexcept;
    /// The request in place; valid until the answer. Over `local`, and once the client has given up, it is a
    /// copy, and earlier spans of lent memory are void (docs/memory.md). Bytes of an untrusted peer. At least
    /// 8-byte aligned, but for a slice lent over `local`, which lies as its owner aligned it.
    [[nodiscard]] std::span<const std::byte> request() const noexcept;
    /// Room for the response, to be written in place; its size is the most the client accepts. Over `local`, likewise.
    [[nodiscard]] std::span<std::byte> response() const noexcept;
    /// The request as memory that channels of the same context can lend (`channel::submit`), from where it lies. Keep
    /// the exchange until the completion of each call that lends it: as long the memory is there, also when the client
    /// has gone (docs/memory.md). The first use in a session allocates. `unsupported`: it lies in no slot on the host
    /// (over `local`, on a GPU, requests from 1 KiB over `zmq`): copy it; `out_of_memory`.
    [[nodiscard]] status request_slice(slice& out) const noexcept;
    /// `response()` likewise, for `submit_options::response_into`: `reply(length)` then answers with what has come. To
    /// write there, the other server is given all response slots of this session (rdma, gdr, gpu).
    [[nodiscard]] status response_slice(slice& out) const noexcept;
    /// The tensors that the request describes, in either form; all lie within `request()`.
    /// `not_found`: nothing; `protocol_error`: nothing that makes sense; `message_too_large`: `out` has room for fewer
    /// than `count`; `unsupported`: if it says something, a GPU has it; `peer_lost`: the client has gone.
    [[nodiscard]] status tensors(std::span<tensor> out, std::size_t& count) const noexcept;
    [[nodiscard]] std::uint64_t trace_id() const noexcept;
    /// The trace that the request belongs to, for the parent of spans of the handler's own. `not_found`: it names none;
    /// `protocol_error`: what its client says is no trace, or is none any more; `peer_lost`: the client is gone.
    [[nodiscard]] status trace(trace_context& out) const noexcept;
    /// Copies the W3C Baggage that came with the request, bytes of an untrusted peer, to `out`, of which `length` are
    /// it. Room for `max_baggage_bytes` is always enough. `not_found`: none; `message_too_large`: `out` has room for
    /// fewer than `length`; `protocol_error`: the client's extensions make no sense; `peer_lost`: the client is gone.
    [[nodiscard]] status baggage(std::span<char> out, std::size_t& length) const noexcept;
    [[nodiscard]] std::uint64_t session_id() const noexcept;
    [[nodiscard]] std::string_view scheme() const noexcept;
    /// The caller: the client's public key ("ed25519:…"), or its certificate's first DNS name, else its common name.
    /// Empty if the client was not authenticated: with `insecure`, and over `local`. Valid until the answer.
    [[nodiscard]] std::string_view peer() const noexcept;
    /// Time until the client gives up; zero once it has.
    [[nodiscard]] std::chrono::nanoseconds time_left() const noexcept;
    /// True once nobody waits for the answer: its call was cancelled, its deadline has passed, or its client has left.
    /// The client drops any answer, but cannot use the slot again without one: end with `reply(0)` or `fail`. Takes a
    /// few ns, or a look at the clock if there is a deadline. Any thread, until the answer.
    [[nodiscard]] bool cancelled() const noexcept;
    /// The same as an event, for work that waits: stops then, until the answer. Callbacks run on a thread of their
    /// own, one after another, and must not stop the server. Allocates, and starts that thread for the first one; where
    /// it cannot be started, the log says so, and the token stops once a later call could start it.
    [[nodiscard]] std::stop_token stop_token() const;
    /// On a GPU: the stream (a `cudaStream_t`) that brings the request and takes the response: give it the kernels, and
    /// answer without waiting for them. The answer leaves when the stream has come that far. Null on the host.
    [[nodiscard]] CUstream_st* stream() const noexcept;
    /// On a GPU: marks that this stage (preprocessing, then inference) begins at this point of the stream and
    /// ends at the next mark or the answer. Takes the time without waiting.
    void mark(stage what) noexcept;
    /// Adds to a stage of the timeline that travels back to the client.
    void record(stage what, std::chrono::nanoseconds duration) noexcept;

    /// Before `reply(length)`: what the response will hold, for `channel::tensors`. It travels as
    /// `submit_options::tensors` does, and fails likewise. `message_too_large`; `peer_lost`: the client has gone.
    [[nodiscard]] status describe(std::size_t length, std::span<const tensor> list) noexcept;
    /// The same before `reply(payload, leases)`.
    [[nodiscard]] status describe(slice payload, std::span<const tensor> list) noexcept;

    /// True: the client takes the response in parts (`submit_options::parts`), and `reply` or `fail` ends them.
    [[nodiscard]] bool in_parts() const noexcept;
    /// Room for the next part, to be written in place: on the host, over `gdr` on the GPU. Empty: the client has as
    /// many unread parts as it takes, or takes none. Stays the same until `send`.
    [[nodiscard]] std::span<std::byte> part() noexcept;
    /// Sends the first `length` bytes of what `part()` has named last, and goes on. Waits for nobody, not even for
    /// `stream()`. Fails with `again`: it was empty; `message_too_large`; `unsupported`: the client takes no parts;
    /// `cancelled`, `peer_lost`: nobody waits for them any more.
    [[nodiscard]] status send(std::size_t length) noexcept;
    /// The same with a copy of `bytes`, on the host.
    [[nodiscard]] status send(std::span<const std::byte> bytes) noexcept;
    /// True: there is room for a part, or never will be, and `who` is forgotten. False: `who` is called once, when
    /// there is room, the client has gone, or the exchange was answered; it must live until then. One waits at a
    /// time. Look at `stop_token` as well, because a client that has cancelled gives no room.
    [[nodiscard]] bool await_part(part_waiter& who) noexcept;

    /// Answers with the first `length` bytes of `response()`. Any thread. `message_too_large` answers nothing
    /// and leaves the exchange open; any other result ends it. `peer_lost`: the client is gone.
    status reply(std::size_t length) noexcept;
    /// Answers with `payload` from where it lies. `leases` is raised now, and lowered when the transport has released
    /// it. `unsupported`: it is on a GPU, the handler's memory is not, and the transport cannot read it there.
    status reply(slice payload, std::atomic<std::uint32_t>& leases) noexcept;
    /// Answers with a failure: a status other than ok, the handler's own code, and a short message.
    status fail(status reason, std::uint32_t code = 0, std::string_view message = {}) noexcept;

  private:
    friend struct core::internals;
    explicit exchange(core::exchange_state* state) noexcept : state_(state) {}
    void abandon() noexcept;
    [[nodiscard]] status describe(std::span<std::byte> payload, bool on_host, std::span<const tensor> list) noexcept;
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

/// Called on a worker's thread, once for each request, in order of arrival. What it throws is the answer of a request
/// that it has not answered: `application_error`, with the exception's text, which the log has too. It may stop or
/// destroy its own server, which then ends once its handlers have returned.
using handler = std::function<void(exchange)>;

/// A handler for the requests that name it as their target.
struct named_handler {
    std::string name;  ///< 1 to 64 printable characters, no blanks
    handler service;
};

/// The handlers of a server with targets. A request that names none of them is answered with `not_found`.
struct service_table {
    std::vector<named_handler> named;  ///< at most `max_targets`
    handler unnamed = {};              ///< for requests without a target; left out: they get `not_found`
};

/// Counters of a server since it was made.
struct server_statistics {
    std::uint32_t sessions = 0;  ///< open now
    std::uint64_t sessions_opened = 0;
    std::uint64_t sessions_refused = 0;     ///< by a limit, key or version
    std::uint64_t sessions_lost = 0;        ///< ended by the peer's death or a protocol error
    std::uint64_t requests = 0;             ///< handed to the handler
    std::uint64_t replies = 0;              ///< answers delivered
    std::uint64_t expired = 0;              ///< requests too late on arrival, or when a stream was free
    std::uint64_t cancelled = 0;            ///< requests that were cancelled before the handler saw them
    std::uint64_t overloaded = 0;           ///< requests refused by `max_exchanges`, or because it drains
    std::uint64_t not_found = 0;            ///< requests for targets that the server lacks
    std::size_t memory_bytes = 0;           ///< slots of all sessions now
    std::size_t gpu_memory_bytes = 0;       ///< of it, and of the handler's slots, on the GPU now
    std::chrono::nanoseconds cpu_user{};    ///< of the workers' threads
    std::chrono::nanoseconds cpu_kernel{};  ///< of the workers' threads
};

/// Serves one handler, or several by name, on any number of URIs. Move-only; its methods may be called from any thread.
/// A child of fork() has a copy without threads, which serves nothing and ends without effect; a child forked
/// in a handler calls exec or _exit there.
class ACCEL_API server {
  public:
    /// Listens on every URI (`scheme://host:port?key=value…`; port 0: any free one) or on none of them. May block.
    [[nodiscard]] static result<server> listen(context& ctx, std::span<const std::string> uris, handler service,
                                               const server_options& options = {});
    [[nodiscard]] static result<server> listen(context& ctx, std::initializer_list<std::string_view> uris,
                                               handler service, const server_options& options = {});
    /// The same with a handler for each target.
    [[nodiscard]] static result<server> listen(context& ctx, std::span<const std::string> uris,
                                               const service_table& services, const server_options& options = {});
    [[nodiscard]] static result<server> listen(context& ctx, std::initializer_list<std::string_view> uris,
                                               const service_table& services, const server_options& options = {});
    server(server&&) noexcept;
    server& operator=(server&&) noexcept;
    /// As `stop()`.
    ~server();

    /// The endpoints for clients, one for each URI, with the real ports; without keys and options.
    [[nodiscard]] std::vector<std::string> endpoints() const;
    [[nodiscard]] server_statistics statistics() const;

    /// Reads the key files again now. Changes are noticed without this call within half a second. A client
    /// whose key was removed loses its sessions within a second and is refused from then on. On failure the
    /// loaded keys stay in force.
    [[nodiscard]] result<void> reload_keys();

    /// Only with `workers = 0`: serves what is ready, returns how many events there were.
    /// One thread at a time.
    std::size_t poll() noexcept;
    /// Only with `workers = 0`, on the thread that polls; else -1. A descriptor that becomes readable when `poll` has
    /// something to do, for an epoll loop that may have channels as well. Before sleeping on it: poll until 0, then
    /// `arm()`; when that says false, poll again. The first call makes it; valid as long as the server.
    [[nodiscard]] int event_fd() const noexcept;
    [[nodiscard]] bool arm() noexcept;

    // With `workers = 0` the next two do what `poll` does: call them on the thread that polls, or while none does.
    /// Tells all clients to begin no more calls here, refuses new sessions (`overloaded`) and requests that have not
    /// reached a handler (`closed`), and waits for open exchanges to be answered. `timed_out` if some were still open
    /// after `timeout`. This cannot be undone.
    status drain(std::chrono::nanoseconds timeout);
    /// Drains within `drain_timeout`, closes every session and joins the workers. Exchanges that handlers
    /// still hold stay valid; their answers go nowhere, and their sessions' calls end as `peer_lost`. In a handler of
    /// this server it returns at once, and all that happens once the handlers have returned.
    void stop();

  private:
    explicit server(std::shared_ptr<core::server_core> core) noexcept;
    std::shared_ptr<core::server_core> core_;
};

}  // namespace accel
