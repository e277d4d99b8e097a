// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/completion.hpp>
#include <accel_transport/config.hpp>
#include <accel_transport/context.hpp>
#include <accel_transport/memory.hpp>
#include <accel_transport/metadata.hpp>
#include <accel_transport/options.hpp>
#include <accel_transport/status.hpp>
#include <accel_transport/target.hpp>
#include <accel_transport/tensor.hpp>
#include <accel_transport/trace.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

namespace accel {

namespace core {
class channel_core;
}  // namespace core

/// A begun call, or part of a request: its id, and room for its bytes, to be written in place. Borrows a slot of the
/// channel until `release`, or until the call's completion releases it.
struct call_view {
    call_id id;
    std::span<std::byte> request;
};

/// How many ranges of memory one call may lend.
inline constexpr std::size_t max_ranges = 65'536;

/// Options of one call.
struct submit_options {
    std::chrono::nanoseconds timeout{};  ///< from now; 0: the channel's `call_timeout`
    std::uint64_t tag = 0;               ///< returned in the completion
    std::uint64_t trace_id = 0;          ///< travels to the server and back
    /// The trace of the call, for `exchange::trace`. Sent only if it is `valid` and the tensors leave room in the
    /// header. A trace never makes a call fail.
    trace_context trace{};
    /// W3C Baggage of the call, for `exchange::baggage`; read during `submit`. Sent only if it is at most
    /// `max_baggage_bytes` long and fits beside the tensors and the trace. Baggage never makes a call fail.
    std::string_view baggage{};
    /// Keys and values for `exchange::metadata`; read when the call is sent, which is during `channel::submit`. They
    /// must not lie in the call's slot. They travel with the header if they fit there, else after the payload, and take
    /// room of `max_request_bytes`. Then a lent payload is copied into the slot during `submit` (docs/metadata.md).
    /// `invalid_argument`: not valid (`metadata_entry`), or more than `max_metadata_entries` or `max_metadata_bytes`.
    /// `message_too_large`: payload and metadata together exceed `max_request_bytes()`.
    /// `unsupported`: they do not fit beside the header, and the payload is on a GPU.
    std::span<const metadata_entry> metadata{};
    /// Where the response goes instead of its slot; its size limits the response. Must outlive the completion. How such
    /// a call ends early depends on the transport: `channel_capabilities::server_writes_lent_memory`.
    slice response_into{};
    /// Instead of `response_into`: the response fills these ranges of host memory in order, before its completion is
    /// returned. At most `max_ranges`; empty ranges are skipped. The list is read during `submit`; the memory must
    /// outlive the completion. `completion::response` has the response's length, but undefined bytes; on a failure it
    /// holds the failure's text.
    /// `unsupported`: a range is on a GPU, or `parts` is set as well.
    /// `invalid_argument`: as for `submit`.
    std::span<const slice> response_ranges{};
    /// The target of the request, from `channel::resolve`. A server without this target answers `not_found`.
    accel::target target{};
    /// The tensors in the payload, for `exchange::tensors`; read during `submit`. The description travels with the
    /// header. If it does not fit there, a table is written at the start of the payload, and the tensors must come
    /// after the table (`place_tensors`).
    /// `invalid_argument`: a tensor is not within the payload.
    /// `unsupported`: the table would be on a GPU.
    std::span<const tensor> tensors{};
    /// The request goes on after these bytes, in parts (`channel::begin_part`). Each part that the server's handler has
    /// not released takes a slot.
    /// `again`: no slot is free for a part.
    /// `invalid_argument`: the channel has too few slots.
    /// `unsupported`: as for `parts`.
    bool continues = false;
    /// The response may come in parts, with up to this number of unread parts. Each part takes a free slot of the
    /// channel, from now until the call has ended and the part is released. Each part is a completion with `more`.
    /// 0: in one piece.
    /// `again`: too few slots are free.
    /// `invalid_argument`: the channel has too few slots.
    /// `unsupported`: `payload` or `response_into` is on a GPU that the transport cannot reach.
    std::uint32_t parts = 0;
    /// With `parts`: the call times out if no part arrives for this long although the server has room for one. 0: no
    /// limit.
    std::chrono::nanoseconds part_timeout{};
    /// For `pool_balance::sticky`: calls with the same key go to the same server. Read by the pool's `call` and
    /// `submit`. Empty: none.
    std::string_view balance_key{};
};
/// The options of most calls. A shared object costs less than a new one for each call.
inline constexpr submit_options usual_options{};

/// Options of one part of a request.
struct part_options {
    bool last = false;  ///< the request ends with this part, which may be empty
};

/// A call that sends its request, reads its response, or does both, part by part; from `channel::call_parts`.
/// Move-only. Belongs to the thread of its channel, whose end ends the call with `closed`. Destroying it before the end
/// of the call cancels the call, and waits for memory lent as `response_into`.
class ACCEL_API call_in_parts {
  public:
    call_in_parts(call_in_parts&& other) noexcept;
    call_in_parts& operator=(call_in_parts&& other) noexcept;
    ~call_in_parts();

    /// Waits up to `timeout` for the next part of the response; the last completion has no `more`. A failure of the
    /// call is an error with the handler's text, and ends the parts. Destroying a part lets the server send another
    /// one. Completions of other calls stay queued for `poll`; do not take this call's with `poll` or `wait`.
    /// `again`: nothing came within `timeout`; the call goes on.
    /// `invalid_state`: the call has ended, and its end was given.
    [[nodiscard]] result<completion> next(std::chrono::nanoseconds timeout);

    /// Room for the next part of the request, to be written in place. Waits up to `timeout` for a free slot: each part
    /// has one until the server's handler has released it. Empty: no slot was free, or `send` says why the request does
    /// not go on. Does not change until `send`.
    [[nodiscard]] std::span<std::byte> part(std::chrono::nanoseconds timeout) noexcept;
    /// Sends the first `length` bytes of the last `part()`; the request goes on. Waits for nothing.
    /// `again`: the last `part()` was empty.
    /// `message_too_large`.
    /// `invalid_state`: the call has ended, as `next` tells, or its last part was sent, or it does not continue.
    [[nodiscard]] status send(std::size_t length) noexcept;
    /// The same with a copy of `bytes`, once a slot is free. Unless it returns `ok`, nothing was sent.
    /// `timed_out`: no slot was free within `timeout`.
    [[nodiscard]] status send(std::span<const std::byte> bytes, std::chrono::nanoseconds timeout) noexcept;
    /// The same with the last part of the request, or with an empty one.
    [[nodiscard]] status finish(std::span<const std::byte> bytes, std::chrono::nanoseconds timeout) noexcept;
    [[nodiscard]] status finish(std::chrono::nanoseconds timeout) noexcept { return finish({}, timeout); }

  private:
    friend class channel;
    call_in_parts(core::channel_core* owner, call_id call) noexcept : owner_(owner), call_(call) {}
    void reset() noexcept;
    [[nodiscard]] status send(std::span<const std::byte> bytes, std::chrono::nanoseconds timeout,
                              const part_options& options) noexcept;
    core::channel_core* owner_ = nullptr;
    call_id call_;
    call_view part_;  ///< generation 0: none is begun
};

/// Counters of a channel since it was opened.
struct channel_statistics {
    std::uint64_t submitted = 0;
    std::uint64_t completed = 0;  ///< completions returned to the caller
    std::uint64_t stale = 0;      ///< late or stale responses, recognised and dropped
    std::uint64_t reconnects = 0;
    std::uint32_t quarantined = 0;  ///< slots that wait for a late response now
};

/// What a channel's transport does that other transports do not.
struct channel_capabilities {
    /// The server writes into `response_into` itself. A call with it that ends early waits for the server's late
    /// answer, for up to `peer_timeout`; then the session ends. Without this, such a call ends when the transport
    /// has released its memory (docs/memory.md), mostly at once.
    bool server_writes_lent_memory = false;
};

/// A change of a channel's connection.
enum class channel_event : std::uint8_t {
    none,
    lost,         ///< calls in flight have ended, and new calls fail until the channel is connected again
    reconnected,  ///< with `reconnect`: a new session, maybe with another host of the URI; no call was sent twice
};

/// The client's end of one connection to a server. Move-only. Belongs to one thread at a time.
/// The steps of a call: begin → (write the request) → submit → poll or wait → (read the response, destroy the
/// completion). begin, submit, cancel, poll and release neither block, allocate, lock nor log, except where a function
/// says so. In a child of fork(), the parent's channel returns `invalid_state`, completes no call and ends without
/// effect.
class ACCEL_API channel {
  public:
    /// Connects to `scheme://host:port?key=value…` within `connect_timeout`. Of several hosts (`tcp://a:1,b:2`), takes
    /// the first that answers, in order. Retries for `connect_retry`. Keys are the fields of `channel_options`; a
    /// misspelt key is an error that lists the valid keys. May block and allocate.
    [[nodiscard]] static result<channel> connect(context& ctx, std::string_view uri,
                                                 const channel_options& options = {});
    channel(channel&&) noexcept;
    channel& operator=(channel&&) noexcept;
    /// As `close()`.
    ~channel();

    /// The target with this name, for any number of requests over any channel to this server, also after a reconnect.
    /// Asks the server: waits up to `connect_timeout`, and may allocate.
    /// `not_found`: the server has no such target; the error names those that it has, the one with the nearest
    /// spelling first.
    /// `invalid_argument`: not a valid name (`is_target_name`).
    [[nodiscard]] result<target> resolve(std::string_view name);
    /// The names of the server's targets, in alphabetical order: at most `max_targets`. Asks the server as `resolve`
    /// does. A name that is added or removed meanwhile may be missing.
    [[nodiscard]] result<std::vector<std::string>> targets();
    /// Whether the server serves this target, or (empty name) serves at all. Asks the server as `resolve` does, beside
    /// all calls and without a handler. A draining server is `not_serving`.
    /// `closed`, `peer_lost`: the channel has no server.
    /// `invalid_argument`: not a valid name.
    [[nodiscard]] result<health_state> health(std::string_view name = {});

    /// Takes a free slot. If none is free, or the server is lost, `begin` first does the work of `poll` without
    /// returning completions, so a program that only uses `call` also reconnects and takes late answers.
    /// `again`: no slot is free; poll, and destroy completions.
    /// `closed`: this end was closed, or the server is draining or has stopped.
    /// `peer_lost`: the server is lost.
    [[nodiscard]] result<call_view, status> begin() noexcept;

    /// Sends the first `length` bytes of the slot's request room. Unless `submit` returns `ok`, the call stays begun.
    /// If the transport has no room now, the call waits for room, before later calls and until its deadline at most:
    /// keep polling.
    /// Fails with `message_too_large`, `invalid_state`, `peer_lost`, `device_lost`, `closed`.
    [[nodiscard]] status submit(call_id id, std::size_t length, const submit_options& options = usual_options) noexcept;

    /// Sends `payload` in place, without a copy. The memory is lent until the completion and must not change until
    /// then. A call that times out or is cancelled completes only when the transport has released the memory, at the
    /// latest `peer_timeout` after its deadline. If necessary, the session ends for that, and other calls end with
    /// `peer_lost`. GPU memory that the transport cannot reach, here or as `response_into`, is copied through the slot
    /// (`copy` in the timeline): finish the work that writes the payload before `submit`; kernels launched after the
    /// completion see the response. The first such use of a slot may take long. Also fails with `device_lost`.
    [[nodiscard]] status submit(call_id id, slice payload, const submit_options& options = usual_options) noexcept;

    /// Sends the bytes of `ranges`, consecutively, as one request. Ranges may be in any regions and may repeat; empty
    /// ranges are skipped. The list is read now; the memory is lent as above. Ranges that the transport cannot gather
    /// are copied into the slot during this call (docs/memory.md). Allocates if the list is longer than any earlier
    /// list in this slot. Unless `submit` returns `ok`, nothing was sent.
    /// `invalid_argument`: more than `max_ranges`, or a range is not part of its region.
    /// `message_too_large`: too many bytes.
    /// `out_of_memory`.
    /// `unsupported`: a range is on a GPU that the transport cannot reach.
    [[nodiscard]] status submit(call_id id, std::span<const slice> ranges,
                                const submit_options& options = usual_options) noexcept;

    /// Takes a free slot for the next part of the request of `call`, which was submitted with `continues`. Parts are
    /// sent in the order of `submit_part`.
    /// `again`: no slot is free; poll: a part's slot is free again when the server's handler has released the part.
    /// `invalid_state`: the call has ended, or its last part was sent.
    [[nodiscard]] result<call_view, status> begin_part(call_id call) noexcept;

    /// Sends the first `length` bytes of a part's room. The slot is the channel's from now on. Unless it returns `ok`,
    /// the part stays begun, until `release`. Waits for room in the transport as calls do.
    /// Fails with `message_too_large`, `invalid_state` (as `begin_part`).
    [[nodiscard]] status submit_part(call_id part, std::size_t length, const part_options& options = {}) noexcept;

    /// Ends a submitted call early, with `cancelled`, unless its completion is already due. A call that lent memory
    /// completes within `peer_timeout`, as after a deadline. Also returns `ok` for a call that has ended and still
    /// waits for its memory; that call keeps its outcome. The slot stays in quarantine until the server's late answer
    /// has arrived. The server is notified, so that its handler may stop early.
    [[nodiscard]] status cancel(call_id id) noexcept;

    /// Releases what earlier polls have left in `out`. Then takes up to `out.size()` completions and returns their
    /// number. Never blocks.
    [[nodiscard]] std::size_t poll(std::span<completion> out) noexcept;

    /// Like `poll`, but waits up to `timeout` for the first completion. Returns 0 only after `timeout`, or when nothing
    /// is in flight on a closed or lost channel.
    [[nodiscard]] std::size_t wait(std::span<completion> out, std::chrono::nanoseconds timeout) noexcept;

    /// Releases a begun call or part that was never submitted, or a detached completion. `invalid_state`: a stale id.
    status release(call_id id) noexcept;

    /// A blocking call: copies `request` into a slot and waits for the response. A failure from the server is an
    /// `error` with the handler's text. Completions of other calls stay queued for `poll`.
    [[nodiscard]] result<completion> call(std::span<const std::byte> request,
                                          const submit_options& options = usual_options);

    /// The same for a call in parts: a response of which up to `options.parts` are unread, a request that
    /// `options.continues`, or both. Copies and sends `request`, and waits for nothing. `invalid_argument`: neither is
    /// set, or the channel has too few slots.
    [[nodiscard]] result<call_in_parts> call_parts(std::span<const std::byte> request, const submit_options& options);

    /// Why the last `begin`, `submit`, `cancel` or `release` that failed on this channel did so, for people: which
    /// option was wrong, say. A text in static storage; empty before the first failure. Success does not change it.
    [[nodiscard]] std::string_view last_error() const noexcept;

    /// A descriptor for an epoll loop: becomes readable when `poll` has something to do. It may become readable once
    /// more, with nothing to do, after a call with a deadline has ended early.
    /// Before sleeping: poll until 0, then `arm()`; if `arm` returns false, poll again. A call submitted while the loop
    /// already sleeps needs another `arm()`; otherwise its deadline does not wake the loop.
    [[nodiscard]] int event_fd() const noexcept;
    [[nodiscard]] bool arm() noexcept;

    [[nodiscard]] std::size_t max_request_bytes() const noexcept;   ///< as granted by the server
    [[nodiscard]] std::size_t max_response_bytes() const noexcept;  ///< as granted by the server
    [[nodiscard]] std::uint32_t slots() const noexcept;             ///< as granted by the server
    [[nodiscard]] std::string_view scheme() const noexcept;         ///< the scheme in use ("tcp")
    [[nodiscard]] channel_capabilities capabilities() const;        ///< of that scheme
    /// For people: why `auto://` chose this scheme, and which better ones did not connect.
    [[nodiscard]] std::string_view why() const noexcept;
    /// "tcp://host:port" of the current or last server: one of the URI's hosts.
    [[nodiscard]] std::string endpoint() const;
    /// Whether calls can be begun. False also while the server drains and calls in flight are still being answered.
    [[nodiscard]] bool connected() const noexcept;
    /// The next change of the connection that `poll` or `wait` has noticed. `lost` and `reconnected` alternate; `none`
    /// means that there is no further change. `event_fd` becomes readable for both. Losses that were repaired in
    /// between count once. `close` is not an event.
    [[nodiscard]] channel_event take_event() noexcept;
    [[nodiscard]] channel_statistics statistics() const noexcept;

    /// Closes the connection. Calls in flight complete with `closed` and can still be polled. Waits up to
    /// `close_timeout` for the transport to release lent slices (over `local` up to one second longer).
    void close() noexcept;

  private:
    explicit channel(core::channel_core* core) noexcept : core_(core) {}
    core::channel_core* core_;  ///< its owner, with its completions; null: moved from
};

/// Resolves the names in a client's URI, for programs that choose among servers themselves. Returns one URI for each
/// server, none twice, with the same options: a `dns+` host becomes one URI for each of its addresses, in the
/// resolver's order; other hosts stay as they are. Of more than 64 addresses of a host, always the same 64 are
/// returned. Call it again to notice changes. Waits up to `timeout` for the resolver; `closed` once a stop is
/// requested. A server's certificate must still have the host's name: the new URIs have `server_name`, unless the URI
/// had it. Fails as `channel::connect` does if the URI is not valid, or a name cannot be resolved.
[[nodiscard]] ACCEL_API result<std::vector<std::string>> resolve_servers(std::string_view uri,
                                                                         std::chrono::nanoseconds timeout,
                                                                         const std::stop_token& stopped = {});

}  // namespace accel
