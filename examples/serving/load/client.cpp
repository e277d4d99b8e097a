// SPDX-License-Identifier: Apache-2.0
#include "serving/load/client.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <ctime>
#include <string_view>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <poll.h>

namespace accel::examples::serving {
namespace {

using report::time_now;
using std::chrono::nanoseconds;

/// A server that was lost is waited for so long.
constexpr nanoseconds reconnect_patience = std::chrono::seconds{10};
constexpr nanoseconds between_looks = std::chrono::milliseconds{2};
constexpr nanoseconds longest_wait = std::chrono::milliseconds{200};
/// Of a client whose calls are issued by others: how long it looks for work first, and then for how long it sleeps.
constexpr nanoseconds spin_before_sleep = std::chrono::microseconds{50};
constexpr std::chrono::milliseconds longest_sleep{200};
/// Room for a table of tensors, or for the sentence of a failure.
constexpr std::size_t room_beside_tensors = 4096;
/// Two series of the warm-up whose means differ by no more take the same time.
constexpr double same_time = 0.05;

bool is_settled(double before, double after) noexcept {
    return before > 0 && std::abs(after - before) <= same_time * before;
}

nanoseconds thread_cpu_time() noexcept {
    timespec now{};
    (void)::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return std::chrono::seconds{now.tv_sec} + nanoseconds{now.tv_nsec};
}

/// Of a thread that has found nothing to do for so long.
bool may_sleep(poll_mode how, nanoseconds idle) noexcept {
    return how == poll_mode::block || (how == poll_mode::adaptive && idle >= spin_before_sleep);
}

channel_options options_for(const load_settings& chosen, std::uint32_t number, std::size_t request_bytes) {
    channel_options out;
    out.slots = chosen.depth;
    out.request_bytes = request_bytes;
    out.response_bytes = payload_bytes(chosen.model->outputs) + room_beside_tensors;
    out.call_timeout = chosen.timeout;
    out.poll = chosen.poll;
    out.reconnect = true;
    out.backoff_max = std::chrono::milliseconds{500};
    if (number < chosen.priority_clients) out.priority = stream_priority::high;
    return out;
}

std::string_view text_of(const completion& done) {
    return {reinterpret_cast<const char*>(done.response.data()), done.response.size()};
}

}  // namespace

result<load_client> load_client::connect(context& ctx, const load_settings& chosen, std::uint32_t number) {
    auto input = load_input::make(ctx, chosen, number);
    if (!input) return input.error();
    const std::string& uri = chosen.uris[number % chosen.uris.size()];
    auto to = channel::connect(ctx, uri, options_for(chosen, number, input->request().size()));
    if (!to) return to.error();
    auto model = to->resolve(chosen.model->name);
    if (!model) {
        return error{model.code(), 0,
                     fmt::format("the server at {} has no model '{}': {}", to->endpoint(), chosen.model->name,
                                 model.error().message)};
    }
    load_client made{std::move(to).value(), std::move(input).value(), chosen, number};
    made.target_ = *model;
    return made;
}

result<void> load_client::warm_up() {
    if (chosen_->warm_up == 0) return {};
    const nanoseconds begin = time_now();
    double before = 0;
    while (true) {
        auto mean = warm_up_once();
        if (!mean) return mean.error();
        const nanoseconds gone = time_now() - begin;
        if (gone >= chosen_->settle || (gone >= chosen_->settle / 4 && is_settled(before, *mean))) return {};
        before = *mean;
    }
}

result<double> load_client::warm_up_once() {
    std::atomic<std::uint64_t> unseen{0};
    work(chosen_->warm_up, unseen);
    if (seen_.failed() > 0) return error{status::application_error, 0, "a call failed: " + seen_.first_error};
    const double mean = seen_.stages[0].mean_ns();
    warmed_up_ += done_;
    seen_ = {};
    checking_ = {};
    return mean;
}

void load_client::run(nanoseconds start, std::atomic<std::uint64_t>& answers) {
    if (chosen_->duration) end_ = start + *chosen_->duration;
    if (chosen_->rate > 0) {
        const report::arrival_plan plan{chosen_->rate, chosen_->clients, report::arrivals::poisson, chosen_->seed};
        due_.emplace(plan, number_, start);
        if (chosen_->least_time.count() > 0) least_ = start + chosen_->least_time;
    }
    work(chosen_->requests, answers);
    if (due_) count_unsent();
}

void load_client::work(std::uint64_t wanted, std::atomic<std::uint64_t>& answers) {
    wanted_ = wanted;
    issued_ = done_ = 0;
    over_ = false;
    while (true) {
        send_what_is_due();
        if (over_ && done_ == issued_) return;
        answers.fetch_add(take_answers(), std::memory_order_relaxed);
    }
}

void load_client::send_what_is_due() {
    while (!over_ && issued_ - done_ < chosen_->depth) {
        const nanoseconds now = time_now();
        const nanoseconds due = due_ ? due_->next() : now;
        // Behind its timetable, a client stops at the end all the same.
        over_ = is_over(std::max(due, now));
        if (over_ || due > now) return;
        const sending outcome = send(static_cast<std::uint64_t>(due.count()));
        if (outcome == sending::lost) await_connection();
        if (outcome != sending::sent) return;
        if (due_) {
            seen_.delay.record(now - due);
            seen_.last_due = due;
            due_->advance();
        }
        ++issued_;
    }
}

bool load_client::is_over(nanoseconds due) const noexcept {
    return (issued_ >= wanted_ && seen_.last_due >= least_) || (due >= end_ && issued_ >= chosen_->at_least);
}

load_client::sending load_client::send(std::uint64_t tag) {
    const auto call = to_.begin();
    if (!call) return call.error() == status::again ? sending::full : sending::lost;
    if (auto ready = prepare(); !ready) {
        to_.release(call->id);
        seen_.add_error(ready.error().code, ready.error().message);
        over_ = true;
        return sending::full;
    }
    submit_options options;
    options.tag = tag;
    options.target = target_;
    options.tensors = input_.tensors();
    const status sent = to_.submit(call->id, input_.request(), options);
    if (sent == status::ok) {
        lost_since_ = {};
        return sending::sent;
    }
    to_.release(call->id);
    if (sent == status::again) return sending::full;
    if (sent == status::peer_lost || sent == status::closed) return sending::lost;
    seen_.add_error(sent, "the call could not be submitted");
    over_ = true;
    return sending::full;
}

/// The client's own stage of the next call, and its time.
result<void> load_client::prepare() {
    if (!input_.is_prepared()) return {};
    const nanoseconds begin = time_now();
    auto ready = input_.prepare();
    prepared_ = time_now() - begin;
    return ready;
}

/// The channel connects again while it is polled.
void load_client::await_connection() {
    const nanoseconds now = time_now();
    if (lost_since_ == nanoseconds{}) lost_since_ = now;
    if (now - lost_since_ < reconnect_patience) {
        std::this_thread::sleep_for(between_looks);
        return;
    }
    seen_.add_error(status::peer_lost, "the server was not reachable again within 10 s");
    over_ = true;
}

std::uint64_t load_client::take_answers() {
    return take_arrived(wait_at_most());
}

std::uint64_t load_client::take_arrived(nanoseconds patience) {
    const std::size_t ready = patience.count() > 0 ? to_.wait(arrived_, patience) : to_.poll(arrived_);
    for (completion& each : std::span{arrived_}.first(ready)) take(each);
    done_ += ready;
    return ready;
}

void load_client::take(completion& done) {
    const nanoseconds now = time_now();
    std::optional<nanoseconds> due;
    if (from_ != nullptr)
        due = answer_issued(done.tag);
    else if (due_)
        due = nanoseconds{static_cast<std::int64_t>(done.tag)};
    if (done.status == status::ok)
        take_answer(done, due, now);
    else
        seen_.add_error(done.status, text_of(done));
    done.release();
}

void load_client::take_answer(const completion& done, std::optional<nanoseconds> due, nanoseconds now) {
    timeline times = done.timeline;
    times.preprocessing += prepared_;
    times.total += prepared_;
    if (due) times.total = now - *due;
    for (std::size_t i = 0; i < stage_count; ++i) seen_.stages[i].record(times.*stage_names()[i].duration);
    ++seen_.answered;
    if (!is_right(done))
        ++seen_.wrong;
    else if (times.total <= chosen_->slo)
        ++seen_.within_slo;
}

bool load_client::is_right(const completion& done) {
    const nanoseconds before = thread_cpu_time();
    std::array<tensor, max_tensors> described;
    const auto read = done.tensors(described);
    // A service without the host describes nothing: its response is what the model gives, as its table says.
    std::span<const tensor> seen;
    if (read)
        seen = *read;
    else if (read.error() == status::not_found)
        seen = input_.undescribed(done.response);
    const bool right = (read || !seen.empty()) && input_.is_right(seen, done.response);
    checking_ += thread_cpu_time() - before;
    return right;
}

/// Until the next call is due; else until an answer comes.
nanoseconds load_client::wait_at_most() const noexcept {
    if (over_ || !due_ || issued_ - done_ >= chosen_->depth) return issued_ == done_ ? between_looks : longest_wait;
    return std::clamp(std::min(due_->next(), end_) - time_now(), nanoseconds{0}, longest_wait);
}

// Calls that somebody else decides on.

void load_client::serve(issue_queue& from, std::atomic<std::uint64_t>& answers) {
    from_ = &from;
    under_way_.resize(chosen_->depth);
    for (std::uint32_t i = chosen_->depth; i > 0; --i) free_tags_.push_back(i - 1);
    issued_ = done_ = 0;
    over_ = false;
    nanoseconds last = time_now();
    while (true) {
        send_issued(from);
        over_ = over_ || (from.is_over() && !taken_);
        if (over_ && done_ == issued_) break;
        const std::uint64_t got = take_arrived(nanoseconds{0});
        answers.fetch_add(got, std::memory_order_relaxed);
        const nanoseconds now = time_now();
        if (got > 0)
            last = now;
        else if (may_sleep(chosen_->poll, now - last))
            sleep_for_issued(from);
        else
            std::this_thread::yield();
    }
    if (taken_) give_up(*taken_);
    from.leave();
}

void load_client::send_issued(issue_queue& from) {
    while (!over_ && !free_tags_.empty()) {
        if (!taken_) taken_ = from.take();
        if (!taken_) return;
        const std::uint32_t tag = free_tags_.back();
        under_way_[tag] = *taken_;
        const sending outcome = send(tag);
        if (outcome == sending::lost) await_connection();
        if (outcome != sending::sent) return;
        seen_.delay.record(time_now() - taken_->due);
        free_tags_.pop_back();
        taken_.reset();
        ++issued_;
    }
}

/// When it was due.
nanoseconds load_client::answer_issued(std::uint64_t tag) {
    const issued_call call = under_way_[tag];
    free_tags_.push_back(static_cast<std::uint32_t>(tag));
    from_->answer(call.id);
    return call.due;
}

/// For a call that cannot be sent. Whoever has decided on it waits for an answer all the same.
void load_client::give_up(const issued_call& call) {
    ++seen_.unsent;
    from_->answer(call.id);
    taken_.reset();
}

/// Until a call is issued or an answer comes.
void load_client::sleep_for_issued(const issue_queue& from) {
    if (!to_.arm()) return;
    // Without a free slot only an answer helps.
    const bool can_send = !over_ && !free_tags_.empty() && !taken_;
    std::array<pollfd, 2> events{{{to_.event_fd(), POLLIN, 0}, {from.event_fd(), POLLIN, 0}}};
    (void)::poll(events.data(), can_send ? 2 : 1, taken_ ? 1 : static_cast<int>(longest_sleep.count()));
}

/// What was due before the end.
void load_client::count_unsent() {
    const nanoseconds end = std::min(end_, time_now());
    for (std::uint64_t i = issued_; i < wanted_ && due_->next() < end; ++i) {
        ++seen_.unsent;
        due_->advance();
    }
}

}  // namespace accel::examples::serving
