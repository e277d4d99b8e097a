// SPDX-License-Identifier: Apache-2.0
#include "core/server/exchange_server.hpp"

#include "core/log.hpp"
#include "core/server/gpu_exchanges.hpp"
#include "core/server/worker.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <utility>

/// The way of a request through its worker. Nothing here allocates, locks or logs, but for a handler's exception.
namespace accel::core {

exchange_server::exchange_server(worker& owner, const server_options& options, handler service, target_table targets)
    : owner_(owner), service_(std::move(service)), targets_(std::move(targets)), max_open_(options.max_exchanges) {}

exchange_server::~exchange_server() = default;

void exchange_server::use(std::unique_ptr<gpu_exchanges> gpu) noexcept {
    gpu_ = std::move(gpu);
}

/// A request whose response may come in parts, room for a part, or nothing that a correct client sends.
[[gnu::noinline]] bool exchange_server::on_unusual_request(session& from, const link_event& event) noexcept {
    const std::uint16_t flags = event.header.flags & header_flag::of_parts;
    if (flags == header_flag::more) return from.take_room(event, now_);
    exchange_state* const admitted = flags == header_flag::parts ? from.admit_in_parts(event) : nullptr;
    if (admitted == nullptr) return false;
    start(*admitted, event.header.target);
    return true;
}

[[gnu::noinline]] void exchange_server::serve_on_gpu(exchange_state& request, const handler& service) noexcept {
    request.service = &service;
    gpu_->serve(request);
}

/// The handler of a target; null: there is none. Once for each request, which counts there from now on.
const handler* exchange_server::find_target(exchange_state& request, std::uint32_t number) const noexcept {
    std::size_t index = 0;
    const handler* const service = targets_.find(number, index);
    if (request.counts != nullptr) {
        request.counts += 1 + index;
        request.answer.counts_apart = true;
    }
    return service;
}

/// It counts as one of its target's.
[[gnu::noinline]] void exchange_server::refuse_at_once(exchange_state& request, std::uint32_t target,
                                                       bool too_many) noexcept {
    if (target != 0) (void)find_target(request, target);
    refuse_late_or_too_many(request, too_many);
}

[[gnu::noinline]] void exchange_server::serve_target(exchange_state& request, std::uint32_t number) noexcept {
    const handler* const service = find_target(request, number);
    if (service == nullptr) {
        counters_.not_found.add();
        request.answer.application_code = unseen_code;
        return refuse(request, status::not_found);
    }
    if (request.device != nullptr) return serve_on_gpu(request, *service);
    serve(request, *service);
}

void exchange_server::refuse(exchange_state& request, status why) noexcept {
    request.answer.fail(why);
    request.payload = {};
    send(request);
}

[[gnu::noinline]] void exchange_server::refuse_late_or_too_many(exchange_state& request, bool too_many) noexcept {
    if (leaving_ || request.owner->cancels().ended()) return ignore(request);
    const bool cancelled = request.owner->cancels().cancelled({request.slot, request.generation});
    if (!cancelled && max_open_.load(std::memory_order_relaxed) == 0) {
        counters_.overloaded.add();
        request.answer.application_code = unseen_code;
        return refuse(request, status::closed);
    }
    (cancelled ? counters_.cancelled : too_many ? counters_.overloaded : counters_.expired).add();
    refuse(request, cancelled ? status::cancelled : too_many ? status::overloaded : status::timed_out);
}

/// The session is about to end, which answers this request too. Refusals would keep its link busy for as long
/// as the client sends requests.
void exchange_server::ignore(exchange_state& request) noexcept {
    session& from = *request.owner;
    (void)from.drop(request);
    count_lost(request);
    close_one();
    from.finish(request);
}

[[gnu::flatten]] status exchange_server::answer(exchange_state& answered) noexcept {
    session& to = *answered.owner;
    worker& owner = to.owner();
    exchange_server& own = owner.exchanges();
    const bool leaves_now = own.runs_here() && !to.gone();
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
    if (runs_here()) {
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
    session& to = *answered.owner;
    to.gone() ? send_nowhere(answered) : send_to(to, answered);
}

/// Its client is gone.
[[gnu::noinline]] void exchange_server::send_nowhere(exchange_state& answered) noexcept {
    now_ = clock_.now();
    if (answered.device != nullptr && answered.device->lane != nullptr) return gpu_->send(answered);
    end_answer(answered, answered.owner->drop(answered));
}

/// Its answer has left, at `now_`.
[[gnu::always_inline]] inline void exchange_server::count_answer(exchange_state& answered) const noexcept {
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
[[gnu::noinline]] void exchange_server::count_apart(exchange_state& answered) const noexcept {
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

/// Its answer went nowhere.
[[gnu::noinline]] void exchange_server::count_lost(exchange_state& answered) const noexcept {
    if (answered.counts == nullptr) return;
    answered.answer.fail(status::peer_lost);
    answered.payload = {};
    count_apart(answered);
}

[[gnu::always_inline]] inline void exchange_server::send_to(session& to, exchange_state& answered) noexcept {
    const nanoseconds at = now_ = clock_.now();
    if (answered.device != nullptr && answered.device->lane != nullptr) [[unlikely]]
        return gpu_->send(answered);
    const status sent = to.send(answered, at);
    if (sent != status::ok) [[unlikely]]
        return end_answer(answered, sent);
    counters_.replies.add();
    if (answered.counts != nullptr) count_answer(answered);
    close_one();
    to.finish(answered);
}

/// Handles an answer that did not leave: it waits, or goes nowhere.
[[gnu::noinline]] void exchange_server::end_answer(exchange_state& answered, status sent) noexcept {
    if (sent == status::again) return waiting_.push_back(&answered);  // within reserved capacity
    session& to = *answered.owner;
    count_lost(answered);
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
        if (events == 0 && !any) now_ = clock_.now();
        any = gpu_->poll() || any;
    }
    return any;
}

void exchange_server::send_posted() noexcept {
    exchange_state* oldest = inbox_.take();
    while (oldest != nullptr) {
        exchange_state* next = oldest->next;
        send_again(*oldest);
        oldest = next;
    }
}

void exchange_server::send_waiting() noexcept {
    // Each answer leaves or queues again behind the others. All are erased at once, because many wait if a
    // client reads nothing.
    const std::size_t before = waiting_.size();
    for (std::size_t i = 0; i < before; ++i) send_again(*waiting_[i]);
    waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(before));
}

/// An answer, or a part, that did not leave at once.
void exchange_server::send_again(exchange_state& answered) noexcept {
    (answered.extras & exchange_extra::room) != 0 ? send_part(answered) : send(answered);
}

status exchange_server::post_part(exchange_state& part) noexcept {
    session& to = *part.owner;
    worker& owner = to.owner();
    exchange_server& own = owner.exchanges();
    if (own.runs_here()) {
        own.send_part(part);
    } else if (owner.inherited()) {
        return status::invalid_state;
    } else {
        own.inbox_.push(part);
        owner.wake();
    }
    return to.gone() ? status::peer_lost : status::ok;
}

/// A part has left, or went nowhere. Room that is returned is none.
void exchange_server::count_part(exchange_state& part, status sent) noexcept {
    server_series* const to = std::exchange(part.counts, part.owner->counts());
    if (to == nullptr || sent != status::ok || (part.extras & exchange_extra::returned) != 0) return;
    to->parts.add();
    to->response_bytes.add(part.payload.size());
}

/// One that the link does not take counts as an open exchange.
void exchange_server::send_part(exchange_state& part) noexcept {
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
    if (sent != status::ok) owner_.lose(to, sent);
}

bool exchange_server::abandon_later(exchange_state& dropped) noexcept {
    worker& owner = dropped.owner->owner();
    exchange_server& own = owner.exchanges();
    if (!own.runs_here()) return false;
    dropped.answer.fail(status::abandoned);
    dropped.payload = {};
    own.inbox_.push(dropped);
    owner.release_ref();
    return true;
}

/// An exception has left the handler of `request`, which it may have answered before.
[[gnu::noinline]] void exchange_server::on_exception(const exchange_state& request) noexcept {
    try {
        throw;
    } catch (const std::exception& known) {
        answer_thrown(request, known.what());
    } catch (...) {
        answer_thrown(request, "an exception not derived from std::exception");
    }
}

void exchange_server::answer_thrown(const exchange_state& request, std::string_view text) noexcept {
    limited_log("handlers").error("a handler threw: {}", text);
    exchange_state* oldest = inbox_.take();
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

void exchange_server::write_failure(exchange_state& answered, std::string_view text) noexcept {
    const std::span<std::byte> room = answered.device == nullptr ? answered.room() : answered.device->text;
    const std::size_t length = std::min(text.size(), room.size());
    if (length > 0) std::memcpy(room.data(), text.data(), length);
    answered.payload = room.first(length);
}

void exchange_server::misuse() noexcept {
    std::fputs("accel: an exchange was used after it was answered or moved from\n", stderr);
    std::abort();
}

}  // namespace accel::core
