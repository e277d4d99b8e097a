// SPDX-License-Identifier: Apache-2.0
#include "core/server/exchange_server.hpp"

#include "core/server/gpu_exchanges.hpp"
#include "core/server/worker.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include <pthread.h>

/// Nothing here allocates, locks or logs.
namespace accel::core {

/// A child that was forked in a handler runs no worker's round. Its answers go through `answer_otherwise`,
/// which recognises them as the parent's.
[[maybe_unused]] const int exchange_server::forgets_round =
    ::pthread_atfork(nullptr, nullptr, [] { current = nullptr; });

exchange_server::exchange_server(worker& owner, const server_options& options, handler service)
    : owner_(owner), service_(std::move(service)), max_open_(options.max_exchanges) {}

exchange_server::~exchange_server() = default;

void exchange_server::use(std::unique_ptr<gpu_exchanges> gpu) noexcept {
    gpu_ = std::move(gpu);
}

[[gnu::noinline]] void exchange_server::serve_on_gpu(exchange_state& request) noexcept {
    gpu_->serve(request);
}

void exchange_server::refuse(exchange_state& request, status why) noexcept {
    request.answer.code = why;
    request.payload = {};
    send(request);
}

[[gnu::noinline]] void exchange_server::refuse_late_or_too_many(exchange_state& request,
                                                                bool too_many) noexcept {
    if (leaving_) return ignore(request);
    worker_counters::count(too_many ? counters_.overloaded : counters_.expired);
    refuse(request, too_many ? status::overloaded : status::timed_out);
}

/// The session is about to end, which answers this request too. Refusals would keep its link busy for as long
/// as the client sends requests.
void exchange_server::ignore(exchange_state& request) noexcept {
    session& from = *request.owner;
    (void)from.drop(request);
    close_one();
    from.finish(request);
}

[[gnu::flatten]] status exchange_server::answer(exchange_state& answered) noexcept {
    session& to = *answered.owner;
    worker& owner = to.owner();
    exchange_server& own = owner.exchanges();
    const bool leaves_now = current == &own && !to.gone();
    if (!leaves_now) [[unlikely]]
        return own.answer_otherwise(answered);
    own.send_to(to, answered);
    owner.release_ref();
    return status::ok;
}

/// On another thread, or of a client that is gone.
[[gnu::noinline]] status exchange_server::answer_otherwise(exchange_state& answered) noexcept {
    worker& owner = owner_;
    const bool gone = answered.owner->gone();
    if (current == this) {
        send(answered);
    } else if (owner.inherited()) {
        return status::invalid_state;  // this process has no thread of the worker
    } else {
        inbox_.push(answered);
        owner.wake();
    }
    owner.release_ref();
    return gone ? status::peer_lost : status::ok;
}

void exchange_server::send(exchange_state& answered) noexcept {
    send_to(*answered.owner, answered);
}

[[gnu::always_inline]] inline void exchange_server::send_to(session& to, exchange_state& answered) noexcept {
    const nanoseconds at = now_ = now();
    ++answered_;
    if (answered.device != nullptr && answered.device->lane != nullptr) [[unlikely]]
        return gpu_->send(answered);
    const status sent = to.gone() ? to.drop(answered) : to.send(answered, at);
    if (sent != status::ok) [[unlikely]]
        return end_answer(answered, sent);
    worker_counters::count(counters_.replies);
    close_one();
    to.finish(answered);
}

/// Handles an answer that did not leave: it waits, or goes nowhere.
[[gnu::noinline]] void exchange_server::end_answer(exchange_state& answered, status sent) noexcept {
    if (sent == status::again) return waiting_.push_back(&answered);  // within reserved capacity
    session& to = *answered.owner;
    close_one();
    to.finish(answered);
    owner_.lose(to, sent);
}

[[gnu::noinline]] bool exchange_server::follow_up(std::size_t events) noexcept {
    bool any = false;
    if (!inbox_.empty()) {
        send_posted();
        any = true;
    }
    if (!waiting_.empty()) send_waiting();
    if (gpu_ != nullptr && gpu_->working()) [[unlikely]] {
        if (events == 0 && !any) now_ = now();
        any = gpu_->poll() || any;
    }
    return any;
}

void exchange_server::send_posted() noexcept {
    exchange_state* oldest = inbox_.take();
    while (oldest != nullptr) {
        exchange_state* next = oldest->next;
        send(*oldest);
        oldest = next;
    }
}

void exchange_server::send_waiting() noexcept {
    // Each answer leaves or queues again behind the others. All are erased at once, because many wait if a
    // client reads nothing.
    const std::size_t before = waiting_.size();
    for (std::size_t i = 0; i < before; ++i) send(*waiting_[i]);
    waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(before));
}

void exchange_server::misuse() noexcept {
    std::fputs("accel: an exchange was used after it was answered or moved from\n", stderr);
    std::abort();
}

}  // namespace accel::core
