// SPDX-License-Identifier: Apache-2.0
#include "core/metadata_description.hpp"
#include "core/region_state.hpp"
#include "core/server/worker.hpp"
#include "core/tensor_description.hpp"
#include "core/trace_description.hpp"
#include "staging/staged_exchanges.hpp"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <mutex>
#include <stop_token>

/// The public `exchange`, except its data path: `requests.cpp` has `request`, `answers.cpp` has `response`, `reply` and
/// `fail`.
namespace accel {
namespace {

bool takes_parts(const core::exchange_state& state) noexcept {
    return (state.extras & core::exchange_extra::in_parts) != 0;
}

bool comes_in_parts(const core::exchange_state& state) noexcept {
    return (state.extras & core::exchange_extra::continues) != 0;
}

bool is_cancelled(const core::exchange_state& state) noexcept {
    return state.owner->cancels().cancelled({state.slot, state.generation});
}

/// The client, or this process, has no part in the exchange any more.
bool is_cut_off(const core::exchange_state& state) noexcept {
    return core::is_inherited(state) || state.own.load(std::memory_order_acquire) != nullptr || state.owner->gone();
}

/// What the exchange waits for does not come through this thread.
bool may_wait(const core::exchange_state& state) noexcept {
    return !core::is_inherited(state) && !state.owner->owner().waits_for_this_thread();
}

/// An answer, whose description of tensors is in front of its header already.
core::extended_message extended(const core::exchange_state& state) noexcept {
    const bool described = (state.extras & core::exchange_extra::described) != 0;
    return {state.header, described ? state.extension_bytes : std::uint16_t{0}, 0};
}

bool goes_on(const core::exchange_state& state, std::chrono::nanoseconds deadline) noexcept {
    return !is_cancelled(state) && !state.owner->gone() && core::now() < deadline;
}

/// Blocks the thread that has an exchange until its client takes another part, or has sent one.
class blocking_waiter : exchange::part_waiter {
  public:
    blocking_waiter() : part_waiter{[](part_waiter& self) noexcept { static_cast<blocking_waiter&>(self).notify(); }} {}
    /// Until `parts`, a `part_credits` or `part_inbox`, has one, or never will have, or the deadline. It may end early:
    /// the worker also wakes for what has been taken meanwhile. False: another waits already.
    template <class Parts>
    [[nodiscard]] bool wait(Parts& parts, const core::exchange_state& state, const std::stop_token& stop,
                            std::chrono::nanoseconds deadline) {
        if (parts.waited_for()) return false;
        if (parts.await(*this, [&] { return is_cancelled(state); })) return true;
        std::unique_lock lock(mutex_);
        const auto called = [this] { return called_; };
        (void)changed_.wait_until(lock, stop, std::chrono::steady_clock::time_point{deadline}, called);
        lock.unlock();
        if (parts.forget(*this)) return true;
        lock.lock();
        changed_.wait(lock, called);  // the worker is about to
        return true;
    }

  private:
    void notify() noexcept {
        const std::lock_guard lock(mutex_);  // this object may end with the lock
        called_ = true;
        changed_.notify_all();
    }
    std::mutex mutex_;
    std::condition_variable_any changed_;
    bool called_ = false;
};

}  // namespace

result<slice, status> exchange::request_slice() const noexcept {
    const core::exchange_state& state = core::open_state(state_);
    if (core::is_inherited(state)) return status::invalid_state;
    return state.owner->lends().find_request(state.request);
}
result<slice, status> exchange::response_slice() const noexcept {
    const core::exchange_state& state = core::open_state(state_);
    if (core::is_inherited(state)) return status::invalid_state;
    return state.owner->lends().find_response(state.response_room);
}
result<std::span<tensor>, status> exchange::tensors(std::span<tensor> room) const noexcept {
    const core::exchange_state& state = core::open_state(state_);
    if (state.own.load(std::memory_order_acquire) != nullptr) return status::peer_lost;
    const std::byte* const header = state.owner->path().receive().header(state.slot);
    return core::read_description(header, state.generation, state.request, state.device == nullptr, room);
}
result<trace_context, status> exchange::trace() const noexcept {
    const core::exchange_state& state = core::open_state(state_);
    if (state.own.load(std::memory_order_acquire) != nullptr) return status::peer_lost;
    return core::read_trace(state.owner->path().receive().header(state.slot), state.generation);
}
result<std::string_view, status> exchange::baggage(std::span<char> room) const noexcept {
    const core::exchange_state& state = core::open_state(state_);
    if (state.own.load(std::memory_order_acquire) != nullptr) return status::peer_lost;
    return core::read_baggage(state.owner->path().receive().header(state.slot), state.generation, room);
}
result<std::span<const metadata_entry>, status> exchange::metadata(metadata_room& room) const noexcept {
    const core::exchange_state& state = core::open_state(state_);
    if (state.own.load(std::memory_order_acquire) != nullptr || state.owner->gone()) return status::peer_lost;
    const bool follows = (state.extras & core::exchange_extra::metadata) != 0;
    if (!follows) return core::read_metadata(state.owner->path().receive().header(state.slot), state.generation, room);
    const std::span<const std::byte> arrived = state.device == nullptr ? state.request : state.device->arrived;
    // On a GPU: the handler's own slot, where the transport or the client has written it.
    if (state.device != nullptr && arrived.data() == state.request.data()) return status::unsupported;
    return core::read_metadata({arrived.data() + arrived.size(), state.metadata_bytes}, room);
}

std::uint64_t exchange::trace_id() const noexcept {
    return core::open_state(state_).trace_id;
}
call_id exchange::id() const noexcept {
    const core::exchange_state& state = core::open_state(state_);
    return {state.slot, state.generation};
}
std::string_view exchange::target() const noexcept {
    const core::exchange_state& state = core::open_state(state_);
    const bool targeted = (state.ends.load(std::memory_order_relaxed) & core::exchange_end::targeted) != 0;
    return targeted ? std::string_view{state.target->name} : std::string_view{};
}
std::uint64_t exchange::session_id() const noexcept {
    return core::open_state(state_).owner->id();
}
std::string_view exchange::scheme() const noexcept {
    return core::open_state(state_).owner->scheme();
}
std::string_view exchange::peer() const noexcept {
    return core::open_state(state_).owner->client().name;
}

std::chrono::nanoseconds exchange::time_left() const noexcept {
    const auto deadline = core::open_state(state_).deadline;
    if (deadline == core::never) return deadline;
    return std::max(deadline - core::now(), std::chrono::nanoseconds{0});
}

bool exchange::cancelled() const noexcept {
    const core::exchange_state& state = core::open_state(state_);
    if (is_cancelled(state)) return true;
    return state.deadline != core::never && state.deadline <= core::now();
}

std::stop_token exchange::stop_token() const {
    core::exchange_state& state = core::open_state(state_);
    if (core::is_inherited(state)) return {};
    state.ends.fetch_or(core::exchange_end::watched, std::memory_order_relaxed);
    return state.owner->cancels().watch({state.slot, state.generation}, state.deadline);
}

void exchange::record(stage what, std::chrono::nanoseconds duration) noexcept {
    core::open_state(state_).answer.record(what, duration);
}

memory_kind exchange::memory() const noexcept {
    const core::exchange_state& state = core::open_state(state_);
    return state.device == nullptr ? memory_kind::host() : state.owner->owner().staging()->streams().device().kind();
}

CUstream_st* exchange::stream() const noexcept {
    const core::exchange_state& state = core::open_state(state_);
    return state.device == nullptr ? nullptr : state.device->lane->stream->native();
}

void exchange::mark(stage what) noexcept {
    const core::exchange_state& state = core::open_state(state_);
    if (state.device == nullptr || what == stage::copy || core::is_inherited(state)) return;
    state.device->lane->stream->mark(what == stage::inference ? core::stream_mark::inference
                                                              : core::stream_mark::preprocessing);
}

status exchange::describe(std::size_t length, std::span<const tensor> list) noexcept {
    const core::exchange_state& state = core::open_state(state_);
    return describe({state.response_room.data(), length}, state.device == nullptr, list);
}

status exchange::describe(slice payload, std::span<const tensor> list) noexcept {
    (void)core::open_state(state_);
    if (payload.region() == nullptr) return status::invalid_argument;
    return describe(payload.bytes(), payload.region()->device() == nullptr, list);
}

/// The room for extensions belongs to the exchange, as the room for the response does.
status exchange::describe(std::span<std::byte> payload, bool on_host, std::span<const tensor> list) noexcept {
    core::exchange_state& state = *state_;
    if (state.response_room.size() < payload.size()) return status::message_too_large;
    if (core::is_inherited(state)) return status::invalid_state;
    if (state.own.load(std::memory_order_acquire) != nullptr || state.owner->gone()) return status::peer_lost;
    std::uint16_t bytes = 0;
    const status done =
        core::describe_message({state.header, payload, on_host, core::metadata_after_bytes}, list, bytes);
    if (done != status::ok) return done;
    state.extension_bytes = bytes;
    state.extras |= core::exchange_extra::described;
    return done;
}

/// Beside the tensors' description if there is room, else after the payload.
status exchange::reply(std::size_t length, std::span<const metadata_entry> metadata) noexcept {
    core::exchange_state& state = core::open_state(state_);
    if (metadata.empty() || is_cut_off(state)) return reply(length);
    if (length > state.response_room.size()) return status::message_too_large;
    const std::size_t bytes = core::metadata_bytes(metadata);
    if (bytes == 0) return status::invalid_argument;
    const core::extended_message to = extended(state);
    std::uint16_t extensions = core::write_metadata(to, metadata, bytes);
    if (extensions == to.extension_bytes) {
        if (state.device != nullptr) return status::unsupported;
        if (bytes > state.response_room.size() - length) return status::message_too_large;
        extensions = core::write_metadata_after(to, state.response_room.data() + length, metadata, bytes);
        length += bytes;
    }
    state.extension_bytes = extensions;
    state.extras |= core::exchange_extra::described;
    return reply(length);
}

status exchange::reply(slice payload, std::atomic<std::uint32_t>& leases,
                       std::span<const metadata_entry> metadata) noexcept {
    core::exchange_state& state = core::open_state(state_);
    if (metadata.empty() || is_cut_off(state)) return reply(payload, leases);
    const std::size_t bytes = core::metadata_bytes(metadata);
    if (bytes == 0) return status::invalid_argument;
    const core::extended_message before = extended(state);
    const std::uint8_t extras = state.extras;
    const std::uint16_t extensions = core::write_metadata(before, metadata, bytes);
    if (extensions == before.extension_bytes) return reply_with_copy(payload, bytes, metadata);
    state.extension_bytes = extensions;
    state.extras |= core::exchange_extra::described;
    const status done = reply(payload, leases);
    if (state_ == nullptr) return done;
    state.extension_bytes = before.extension_bytes;
    state.extras = extras;
    return done;
}

/// Metadata that follows the payload cannot leave from lent memory.
status exchange::reply_with_copy(slice payload, std::size_t bytes, std::span<const metadata_entry> metadata) noexcept {
    core::exchange_state& state = *state_;
    if (payload.region() == nullptr) return status::invalid_argument;
    if (payload.region()->inherited()) return status::invalid_state;
    if (state.device != nullptr || payload.region()->device() != nullptr) return status::unsupported;
    const std::size_t room = state.response_room.size();
    if (payload.size() > room || bytes > room - payload.size()) return status::message_too_large;
    if (!payload.empty()) std::memmove(state.response_room.data(), payload.data(), payload.size());
    return reply(payload.size(), metadata);
}

bool exchange::in_parts() const noexcept {
    return takes_parts(core::open_state(state_));
}

std::span<std::byte> exchange::part() noexcept {
    const core::exchange_state& state = core::open_state(state_);
    // Over `local`, a client that is gone may use its slots anew.
    if (!takes_parts(state) || core::is_inherited(state) || state.owner->gone()) return {};
    const core::exchange_state* const room = state.owner->parts_of(state).next();
    return room == nullptr ? std::span<std::byte>{} : room->response_room;
}

std::span<std::byte> exchange::part(std::chrono::nanoseconds timeout) noexcept {
    std::span<std::byte> room = part();
    core::exchange_state& state = *state_;
    const bool waits = room.empty() && timeout > std::chrono::nanoseconds{0} && takes_parts(state) && may_wait(state);
    if (!waits) return room;
    const std::chrono::nanoseconds deadline = std::min(core::deadline_after(timeout), state.deadline);
    try {
        const std::stop_token stop = stop_token();
        while (room.empty() && goes_on(state, deadline) &&
               blocking_waiter{}.wait(state.owner->parts_of(state), state, stop, deadline))
            room = part();
    } catch (const std::exception&) {
        return room;  // no memory
    }
    return room;
}

status exchange::send(std::size_t length) noexcept {
    const core::exchange_state& state = core::open_state(state_);
    if (core::is_inherited(state)) return status::invalid_state;
    if (!takes_parts(state)) return status::unsupported;
    if (state.owner->gone()) return status::peer_lost;
    if (is_cancelled(state)) return status::cancelled;
    core::part_credits& parts = state.owner->parts_of(state);
    if (parts.named() == nullptr) return status::again;  // room that has come since was not written
    if (length > parts.named()->response_room.size()) return status::message_too_large;
    core::exchange_state& part = parts.take();
    part.payload = part.response_room.first(length);
    part.trace_id = parts.count();  // lies where a part has its number
    part.arrival = state.arrival;
    part.handler_start = state.handler_start;
    part.counts = state.counts;
    return core::worker::post_part(part);
}

/// The application's bytes cannot be copied to a GPU here.
bool exchange::copies_to_gpu(std::span<const std::byte> bytes) const noexcept {
    const core::exchange_state& state = core::open_state(state_);
    const core::device_session* const device = state.owner->on_device();
    return device != nullptr && !device->staged() && !bytes.empty();
}

status exchange::send(std::span<const std::byte> bytes) noexcept {
    if (copies_to_gpu(bytes)) return status::unsupported;
    const std::span<std::byte> room = part();
    if (bytes.size() <= room.size() && !bytes.empty()) std::memcpy(room.data(), bytes.data(), bytes.size());
    return send(bytes.size());
}

status exchange::send(std::span<const std::byte> bytes, std::chrono::nanoseconds timeout) noexcept {
    if (copies_to_gpu(bytes)) return status::unsupported;
    const std::chrono::nanoseconds deadline = core::deadline_after(timeout);
    (void)part(timeout);
    const status sent = send(bytes);
    if (sent != status::again) return sent;
    if (cancelled()) return status::cancelled;
    return core::now() < deadline ? status::again : status::timed_out;
}

bool exchange::await_part(part_waiter& who) noexcept {
    const core::exchange_state& state = core::open_state(state_);
    if (!takes_parts(state) || core::is_inherited(state)) return true;
    core::part_credits& parts = state.owner->parts_of(state);
    return parts.await(who, [&] { return is_cancelled(state); });
}

bool exchange::continues() const noexcept {
    core::exchange_state& state = core::open_state(state_);
    if (!comes_in_parts(state)) return false;
    state.ends.fetch_or(core::exchange_end::asked, std::memory_order_relaxed);
    return !state.owner->inbox_of(state).complete();
}

request_part exchange::receive() noexcept {
    const core::exchange_state& state = core::open_state(state_);
    if (!continues() || core::is_inherited(state)) return request_part{status::invalid_state};
    // Over `local`, a client that is gone may use its slots anew.
    if (state.owner->gone()) return request_part{status::peer_lost};
    if (is_cancelled(state)) return request_part{status::cancelled};
    core::part_inbox& inbox = state.owner->inbox_of(state);
    core::exchange_state* const part = inbox.take();
    if (part == nullptr) return request_part{status::again};
    part->counts = state.counts;
    state.owner->hold_part(*part);
    state.owner->owner().hold();
    return {part, inbox.complete()};
}

request_part exchange::receive(std::chrono::nanoseconds timeout) noexcept {
    request_part next = receive();
    const bool waits = next.status() == status::again && timeout > std::chrono::nanoseconds{0} && may_wait(*state_);
    if (!waits) return next;
    core::exchange_state& state = *state_;
    const std::chrono::nanoseconds deadline = core::deadline_after(timeout);
    const std::chrono::nanoseconds first = std::min(deadline, state.deadline);
    try {
        const std::stop_token stop = stop_token();
        while (next.status() == status::again && goes_on(state, first) &&
               blocking_waiter{}.wait(state.owner->inbox_of(state), state, stop, first))
            next = receive();
    } catch (const std::exception&) {
        return next;  // no memory
    }
    if (next.status() != status::again) return next;
    if (cancelled()) return request_part{status::cancelled};
    return request_part{core::now() < deadline ? status::again : status::timed_out};
}

bool exchange::await_request_part(part_waiter& who) noexcept {
    const core::exchange_state& state = core::open_state(state_);
    if (!comes_in_parts(state) || core::is_inherited(state)) return true;
    (void)continues();
    return state.owner->inbox_of(state).await(who, [&] { return is_cancelled(state); });
}

std::span<const std::byte> request_part::bytes() const noexcept {
    if (state_ == nullptr) return {};
    const core::own_memory* const own = state_->own.load(std::memory_order_acquire);
    return own == nullptr ? state_->request : own->request;
}

void request_part::give_back() noexcept {
    core::exchange_state& part = *std::exchange(state_, nullptr);
    status_ = status::invalid_state;
    core::worker::give_back_part(part);
}

}  // namespace accel

namespace accel::core {

exchange_state& misused_exchange() noexcept {
    std::fputs("accel: an exchange was used after it was answered or moved from\n", stderr);
    std::abort();
}

}  // namespace accel::core
