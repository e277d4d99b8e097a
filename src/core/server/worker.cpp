#include "core/server/worker.hpp"

#include "core/server/device_work.hpp"
#include "core/server/stream_pool.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <utility>

#include <pthread.h>

/// The data path of a server, in the order a request travels: through its worker, its session and its
/// exchange, which are in one file so that they make few functions. Nothing here allocates, locks or logs.
namespace accel::core {
namespace {

/// The worker whose turn the current thread is in. Initial-exec: one load, also from a shared library.
constinit thread_local const worker* current __attribute__((tls_model("initial-exec"))) = nullptr;

/// A child that was forked in a handler is in no worker's turn: its answers go by `hand_over`, which knows
/// whose they are.
[[maybe_unused]] const int forgets_turn = ::pthread_atfork(nullptr, nullptr, [] { current = nullptr; });

void count(std::atomic<std::uint64_t>& counter) noexcept {
    counter.store(counter.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}

}  // namespace

std::size_t worker::turn() noexcept {
    const worker* outer = std::exchange(current, this);
    if (commands_pending_.load(std::memory_order_acquire)) run_commands();
    std::size_t total = 0;
    for (const auto& source : pollers_) {
        const std::size_t got = source->poll(events_);
        if (got == 0) continue;
        now_ = polled_at_ = now();
        total += got;
        const link_event* event = events_.data();
        const link_event* const end = event + got;
        do on_event(*event);
        while (++event != end);
    }
    if (posted_.load(std::memory_order_relaxed) != nullptr) {
        take_posted();
        ++total;
    }
    if (!waiting_.empty()) retry_waiting();
    if (streams_ != nullptr && streams_->working() > 0) [[unlikely]] {
        if (total == 0) now_ = now();
        if (poll_streams()) ++total;
    }
    if (!closing_.empty()) settle_closing();
    current = outer;
    return total;
}

inline void worker::on_event(const link_event& event) noexcept {
    auto& from = *static_cast<session*>(event.owner);
    if (from.gone()) [[unlikely]]
        return;
    if (event.kind == event_kind::arrived) [[likely]]
        return on_request(from, event);
    if (event.kind == event_kind::lost) return lose(from, event.reason);
    from.let_go(event.header.slot);
}

inline void worker::on_request(session& from, const link_event& event) noexcept {
    exchange_state* admitted = from.admit(event);
    if (admitted == nullptr) [[unlikely]]
        return lose(from, status::protocol_error);
    exchange_state& request = *admitted;
    const std::uint32_t open = open_.load(std::memory_order_relaxed) + 1;
    open_.store(open, std::memory_order_relaxed);
    request.arrival = polled_at_;
    request.handler_start = now_;
    const bool too_many = open > most_open_.load(std::memory_order_relaxed);
    if (too_many || request.deadline <= now_) [[unlikely]]
        return refuse_late_or_too_many(request, too_many);
    if (request.device != nullptr) [[unlikely]]
        return on_device_request(request);
    serve(request);
}

void worker::serve(exchange_state& request) noexcept {
    count(counters_.requests);
    hold();
    const std::uint64_t answered = answered_;
    service_(exchange{&request});
    if (answered_ == answered) now_ = now();  // else `send_answer` has just read it
}

inline exchange_state* session::admit(const link_event& event) noexcept {
    const slot_header& header = event.header;
    const bool sane = is_well_formed(header, message_kind::request) && header.slot < geometry_.slots &&
                      header.length <= geometry_.request_bytes && event.payload.size() == header.length &&
                      header.response_room <= geometry_.response_bytes;
    if (!sane) [[unlikely]]
        return nullptr;
    exchange_state& exchange = exchanges_[header.slot];
    // A slot is used again only after its answer, and under another generation.
    if (exchange.phase != exchange_phase::idle || exchange.generation == header.generation) [[unlikely]]
        return nullptr;

    exchange.phase = exchange_phase::open;
    exchange.borrowed = event.borrowed;
    exchange.generation = header.generation;
    exchange.trace_id = header.trace_id;
    exchange.deadline = nanoseconds{header.deadline_ns};
    exchange.request = event.payload;
    std::span<std::byte> room{exchange.header + header_bytes, answer_bytes_};
    if (!event.response_room.empty()) [[unlikely]]
        room = event.response_room;
    exchange.response_room = room.first(std::min<std::size_t>(room.size(), header.response_room));
    exchange.answer = {};
    ++open_;
    return &exchange;
}

[[gnu::noinline]] void worker::refuse_late_or_too_many(exchange_state& exchange, bool too_many) noexcept {
    if (leaving_) return ignore(exchange);
    count(too_many ? counters_.overloaded : counters_.expired);
    refuse(exchange, too_many ? status::overloaded : status::timed_out);
}

/// The session is about to end, which answers this request too. Refusals would keep its link busy for as long
/// as the client asks.
void worker::ignore(exchange_state& request) noexcept {
    session& from = *request.owner;
    (void)from.drop(request);
    open_.store(open_.load(std::memory_order_relaxed) - 1, std::memory_order_release);
    from.finish(request);
}

void worker::refuse(exchange_state& exchange, status why) noexcept {
    exchange.answer.code = why;
    exchange.payload = {};
    send_answer(exchange);
}

[[gnu::flatten]] status worker::answer(exchange_state& answered) noexcept {
    const session& to = *answered.owner;
    const bool gone = to.gone();
    worker& owner = to.owner();
    if (current == &owner) [[likely]] {
        owner.send_answer(answered);
    } else if (!owner.hand_over(answered)) {
        return status::invalid_state;
    }
    owner.let_go();
    return gone ? status::peer_lost : status::ok;
}

/// To the worker's thread. False: this process has none.
[[gnu::noinline]] bool worker::hand_over(exchange_state& answered) noexcept {
    if (inherited()) return false;
    exchange_state* head = posted_.load(std::memory_order_relaxed);
    do {
        answered.next = head;
    } while (!posted_.compare_exchange_weak(head, &answered, std::memory_order_seq_cst));
    wake();
    return true;
}

void worker::take_posted() noexcept {
    exchange_state* newest = posted_.exchange(nullptr, std::memory_order_acquire);
    exchange_state* oldest = nullptr;
    while (newest != nullptr) {
        exchange_state* next = std::exchange(newest->next, oldest);
        oldest = newest;
        newest = next;
    }
    while (oldest != nullptr) {
        exchange_state* next = oldest->next;
        send_answer(*oldest);
        oldest = next;
    }
}

[[gnu::always_inline]] inline void worker::send_answer(exchange_state& answered) noexcept {
    now_ = now();
    ++answered_;
    if (answered.device != nullptr && answered.device->lane != nullptr) [[unlikely]]
        return depart(answered);
    session& to = *answered.owner;
    const status sent = to.gone() ? to.drop(answered) : to.send(answered, now_);
    if (sent != status::ok) [[unlikely]]
        return end_answer(answered, sent);
    count(counters_.replies);
    open_.store(open_.load(std::memory_order_relaxed) - 1, std::memory_order_release);
    to.finish(answered);
}

/// … for those who are not in this file.
void worker::send_settled(exchange_state& answered) noexcept {
    send_answer(answered);
}

/// Of an answer that did not leave: now, or not at all.
[[gnu::noinline]] void worker::end_answer(exchange_state& answered, status sent) noexcept {
    if (sent == status::again) return waiting_.push_back(&answered);  // within reserved capacity
    session& to = *answered.owner;
    open_.store(open_.load(std::memory_order_relaxed) - 1, std::memory_order_release);
    to.finish(answered);
    lose(to, sent);
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
    const auto& stages = answered.answer.stages;
    const bool recorded = (stages[0].count() | stages[1].count() | stages[2].count()) != 0;
    if (!recorded) [[likely]]
        return;
    header.copy_ticks = to_ticks(stages[static_cast<std::size_t>(stage::copy)]);
    header.preprocessing_ticks = to_ticks(stages[static_cast<std::size_t>(stage::preprocessing)]);
    header.inference_ticks = to_ticks(stages[static_cast<std::size_t>(stage::inference)]);
}

inline status session::send(exchange_state& answered, nanoseconds at) noexcept {
    const region_state* lent = answered.answer.lent;
    if (lent != nullptr && answered.leases_out != nullptr) [[unlikely]]
        return status::again;
    write_header(answered, at);
    // Done with the request before the answer leaves: the next one may arrive before deliver returns.
    if (answered.borrowed) [[unlikely]]
        path_->consumed(answered.slot);
    if (lent == nullptr) [[likely]]
        return path_->deliver_plain(answered.slot, answered.payload);
    const status sent = path_->deliver({answered.slot, answered.payload, lent, {}});
    if (sent == status::ok) answered.leases_out = std::exchange(answered.leases, nullptr);
    return sent;
}

status session::drop(const exchange_state& answered) noexcept {
    path_->consumed(answered.slot);
    return status::peer_lost;
}

inline void session::finish(exchange_state& answered) noexcept {
    if (answered.leases != nullptr) [[unlikely]] {
        std::exchange(answered.leases, nullptr)->fetch_sub(1, std::memory_order_release);
    }
    answered.phase = exchange_phase::idle;
    --open_;
}

void worker::retry_waiting() noexcept {
    // Each one either leaves or queues again behind the others. They are taken off at once, as a client that
    // reads nothing lets many wait.
    const std::size_t before = waiting_.size();
    for (std::size_t i = 0; i < before; ++i) send_answer(*waiting_[i]);
    waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(before));
}

void worker::misuse() noexcept {
    std::fputs("accel: an exchange was used after it was answered or moved from\n", stderr);
    std::abort();
}

}  // namespace accel::core

namespace accel {

/// Here for the same reason; the other methods are in exchange.cpp.
status exchange::reply(std::size_t length) noexcept {
    if (state_ == nullptr) [[unlikely]]
        core::worker::misuse();
    core::exchange_state& state = *state_;
    if (length > state.response_room.size()) return status::message_too_large;
    state.payload = state.response_room.first(length);
    state_ = nullptr;
    return core::worker::answer(state);
}

}  // namespace accel
