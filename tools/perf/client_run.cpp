// SPDX-License-Identifier: Apache-2.0
#include "perf/client_run.hpp"

#include "perf/command.hpp"
#include "perf/pattern.hpp"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace accel::perf {
namespace {

using report::time_now;
using std::chrono::nanoseconds;

/// Without an answer for so long, the server is taken for dead.
constexpr nanoseconds patience = std::chrono::seconds{30};
/// How often a client that waits looks whether another has failed.
constexpr nanoseconds longest_wait = std::chrono::milliseconds{200};

error failed_call(const completion& done) {
    const std::string_view text{reinterpret_cast<const char*>(done.response.data()), done.response.size()};
    return {done.status, 0,
            fmt::format("a call ended with {}{}{}", to_string(done.status), text.empty() ? "" : ": ", text)};
}

}  // namespace

client_run::client_run(channel to, const load& what, std::uint32_t number, shared_run& all)
    : to_(std::move(to)), what_(what), number_(number), all_(all), random_(number + 1), seed_(number << 16) {}

result<void> client_run::warm_up() {
    wanted_ = what_.warm_up;
    end_ = nanoseconds::max();
    return work();
}

result<void> client_run::run(nanoseconds start) {
    wanted_ = what_.count / what_.clients + (number_ < what_.count % what_.clients ? 1 : 0);
    end_ = what_.duration ? start + *what_.duration : nanoseconds::max();
    if (what_.rate > 0) due_.emplace(report::arrival_plan{what_.rate, what_.clients, what_.arriving}, number_, start);
    recording_ = true;
    request_bytes_ = response_bytes_ = 0;
    auto done = work();
    if (due_) count_unsent();
    return done;
}

result<void> client_run::work() {
    issued_ = answered_ = 0;
    over_ = false;
    last_answer_ = time_now();
    while (!all_.failed.load(std::memory_order_relaxed)) {
        if (auto sent = send_what_is_due(); !sent) return sent;
        if (over_ && answered_ == issued_) break;
        if (auto taken = take_answers(); !taken) return taken;
    }
    return {};
}

result<void> client_run::send_what_is_due() {
    while (!over_ && issued_ - answered_ < what_.depth) {
        auto one = send_one();
        if (!one) return one.error();
        if (*one != sending::sent) break;
    }
    return {};
}

bool client_run::is_over(nanoseconds due) const noexcept {
    return issued_ == wanted_ || due >= end_;
}

result<client_run::sending> client_run::send_one() {
    const nanoseconds at = time_now();
    const nanoseconds due = due_ ? due_->next() : at;
    // Behind its timetable, a client stops at the end all the same.
    over_ = is_over(std::max(due, at));
    if (over_) return sending::over;
    if (due > at) return sending::full;
    const status sent = submit(due);
    if (sent == status::again && issued_ > answered_) return sending::full;
    if (sent != status::ok) return error{sent, 0, fmt::format("cannot submit a call: {}", to_string(sent))};
    if (due_) {
        delay_.record(at - due);
        due_->advance();
    }
    ++issued_;
    return sending::sent;
}

status client_run::submit(nanoseconds due) noexcept {
    const auto call = to_.begin();
    if (!call) return call.error();
    const std::size_t length = what_.mix.empty() ? what_.request_bytes : what_.mix.choose(random_);
    if (what_.check) fill_pattern(call->request.first(length), ++seed_ & 0xff'ffff);
    const std::size_t expected = what_.echoes_size ? length : what_.response_bytes;
    const command wanted{static_cast<std::uint32_t>(expected), seed_ & 0xff'ffff, what_.check, false};
    submit_options options;
    options.tag = static_cast<std::uint64_t>(due.count());
    options.trace_id = pack(wanted);
    const status sent = to_.submit(call->id, length, options);
    if (sent != status::ok) {
        to_.release(call->id);
        return sent;
    }
    request_bytes_ += length;
    return sent;
}

/// Until the next call is due; else until an answer comes.
nanoseconds client_run::wait_at_most() const noexcept {
    const bool sends = due_ && !over_ && issued_ - answered_ < what_.depth;
    if (!sends) return longest_wait;
    return std::clamp(std::min(due_->next(), end_) - time_now(), nanoseconds{0}, longest_wait);
}

result<void> client_run::take_answers() {
    const std::size_t ready = to_.wait(done_, wait_at_most());
    for (completion& each : std::span{done_}.first(ready))
        if (auto good = take(each); !good) return good;
    if (ready > 0) {
        if (recording_) all_.answers.fetch_add(ready, std::memory_order_relaxed);
        last_answer_ = time_now();
    } else if (answered_ == issued_) {
        last_answer_ = time_now();
    } else if (time_now() - last_answer_ > patience) {
        return error{status::timed_out, 0, "no completion within 30 s: is the server still there?"};
    }
    return {};
}

result<void> client_run::take(completion& done) {
    const nanoseconds end = time_now();
    if (done.status != status::ok) return failed_call(done);
    const command wanted = unpack(done.trace_id);
    if (done.response.size() != wanted.response_bytes) {
        return error{status::protocol_error, 0,
                     fmt::format("a response has {} bytes instead of {}: is the server an accel_perf?",
                                 done.response.size(), wanted.response_bytes)};
    }
    if (what_.check && !holds_pattern(done.response, response_seed(wanted.seed)))
        return error{status::protocol_error, 0, "a response arrived with wrong bytes: this is a bug; please report it"};
    if (recording_) latency_.record(end - nanoseconds{static_cast<std::int64_t>(done.tag)});
    response_bytes_ += done.response.size();
    done.release();
    ++answered_;
    return {};
}

/// What was due before the end.
void client_run::count_unsent() noexcept {
    const nanoseconds end = std::min(end_, time_now());
    for (std::uint64_t i = issued_; i < wanted_ && due_->next() < end; ++i) {
        ++unsent_;
        due_->advance();
    }
}

void client_run::report(measurement& into) const {
    into.latency.add(latency_);
    into.delay.add(delay_);
    into.calls += answered_;
    into.unsent += unsent_;
    into.request_bytes += request_bytes_;
    into.response_bytes += response_bytes_;
}

}  // namespace accel::perf
