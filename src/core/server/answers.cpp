// SPDX-License-Identifier: Apache-2.0
#include "core/log.hpp"
#include "core/region_state.hpp"
#include "core/server/worker.hpp"
#include "core/this_thread.hpp"
#include "staging/staged_exchanges.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <new>
#include <utility>

/// An answer's way from the handler to the link. Nothing here allocates, locks or logs, except for a handler's
/// exception.

namespace accel {
namespace {

status as_failure(status reason) noexcept {
    const bool failure = reason != status::ok && static_cast<std::uint16_t>(reason) < status_count;
    return failure ? reason : status::application_error;
}

}  // namespace

std::span<std::byte> exchange::response() const noexcept {
    return core::open_state(state_).room();
}

status exchange::reply(std::size_t length) noexcept {
    core::exchange_state& state = core::open_state(state_);
    if (length > state.response_room.size()) return status::message_too_large;
    state.payload = state.response_room.first(length);
    state_ = nullptr;
    return core::worker::answer(state);
}

status exchange::reply(slice payload, std::atomic<std::uint32_t>& leases) noexcept {
    core::exchange_state& state = core::open_state(state_);
    if (payload.size() > state.response_room.size()) return status::message_too_large;
    if (payload.region() == nullptr) return status::invalid_argument;
    if (payload.region()->inherited()) return status::invalid_state;
    const bool on_device = payload.region()->device() != nullptr;
    if (on_device && state.device == nullptr && !state.owner->path().reaches(*payload.region(), false))
        return status::unsupported;
    if (payload.empty()) return reply(std::size_t{0});  // nothing is lent
    if (state.device == nullptr && !on_device && state.is_wanted_in(state.response_room)) {
        std::memmove(state.room().data(), payload.data(), payload.size());
        return reply(payload.size());
    }
    leases.fetch_add(1, std::memory_order_relaxed);
    state.payload = payload.bytes();
    state.answer.lent = payload.region();
    state.leases = &leases;
    state_ = nullptr;
    return core::worker::answer(state);
}

status exchange::fail(status reason, std::uint32_t code, std::string_view message) noexcept {
    core::exchange_state& state = core::open_state(state_);
    if (core::is_inherited(state)) {
        state_ = nullptr;
        return status::invalid_state;
    }
    state.answer.fail(as_failure(reason));
    state.answer.application_code = code;
    core::worker::write_failure(state, message);
    state_ = nullptr;
    return core::worker::answer(state);
}

exchange& exchange::operator=(exchange&& other) noexcept {
    if (this != &other) {
        if (state_ != nullptr) (void)fail(status::abandoned);
        state_ = std::exchange(other.state_, nullptr);
    }
    return *this;
}

void exchange::abandon() noexcept {
    if (std::uncaught_exceptions() > 0 && core::worker::abandon_later(*state_)) return;
    (void)fail(status::abandoned);
}

}  // namespace accel

namespace accel::core {

std::span<std::byte> exchange_state::room() const noexcept {
    const own_memory* const copy = own.load(std::memory_order_acquire);
    return copy == nullptr ? response_room : copy->response_room;
}

// An answer that leaves at once.

[[gnu::flatten]] status worker::answer(exchange_state& answered) noexcept {
    session& to = *answered.owner;
    worker& own = to.owner();
    const bool leaves_now = own.runs_here() && !to.gone();
    if (!leaves_now) [[unlikely]]
        return own.answer_otherwise(answered);
    own.send_to(to, answered);
    own.release_ref();
    return status::ok;
}

bool worker::runs_here() const noexcept {
    return round_.load(std::memory_order_relaxed) == this_thread();
}

[[gnu::always_inline]] inline void worker::send_to(session& to, exchange_state& answered) noexcept {
    const nanoseconds at = now_ = clock_.now();
    if (answered.device != nullptr && answered.device->lane != nullptr) [[unlikely]]
        return staging_->send(answered);
    const status sent = to.send(answered, at);
    if (sent != status::ok) [[unlikely]]
        return end_answer(answered, sent);
    counters_.replies.add();
    if (answered.counts != nullptr) count_answer(answered);
    finish(to, answered);
    close_one();  // last: then the server may be drained
}

inline status session::send(exchange_state& answered, nanoseconds at) noexcept {
    const bool plain = answered.answer.lent == nullptr && answered.extras == 0;
    if (!plain) [[unlikely]]
        return send_with_extras(answered, at);
    write_header(answered, at);
    return path_->deliver_plain(answered.slot, answered.payload);
}

inline void session::write_header(const exchange_state& answered, nanoseconds at) const noexcept {
    auto& header = *new (answered.header) slot_header;
    header.kind = message_kind::response;
    header.slot = answered.slot;
    header.generation = answered.generation;
    header.code = answered.answer.code;
    header.length = answered.payload.size();
    header.trace_id = answered.trace_id;
    header.server_ticks = to_ticks(at - answered.arrival);
    header.application_code = answered.answer.application_code;
    header.arrival_ns = answered.arrival.count();
    header.queue_ticks = to_ticks(answered.handler_start - answered.arrival);
    if (!answered.answer.counts_apart) [[likely]]
        return;  // nothing was recorded
    const auto& stages = answered.answer.stages;
    header.copy_ticks = to_ticks(stages[static_cast<std::size_t>(stage::copy)]);
    header.preprocessing_ticks = to_ticks(stages[static_cast<std::size_t>(stage::preprocessing)]);
    header.inference_ticks = to_ticks(stages[static_cast<std::size_t>(stage::inference)]);
}

/// A handler that never asked for the parts of a request has answered a piece of it.
void session::refuse_unread_parts(exchange_state& answered) noexcept {
    const bool asked = (answered.ends.load(std::memory_order_relaxed) & exchange_end::asked) != 0;
    if (asked || answered.answer.code != status::ok) return;
    answered.answer.fail(status::unsupported);
    answered.answer.lent = nullptr;
    worker::write_failure(answered, "this handler takes no requests in parts");
}

/// An answer with lent memory, tensors or parts before it, or to a request in parts or one that the link lent.
[[gnu::noinline]] status session::send_with_extras(exchange_state& answered, nanoseconds at) noexcept {
    if ((answered.extras & exchange_extra::continues) != 0) refuse_unread_parts(answered);
    const region_state* const lent = answered.answer.lent;
    if (lent != nullptr && answered.leases_out != nullptr) return status::again;
    write_header(answered, at);
    // Release the request before the answer leaves: the next request may arrive before `deliver` returns.
    if ((answered.extras & exchange_extra::borrowed) != 0) path_->consumed(answered.slot);
    // A failure has no tensors.
    const bool described = (answered.extras & exchange_extra::described) != 0 && answered.answer.code == status::ok;
    const std::uint16_t bytes = described ? answered.extension_bytes : std::uint16_t{0};
    auto& header = *reinterpret_cast<slot_header*>(answered.header);
    header.extension_bytes = bytes;
    if ((answered.extras & exchange_extra::in_parts) != 0) header.parts_before = parts_of(answered).sent();
    const status sent = path_->deliver({answered.slot, answered.payload, lent, {}, bytes});
    if (sent == status::ok && lent != nullptr) answered.leases_out = std::exchange(answered.leases, nullptr);
    return sent;
}

/// Its answer has left, at `now_`.
[[gnu::always_inline]] inline void worker::count_answer(exchange_state& answered) const noexcept {
    if (answered.answer.counts_apart) [[unlikely]]
        return count_apart(answered);
    server_series& to = *answered.counts;
    // Read before anything is written: the compiler cannot know that counters lie apart.
    const std::size_t request_bytes = answered.request.size();
    const std::size_t response_bytes = answered.payload.size();
    const nanoseconds at_server = now_ - answered.arrival;
    const nanoseconds queued = answered.handler_start - answered.arrival;
    to.request_bytes.add(request_bytes);
    to.response_bytes.add(response_bytes);
    to.of(counted_stage::server).add(at_server);
    to.of(counted_stage::queue).add(queued);
}

/// An answer for a target, with stages, or a failed one.
[[gnu::noinline]] void worker::count_apart(exchange_state& answered) const noexcept {
    server_series& to = *std::exchange(answered.counts, answered.owner->counts());
    to.request_bytes.add(answered.request.size());
    to.response_bytes.add(answered.payload.size());
    if (answered.answer.code != status::ok) return to.failures[static_cast<std::size_t>(answered.answer.code)].add();
    to.of(counted_stage::server).add(now_ - answered.arrival);
    to.of(counted_stage::queue).add(answered.handler_start - answered.arrival);
    constexpr std::array recorded{counted_stage::copy, counted_stage::preprocessing, counted_stage::inference};
    for (std::size_t i = 0; i < recorded.size(); ++i)
        if (answered.answer.stages[i] > nanoseconds{0}) to.of(recorded[i]).add(answered.answer.stages[i]);
}

/// The slot is free for the client's next request.
[[gnu::always_inline]] inline void worker::finish(session& of, exchange_state& answered) noexcept {
    if (answered.leases != nullptr || answered.ends.load(std::memory_order_relaxed) != 0) [[unlikely]]
        end_extras(of, answered);
    of.finish(answered);
}

inline void session::finish(exchange_state& answered) noexcept {
    answered.phase = exchange_phase::idle;
    --open_;
}

/// Of a lent answer that has not left.
void worker::end_lease(exchange_state& answered) noexcept {
    if (answered.leases != nullptr) std::exchange(answered.leases, nullptr)->fetch_sub(1, std::memory_order_release);
}

/// For a lent answer that did not leave, and for an exchange with a stop token, parts or a target.
[[gnu::noinline]] void worker::end_extras(session& of, exchange_state& answered) noexcept {
    end_lease(answered);
    const std::uint8_t ends = answered.ends.exchange(0, std::memory_order_relaxed);
    if ((ends & exchange_end::intercepted) != 0) tell_interceptors(answered, (ends & exchange_end::targeted) != 0);
    if ((ends & exchange_end::watched) != 0) of.cancels().forget(answered.slot);
    if ((ends & exchange_end::in_parts) != 0) end_parts(of, answered);
    if ((ends & exchange_end::continues) != 0) end_inbox(of, answered);
    if ((ends & exchange_end::targeted) != 0) targets_.release(*answered.target);
}

// Answers that do not leave at once: of other threads, not taken by the link, or for clients that are gone.

/// On another thread, or of a client that is gone.
[[gnu::noinline]] status worker::answer_otherwise(exchange_state& answered) noexcept {
    const bool gone = answered.owner->gone();
    if (gone) end_lease(answered);  // a worker that has ended would keep it
    if (runs_here()) {
        send(answered);
    } else if (inherited()) {
        return status::invalid_state;  // this process has no thread of the worker
    } else {
        post(answered);
        wake();
    }
    release_ref();
    return gone ? status::peer_lost : status::ok;
}

/// Any thread. Lock-free.
void worker::post(exchange_state& answered) noexcept {
    exchange_state* head = posted_.load(std::memory_order_relaxed);
    do {
        answered.next = head;
    } while (!posted_.compare_exchange_weak(head, &answered, std::memory_order_seq_cst));
}

/// All of them, oldest first, linked through `next`.
exchange_state* worker::take_posted() noexcept {
    exchange_state* newest = posted_.exchange(nullptr, std::memory_order_acquire);
    exchange_state* oldest = nullptr;
    while (newest != nullptr) {
        exchange_state* next = std::exchange(newest->next, oldest);
        oldest = newest;
        newest = next;
    }
    return oldest;
}

/// After a round of `events`. True: there was something to do.
[[gnu::noinline]] bool worker::follow_up(std::size_t events) noexcept {
    bool any = false;
    if (any_posted()) {
        send_posted();
        any = true;
    }
    if (!waiting_.empty()) send_waiting();
    if (staging_ != nullptr && staging_->working()) [[unlikely]] {
        if (events == 0 && !any) now_ = clock_.now();
        any = staging_->poll() || any;
    }
    return any;
}

void worker::send_posted() noexcept {
    exchange_state* oldest = take_posted();
    while (oldest != nullptr) {
        exchange_state* next = oldest->next;
        send_again(*oldest);
        oldest = next;
    }
}

void worker::send_waiting() noexcept {
    // Each answer leaves or queues again behind the others. All are erased at once, because many wait if a
    // client reads nothing.
    const std::size_t before = waiting_.size();
    for (std::size_t i = 0; i < before; ++i) send_again(*waiting_[i]);
    waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(before));
}

/// An answer, or a part, that did not leave at once.
void worker::send_again(exchange_state& answered) noexcept {
    (answered.extras & exchange_extra::further) != 0 ? send_part(answered) : send(answered);
}

void worker::send(exchange_state& answered) noexcept {
    session& to = *answered.owner;
    to.gone() ? send_nowhere(answered) : send_to(to, answered);
}

/// Its client is gone.
[[gnu::noinline]] void worker::send_nowhere(exchange_state& answered) noexcept {
    now_ = clock_.now();
    if (answered.device != nullptr && answered.device->lane != nullptr) return staging_->send(answered);
    end_answer(answered, answered.owner->drop(answered));
}

status session::drop(const exchange_state& answered) noexcept {
    path_->consumed(answered.slot);
    return status::peer_lost;
}

/// Handles an answer that did not leave: it waits, or goes nowhere.
[[gnu::noinline]] void worker::end_answer(exchange_state& answered, status sent) noexcept {
    if (sent == status::again) return waiting_.push_back(&answered);  // within reserved capacity
    session& to = *answered.owner;
    count_lost(answered);
    finish(to, answered);
    close_one();
    lose(to, sent);
}

/// Its answer went nowhere.
[[gnu::noinline]] void worker::count_lost(exchange_state& answered) const noexcept {
    answered.answer.fail(status::peer_lost);
    answered.payload = {};
    if (answered.counts != nullptr) count_apart(answered);
}

/// The session is about to end, which answers this request too. Refusals would keep its link busy for as long
/// as the client sends requests.
void worker::ignore(exchange_state& request) noexcept {
    session& from = *request.owner;
    (void)from.drop(request);
    count_lost(request);
    finish(from, request);
    close_one();
}

// Parts, and slots that are given back without one.

status worker::post_part(exchange_state& part) noexcept {
    session& to = *part.owner;
    worker& own = to.owner();
    if (own.runs_here()) {
        own.send_part(part);
    } else if (own.inherited()) {
        return status::invalid_state;
    } else {
        own.post(part);
        own.wake();
    }
    return to.gone() ? status::peer_lost : status::ok;
}

/// Ends the caller's reference.
void worker::give_back_part(exchange_state& part) noexcept {
    worker& own = part.owner->owner();
    part.extras |= exchange_extra::returned;
    if (own.runs_here()) {
        own.send_part(part);
    } else if (own.inherited()) {
        return;  // this process has no thread of the worker
    } else {
        own.post(part);  // the session may end with it
        own.wake();
    }
    own.release_ref();
}

/// Hands a part to its link, or a slot that is given back. One that the link does not take counts as an open exchange.
void worker::send_part(exchange_state& part) noexcept {
    session& to = *part.owner;
    const status sent = to.gone() ? to.drop(part) : to.send_part(part, now_ = clock_.now());
    const bool queued = (part.extras & exchange_extra::queued) != 0;
    if (sent == status::again) {
        if (!queued) {
            part.extras |= exchange_extra::queued;
            open_.store(open_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
            to.hold_for_part();
        }
        return waiting_.push_back(&part);  // within reserved capacity
    }
    if (queued) close_one();
    count_part(part, sent);
    to.finish_part(part);
    if (sent != status::ok) lose(to, sent);
}

status session::send_part(exchange_state& part, nanoseconds at) noexcept {
    if ((part.extras & exchange_extra::borrowed) != 0) path_->consumed(part.slot);
    const bool returned = (part.extras & exchange_extra::returned) != 0;
    const bool room = part.phase == exchange_phase::room;
    part.answer.code = returned && room ? status::cancelled : status::ok;
    write_header(part, at);
    if (!returned) reinterpret_cast<slot_header*>(part.header)->flags = header_flag::more;
    return path_->deliver_plain(part.slot, part.payload);
}

void session::finish_part(exchange_state& part) noexcept {
    if ((part.extras & exchange_extra::queued) != 0) --open_;
    if (part.ends.load(std::memory_order_relaxed) != 0) {
        part.ends.store(0, std::memory_order_relaxed);
        held_parts_.fetch_sub(1, std::memory_order_relaxed);
        owner_.part_released();
    }
    part.phase = exchange_phase::idle;
}

/// A part of a response has left, or went nowhere, or a handler has released a part of a request.
void worker::count_part(exchange_state& part, status sent) noexcept {
    server_series* const to = std::exchange(part.counts, part.owner->counts());
    if (to == nullptr) return;
    if ((part.ends.load(std::memory_order_relaxed) & exchange_end::taken) != 0)
        to->request_bytes.add(part.request.size());
    if (sent != status::ok || (part.extras & exchange_extra::returned) != 0) return;
    to->parts.add();
    to->response_bytes.add(part.payload.size());
}

/// The call has its answer. Room that no part has used goes back to the client.
void worker::end_parts(session& of, exchange_state& answered) noexcept {
    part_credits& parts = of.parts_of(answered);
    while (parts.next() != nullptr) {
        exchange_state& room = parts.take();
        room.extras |= exchange_extra::returned;
        room.payload = {};
        send_part(room);
    }
    parts.end();
}

/// … and parts of its request that the handler has not taken.
void worker::end_inbox(session& of, exchange_state& answered) noexcept {
    exchange_state* left = of.inbox_of(answered).end();
    while (left != nullptr) {
        exchange_state& part = *std::exchange(left, left->next);
        part.extras |= exchange_extra::returned;
        send_part(part);
    }
}

// Exceptions.

bool worker::abandon_later(exchange_state& dropped) noexcept {
    worker& own = dropped.owner->owner();
    if (!own.runs_here()) return false;
    dropped.answer.fail(status::abandoned);
    dropped.payload = {};
    own.post(dropped);
    own.release_ref();
    return true;
}

/// An exception has left the handler of `request`, which it may have answered before.
[[gnu::noinline]] void worker::on_exception(const exchange_state& request) noexcept {
    try {
        throw;
    } catch (const std::exception& known) {
        answer_thrown(request, known.what());
    } catch (...) {
        answer_thrown(request, "an exception not derived from std::exception");
    }
}

void worker::answer_thrown(const exchange_state& request, std::string_view text) noexcept {
    limited_log("handlers").error("a handler threw: {}", text);
    exchange_state* oldest = take_posted();
    while (oldest != nullptr) {
        exchange_state* next = oldest->next;
        if (oldest == &request && oldest->answer.code == status::abandoned) {
            oldest->answer.fail(status::application_error);
            write_failure(*oldest, text);
        }
        send_again(*oldest);
        oldest = next;
    }
}

void worker::write_failure(exchange_state& answered, std::string_view text) noexcept {
    const std::span<std::byte> room = answered.device == nullptr ? answered.room() : answered.device->text;
    const std::size_t length = std::min(text.size(), room.size());
    if (length > 0) std::memcpy(room.data(), text.data(), length);
    answered.payload = room.first(length);
}

}  // namespace accel::core
