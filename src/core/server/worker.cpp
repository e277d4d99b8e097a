#include "core/server/worker.hpp"

#include <utility>

/// The data path of a server, in the order a request travels. Nothing here allocates, locks or logs.
namespace accel::core {
namespace {

/// The worker whose turn the current thread is in. Initial-exec: one load, also from a shared library.
constinit thread_local const worker* current __attribute__((tls_model("initial-exec"))) = nullptr;

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
        if (got > 0) now_ = polled_at_ = now();
        for (std::size_t i = 0; i < got; ++i) on_event(events_[i]);
        total += got;
    }
    if (posted_.load(std::memory_order_relaxed) != nullptr) {
        take_posted();
        ++total;
    }
    if (!waiting_.empty()) retry_waiting();
    if (!closing_.empty()) settle_closing();
    current = outer;
    return total;
}

void worker::on_event(const link_event& event) noexcept {
    auto& from = *static_cast<session*>(event.owner);
    if (from.gone()) return;
    switch (event.kind) {
        case event_kind::arrived:
            return on_request(from, event);
        case event_kind::let_go:
            return from.let_go(event.header.slot);
        case event_kind::lost:
            return lose(from, event.reason);
    }
}

void worker::on_request(session& from, const link_event& event) noexcept {
    exchange_state* admitted = from.admit(event);
    if (admitted == nullptr) return lose(from, status::protocol_error);
    exchange_state& request = *admitted;
    const std::uint32_t open = open_.load(std::memory_order_relaxed) + 1;
    open_.store(open, std::memory_order_relaxed);
    request.arrival = polled_at_;
    request.handler_start = now_;
    if (draining_.load(std::memory_order_relaxed) || open > options_.max_exchanges) {
        count(counters_.overloaded);
        return refuse(request, status::overloaded);
    }
    if (request.deadline <= now_) {
        count(counters_.expired);
        return refuse(request, status::timed_out);
    }
    count(counters_.requests);
    hold();
    const std::uint64_t answered = answered_;
    service_(exchange{&request});
    if (answered_ == answered) now_ = now();  // else `send_answer` has just read it
}

void worker::refuse(exchange_state& exchange, status why) noexcept {
    exchange.code = why;
    exchange.phase = exchange_phase::answered;
    send_answer(exchange);
}

void worker::post(exchange_state& answer) noexcept {
    if (current == this) {
        send_answer(answer);
        return let_go();
    }
    exchange_state* head = posted_.load(std::memory_order_relaxed);
    do {
        answer.next = head;
    } while (!posted_.compare_exchange_weak(head, &answer, std::memory_order_seq_cst));
    wake();
    let_go();
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

void worker::send_answer(exchange_state& answer) noexcept {
    session& to = *answer.owner;
    now_ = now();
    ++answered_;
    const status sent = to.gone() ? to.drop(answer) : to.send(answer, now_);
    if (sent == status::again) return waiting_.push_back(&answer);  // within reserved capacity
    if (sent == status::ok) count(counters_.replies);
    open_.store(open_.load(std::memory_order_relaxed) - 1, std::memory_order_release);
    to.finish(answer);
    if (sent != status::ok) lose(to, sent);
}

void worker::retry_waiting() noexcept {
    // Each one either leaves or queues again behind the others.
    for (std::size_t left = waiting_.size(); left > 0; --left) {
        exchange_state* oldest = waiting_.front();
        waiting_.erase(waiting_.begin());
        send_answer(*oldest);
    }
}

}  // namespace accel::core
