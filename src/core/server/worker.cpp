// SPDX-License-Identifier: Apache-2.0
#include "core/server/worker.hpp"

#include "core/context_state.hpp"
#include "core/log.hpp"
#include "core/this_thread.hpp"
#include "core/thread.hpp"
#include "staging/staged_exchanges.hpp"

#include <algorithm>
#include <utility>

#include <unistd.h>

namespace accel::core {
namespace {

/// The longest sleep, and how often closing sessions are checked.
constexpr nanoseconds idle_interval = std::chrono::seconds{1};
constexpr nanoseconds closing_interval = std::chrono::milliseconds{1};
/// The longest sleep during a long copy: shorter than the pieces that the device has take.
constexpr nanoseconds feeding_interval = std::chrono::microseconds{50};
constexpr nanoseconds close_patience = std::chrono::seconds{1};

}  // namespace

worker::worker(std::shared_ptr<context_state> context, const server_options& options, handler service)
    : context_(std::move(context)),
      options_(options),
      service_(std::move(service)),
      max_open_(options.max_exchanges),
      spinner_(options_.poll) {
    if (context_ != nullptr && context_->metrics() != nullptr) metrics_ = std::make_unique<server_metrics>();
}

worker::~worker() {
    for (exchange_state* each = take_posted(); each != nullptr; each = each->next) end_unsent(*each);
    for (exchange_state* const each : waiting_) end_unsent(*each);
    if (staging_ == nullptr || staging_->streams().end(deadline_after(close_patience))) return;
    // A kernel may still write to these slots, so their memory is never freed.
    log().error("{}: a stream is still busy at the end of its server; its memory is not released",
                staging_->streams().device().name());
    sessions_.leak();
}

result<void> worker::use(accelerator_device& device) {
    auto made = stream_pool::create(device, options_, wake_.fd());
    if (!made) return made.error();
    staging_ = std::make_unique<staged_exchanges>(*this, std::move(*made));
    return {};
}

// The thread.

void worker::start() {
    // `sleep_on_all` sleeps on them, which they have to know before they are armed.
    if (sources_.size() > 1)
        for (const auto& source : sources_) (void)source->event_fd();
    thread_ = start_thread("accel-worker", [this] { run(); });
}

void worker::run() noexcept {
    thread_id_.store(::gettid(), std::memory_order_relaxed);
    nanoseconds idle_since = now();
    while (!stopping_.load(std::memory_order_acquire)) {
        const bool idle = progress() == 0;
        if (!idle) {
            idle_since = last_time();
            spinner_.restart();
        }
        if (options_.poll == poll_mode::block) {
            sleep();  // returns at once if there is more to do
        } else if (idle && (options_.poll == poll_mode::busy || now() - idle_since < options_.spin)) {
            spinner_.pause();
        } else if (idle) {
            sleep();
            idle_since = now();
        }
    }
    close_all();
    last_times_ = times_of_this_thread();
    ended_.store(true, std::memory_order_release);
}

/// A thread that has not said that it ends was there when it was looked at.
thread_times worker::times() const {
    if (thread_id() == 0) return {};
    const thread_times seen = times_of(thread_id());
    return ended_.load(std::memory_order_acquire) ? last_times_ : seen;
}

/// True: no request has arrived since the last round.
bool worker::quiet() const noexcept {
    return !any_posted(std::memory_order_seq_cst) && !commands_.pending(std::memory_order_seq_cst) &&
           !stopping_.load(std::memory_order_seq_cst);
}

nanoseconds worker::longest_sleep() const noexcept {
    if (staging_ != nullptr && staging_->streams().copying() > 0) return feeding_interval;
    const bool staged = staging_ != nullptr && staging_->streams().moving() + staging_->streams().waiting() > 0;
    return sessions_.any_closing() || !waiting_.empty() || staged ? closing_interval : idle_interval;
}

/// From here on others wake this thread. False: there is something to do.
bool worker::prepare_sleep() noexcept {
    asleep_.store(true, std::memory_order_seq_cst);
    bool idle = quiet();
    for (const auto& source : sources_) idle = idle && source->arm();
    // A stream that ends after this makes `wake_` readable.
    if (idle && staging_ != nullptr && staging_->streams().moving() > 0) idle = !staging_->poll();
    return idle;
}

void worker::sleep() noexcept {
    bool woken = false;
    if (prepare_sleep()) {
        const nanoseconds until = now() + longest_sleep();
        woken = sources_.size() == 1 ? sleep_on_one(until) : sleep_on_all(until);
    }
    asleep_.store(false, std::memory_order_relaxed);
    if (woken) wake_.clear();
    for (const auto& source : sources_) source->disarm();
}

/// True: somebody called `wake`. While handlers have nothing, nobody gives answers, and sessions that come or go can
/// wait.
bool worker::sleep_on_one(nanoseconds until) noexcept {
    event_source& only = *sources_.front();
    const bool idle = open() == 0 && held_parts_.load(std::memory_order_relaxed) == 0;
    return idle ? only.doze(wake_.fd(), until) : only.sleep(wake_.fd(), until);
}

/// Likewise.
bool worker::sleep_on_all(nanoseconds until) noexcept {
    std::array<pollfd, max_sources + 1> fds{};
    std::size_t count = 0;
    fds[count++] = {wake_.fd(), POLLIN, 0};
    for (const auto& source : sources_) fds[count++] = {source->event_fd(), POLLIN, 0};
    sleep_on({fds.data(), count}, until);
    return (fds[0].revents & POLLIN) != 0;
}

void worker::wake() noexcept {
    if (asleep_.load(std::memory_order_seq_cst) && asleep_.exchange(false, std::memory_order_seq_cst)) wake_.set();
}

// The application's own loop.

result<void> worker::make_drivable() {
    wakeups_ = std::make_unique<event_set>();
    wakeups_->add(wake_.fd());
    for (const auto& source : sources_) wakeups_->add(source->event_fd());
    return wakeups_->check();
}

bool worker::arm() noexcept {
    armed_ = true;
    const nanoseconds longest = longest_sleep();
    wakeups_->set_timer(longest == idle_interval ? never : now() + longest);
    return prepare_sleep();
}

bool worker::waits_for_this_thread() const noexcept {
    return runs_here() || driven_by_.load(std::memory_order_relaxed) == this_thread();
}

std::size_t worker::serve() noexcept {
    driven_by_.store(this_thread(), std::memory_order_relaxed);
    if (!armed_) return progress();
    const round_scope inside(*this);  // nobody ends this worker before the last line
    armed_ = false;
    const bool woken = !asleep_.exchange(false, std::memory_order_seq_cst);
    if (woken) wake_.clear();
    for (const auto& source : sources_) source->disarm();
    const std::size_t events = progress();
    // A late waker may have set the signal only now, for nothing.
    if (events == 0 && !woken) wake_.clear();
    return events;
}

// Sessions that come and go.

void worker::install(std::unique_ptr<session> made, session_commands::list command) noexcept {
    command.front().installed = std::move(made);
    commands_.push(std::move(command));
    wake();
}

void worker::close_session(std::uint64_t id, status why, session_commands::list command) noexcept {
    if (command.empty()) return;
    command.front().id = id;
    command.front().why = why;
    commands_.push(std::move(command));
    wake();
}

/// A request that is beginning may not have seen the refusal, nor may others have seen that request. The worker's next
/// look at its commands, under their lock, comes after the one or before the other.
void worker::refuse_requests() noexcept {
    max_open_.store(0, std::memory_order_relaxed);
    commands_.push({});
    wake();
}

/// The command is for handlers of targets that are gone, which must not wait for the next request.
void worker::publish_targets(target_table::publication& list) noexcept {
    targets_.publish(list);
    commands_.push({});
    wake();
}

[[gnu::noinline]] void worker::run_commands() noexcept {
    targets_.adopt();
    for (session_commands::command& each : commands_.take()) {
        if (each.installed != nullptr) {
            add_session(std::move(each.installed));
        } else if (session* const found = sessions_.find(each.id); found != nullptr) {
            found->connection().peer_left();
            lose(*found, each.why);
        }
    }
}

void worker::add_session(std::unique_ptr<session> made) noexcept {
    try {
        sessions_.make_room();
        // All answers may wait for the link, and each queues again before it is erased.
        waiting_.reserve(2 * (sessions_.slots() + made->geometry().slots));
    } catch (const std::bad_alloc&) {
        lose(*made, status::out_of_memory);
        return sessions_.turn_away(std::move(made));
    }
    sessions_.add(std::move(made));
}

void worker::lose(session& which, status why) noexcept {
    if (which.gone()) return;
    which.set_gone();
    if (why == status::protocol_error || why == status::version_mismatch) {
        limited_log(which.client().account())
            .warn("session {} of {} over {} ended: {}; its client sent something that no correct client sends",
                  which.id(), which.client().text(), which.scheme(), to_string(why));
    }
    if (observer_ != nullptr) observer_->session_lost(which, why);
    sessions_.retire(which);
}

/// `closed` tells a client that no handler has seen what is not answered.
status worker::end_of(session& stopped) noexcept {
    return stopped.exchanges() == 0 && stopped.connection().flushed() ? status::closed : status::peer_lost;
}

/// Lets answers leave, then closes every session. Sessions stay whose exchanges a handler keeps.
void worker::close_all() noexcept {
    const nanoseconds deadline = deadline_after(close_patience);
    progress();
    leaving_ = true;
    while (!sessions_.flushed() && now() < deadline)
        if (progress() == 0) sleep_on({}, now() + closing_interval);
    while (session* const each = sessions_.last()) lose(*each, end_of(*each));
    while (sessions_.any_closing() && now() < deadline) {
        progress();
        const bool moving = staging_ != nullptr && staging_->streams().moving() > 0;
        if (!moving && sessions_.only_held()) break;
        sleep_on({}, now() + closing_interval);
    }
}

void worker::stop() {
    stopping_.store(true, std::memory_order_seq_cst);
    wake_.set();
    if (thread_.joinable())
        thread_.join();
    else
        close_all();
    stops_->end();
    observer_ = nullptr;
}

}  // namespace accel::core
