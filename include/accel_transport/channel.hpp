// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/completion.hpp>
#include <accel_transport/config.hpp>
#include <accel_transport/context.hpp>
#include <accel_transport/memory.hpp>
#include <accel_transport/options.hpp>
#include <accel_transport/status.hpp>
#include <accel_transport/target.hpp>
#include <accel_transport/tensor.hpp>
#include <accel_transport/trace.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace accel {

namespace core {
class channel_core;
class pool_state;
}  // namespace core

/// A call that has been begun: its id and the room for its request, to be written in place.
/// Borrows a slot of the channel until `release`.
struct call_view {
    call_id id;
    std::span<std::byte> request;
};

/// How many ranges of memory one call may lend in one list.
inline constexpr std::size_t max_ranges = 65'536;

/// Options of one call.
struct submit_options {
    std::chrono::nanoseconds timeout{};  ///< from now; 0: the channel's `call_timeout`
    std::uint64_t tag = 0;               ///< handed back in the completion
    std::uint64_t trace_id = 0;          ///< travels to the server and back
    /// The trace that the call belongs to, for `exchange::trace`; one that is not `valid` is not sent. Nor is one
    /// for which the tensors leave no room. A trace never makes a call fail.
    trace_context trace{};
    /// W3C Baggage of the call, for `exchange::baggage`; read during `submit`. What is longer than `max_baggage_bytes`,
    /// or has no room beside the tensors and the trace, is not sent. Baggage never makes a call fail.
    std::string_view baggage{};
    /// Where the response goes instead of its slot; the server may answer with at most its size.
    /// Must outlive the completion. Where the server writes there itself (rdma, gdr, gpu, local), a call that
    /// ends early waits for its answer, for `peer_timeout` at most: then the whole session ends.
    slice response_into{};
    /// Instead of `response_into`: the response goes into these ranges of host memory, one after the other, before its
    /// completion is handed out. At most `max_ranges`; ranges without bytes are skipped. The list is read during
    /// `submit`; the memory has to outlive the completion. `completion::response` tells how many bytes came, and its
    /// own bytes mean nothing; the text of a failure is there alone. `unsupported`: a range is on a GPU, or `parts` is
    /// given as well; `invalid_argument`: as for `submit`.
    std::span<const slice> response_ranges{};
    /// The target of the request, from `channel::resolve`. A server that has no such target answers `not_found`.
    accel::target target{};
    /// The tensors in the payload, for `exchange::tensors`; read during `submit`. It travels with the header. If it
    /// does not fit there, a table is written at the head of the payload, and the tensors have to come after it
    /// (`place_tensors`). `invalid_argument`: one does not lie in the payload; `unsupported`: the table would be on a
    /// GPU.
    std::span<const tensor> tensors{};
    /// The response may come in parts, of which so many may be unread: each takes a free slot of the channel, from now
    /// on and until the call has ended and the part was released. 0: in one piece. Each part is a completion with
    /// `more`. `again`: too few slots are free; `invalid_argument`: the channel has too few; `unsupported`:
    /// `payload` or `response_into` is on a GPU that the transport does not reach.
    std::uint32_t parts = 0;
    /// With `parts`: the call times out when the server has room for a part and none arrives for so long; 0: no limit.
    std::chrono::nanoseconds part_timeout{};
};
/// The options of most calls. One object for all of them costs less than one for each call.
inline constexpr submit_options usual_options{};

/// The response of a blocking `channel::call`. Owns its slot; move-only; must not outlive the channel.
class ACCEL_API response {
  public:
    response(response&&) noexcept;
    response& operator=(response&&) noexcept;
    ~response();

    [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return content_.response; }
    /// As `channel::tensors`.
    [[nodiscard]] status tensors(std::span<tensor> out, std::size_t& count) const noexcept;
    [[nodiscard]] const accel::timeline& timeline() const noexcept { return content_.timeline; }

  private:
    friend class channel;
    response(core::channel_core* owner, const completion& content) noexcept;
    void reset() noexcept;
    core::channel_core* owner_ = nullptr;
    completion content_;
};

/// Counters of a channel since it was made.
struct channel_statistics {
    std::uint64_t submitted = 0;
    std::uint64_t completed = 0;  ///< completions handed out
    std::uint64_t stale = 0;      ///< late or stale responses recognised and dropped
    std::uint64_t reconnects = 0;
    std::uint32_t quarantined = 0;  ///< slots waiting for a late response now
};

/// News of a channel's connection.
enum class channel_event : std::uint8_t {
    none,
    lost,         ///< calls in flight have ended, and new ones fail until it is made anew
    reconnected,  ///< with `reconnect`: a new session, maybe with another host of the URI; no call was sent twice
};

/// The client's end of one connection to a server. Belongs to one thread at a time; move-only.
/// A call goes begin → (write the request) → submit → poll or wait → (read the response) → release. begin, submit,
/// cancel, poll and release neither block, allocate, lock nor log.
/// In a child of fork() a parent's channel returns `invalid_state`, completes nothing and ends without effect.
class ACCEL_API channel {
  public:
    /// Connects to `scheme://host:port?key=value…` within `connect_timeout`, or to the first of several hosts
    /// (`tcp://a:1,b:2`) that answers, in order. With `connect_retry` it tries again for so long. Keys are the fields
    /// of `channel_options`; a misspelt one is an error that lists the right ones. May block and allocate.
    [[nodiscard]] static result<channel> connect(context& ctx, std::string_view uri,
                                                 const channel_options& options = {});
    channel(channel&&) noexcept;
    channel& operator=(channel&&) noexcept;
    /// As `close()`.
    ~channel();

    /// The target of this name, for any number of requests over any channel to this server, also after a
    /// reconnect. Asks the server; waits up to `connect_timeout`, and may allocate. `not_found`: the server
    /// has no such target; `invalid_argument`: no name is like this.
    [[nodiscard]] result<target> resolve(std::string_view name);

    /// Takes a free slot. Where none is free, or the server is lost, it first does what `poll` does, but hands out
    /// nothing: so `call` alone connects again and takes late answers. `again`: none is free (poll and release some);
    /// `peer_lost`; `closed`: by this end, or the server drains or has stopped.
    [[nodiscard]] status begin(call_view& out) noexcept;

    /// Sends the first `length` bytes of the slot's request room. On anything but `ok` the call stays begun.
    /// Where the transport has no room now, the call waits for it, within its deadline and before later ones:
    /// keep polling. Fails with `message_too_large`, `invalid_state`, `peer_lost`, `device_lost`, `closed`.
    [[nodiscard]] status submit(call_id id, std::size_t length, const submit_options& options = usual_options) noexcept;

    /// Sends `payload` from where it lies, without a copy. It is lent until the completion, and must not
    /// change until then; an expired or cancelled call completes only when the transport has released it, by
    /// the deadline + `peer_timeout` at the latest. If need be the session ends, and other calls with
    /// `peer_lost`. A GPU's memory, here or as `response_into`, is copied through the slot where the
    /// transport does not reach it (the timeline's `copy`): work that writes it must be done, kernels
    /// launched after the completion see the response. The first use of a slot so may take long.
    /// `device_lost`.
    [[nodiscard]] status submit(call_id id, slice payload, const submit_options& options = usual_options) noexcept;

    /// Sends the bytes of `ranges`, one after the other, as one request; in any regions, some perhaps twice. The list
    /// is read now; the memory is lent as above. Ranges without bytes are skipped. What the transport does not gather
    /// it copies into the slot, during this call: docs/memory.md says which does what. Allocates where the list is
    /// longer than any before in this slot. On anything but `ok` nothing was sent. `invalid_argument`: more than
    /// `max_ranges`, or one is no part of its region; `message_too_large`: too many bytes; `out_of_memory`;
    /// `unsupported`: one is on a GPU that the transport does not reach.
    [[nodiscard]] status submit(call_id id, std::span<const slice> ranges,
                                const submit_options& options = usual_options) noexcept;

    /// Ends a submitted call early: it completes with `cancelled`, unless its completion is already due. If
    /// it lent memory, that is within `peer_timeout`, as for an expiry. `ok` as well for a call that has
    /// ended and still waits for its memory; it completes as it would have. The slot stays in quarantine
    /// until the server's late answer has arrived. The server is told, so that its handler may stop early.
    [[nodiscard]] status cancel(call_id id) noexcept;

    /// Takes up to `out.size()` completions and returns how many. Never blocks.
    [[nodiscard]] std::size_t poll(std::span<completion> out) noexcept;

    /// As poll, but waits up to `timeout` for the first one. Returns 0 only on time-out or when nothing is in
    /// flight on a closed or lost channel.
    [[nodiscard]] std::size_t wait(std::span<completion> out, std::chrono::nanoseconds timeout) noexcept;

    /// The tensors that the response describes, in either form; all lie within `c.response`. Until
    /// `release`. `not_found`: nothing; `protocol_error`: nothing that makes sense; `message_too_large`: `out` has room
    /// for fewer than `count`; `unsupported`: if it says something, a GPU has it, or `response_ranges` have;
    /// `invalid_state`: `c` is no response.
    [[nodiscard]] status tensors(const completion& c, std::span<tensor> out, std::size_t& count) const noexcept;

    /// Gives back a completed (or begun, never submitted) call and its slot, or a part, which lets the server send
    /// another one. `invalid_state` for a stale id.
    status release(call_id id) noexcept;

    /// One blocking call: copies `request` into a slot, waits for the response. A failure that the server
    /// answered is an `error` with the handler's text. Other calls' completions stay queued for poll.
    [[nodiscard]] result<response> call(std::span<const std::byte> request,
                                        const submit_options& options = usual_options);

    /// A descriptor that becomes readable when `poll` has something to do, for an epoll loop. After a call with a
    /// deadline has ended early, it may become readable once more, with nothing to do.
    /// Before sleeping on it: poll until 0, then `arm()`; when that says false, poll again. A call that is submitted
    /// while the loop waits for it already needs another `arm()`, or its deadline wakes nobody.
    [[nodiscard]] int event_fd() const noexcept;
    [[nodiscard]] bool arm() noexcept;

    [[nodiscard]] std::size_t max_request_bytes() const noexcept;   ///< as granted by the server
    [[nodiscard]] std::size_t max_response_bytes() const noexcept;  ///< as granted by the server
    [[nodiscard]] std::uint32_t slots() const noexcept;             ///< as granted by the server
    [[nodiscard]] std::string_view scheme() const noexcept;         ///< the one in use ("tcp")
    /// Why `auto://` chose this scheme, and which better ones did not connect; a sentence for people.
    [[nodiscard]] std::string_view why() const noexcept;
    /// "tcp://host:port" of the server that it is, or was last, connected to: one of several hosts, say.
    [[nodiscard]] std::string endpoint() const;
    /// Calls can be begun. Also false while the server drains and calls in flight are still being answered.
    [[nodiscard]] bool connected() const noexcept;
    /// News of the connection, as far as `poll` or `wait` have noticed: `lost` and `reconnected` take
    /// turns, and `none` says that you know all. `event_fd` becomes readable for both. Losses in between that have been
    /// made good count once. An end by `close` is no event.
    [[nodiscard]] channel_event take_event() noexcept;
    [[nodiscard]] channel_statistics statistics() const noexcept;

    /// Ends the connection. Calls in flight complete with `closed` and can still be polled. Waits up to
    /// `close_timeout` for the transport to release lent slices (over `local` a second more at worst).
    void close() noexcept;

  private:
    friend class core::pool_state;
    explicit channel(std::unique_ptr<core::channel_core> core) noexcept;
    [[nodiscard]] result<response> call(std::span<const std::byte> request, const submit_options& options, bool& sent);
    std::unique_ptr<core::channel_core> core_;
};

}  // namespace accel
