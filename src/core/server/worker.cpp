// SPDX-License-Identifier: Apache-2.0
#include "core/server/worker.hpp"

#include "core/context_state.hpp"
#include "core/log.hpp"
#include "core/server/gpu_exchanges.hpp"
#include "core/thread.hpp"

#include <algorithm>
#include <utility>

#include <unistd.h>

namespace accel::core {
namespace {

/// The longest sleep, and how often closing sessions are checked.
constexpr nanoseconds idle_interval = std::chrono::seconds{1};
constexpr nanoseconds closing_interval = std::chrono::milliseconds{1};
/// The longest sleep during a long copy: shorter than the pieces that the GPU has take.
constexpr nanoseconds feeding_interval = std::chrono::microseconds{50};
constexpr nanoseconds close_patience = std::chrono::seconds{1};

}  // namespace

worker::worker(std::shared_ptr<context_state> context, const server_options& options, handler service,
               target_table targets)
    : context_(std::move(context)),
      options_(options),
      exchanges_(*this, options, std::move(service), std::move(targets)),
      spinner_(options_.poll) {
    if (context_ != nullptr && context_->metrics() != nullptr) exchanges_.count_calls();
}

worker::~worker() {
    const gpu_exchanges* const gpu = exchanges_.gpu();
    if (gpu == nullptr || gpu->streams().end(deadline_after(close_patience))) return;
    // A kernel may still write to these slots, so their memory is never freed.
    log().error("{}: a stream is still busy at the end of its server; its memory is not released",
                gpu->streams().device().name());
    sessions_.leak();
}

result<void> worker::use(accelerator_device& device) {
    auto made = stream_pool::create(device, options_, wake_.fd());
    if (!made) return made.error();
    exchanges_.use(std::make_unique<gpu_exchanges>(exchanges_, std::move(*made)));
    return {};
}

// On every request's way.

std::size_t worker::progress() noexcept {
    const exchange_server::round_scope inside(exchanges_);
    if (commands_.pending()) run_commands();
    std::size_t total = exchanges_.send_posted_first() ? 1 : 0;
    for (const auto& source : sources_) {
        const std::size_t got = source->poll(events_);
        if (got == 0) continue;
        exchanges_.begin_round();
        total += got;
        const link_event* event = events_.data();
        const link_event* const end = event + got;
        do on_event(*event);
        while (++event != end);
    }
    if (exchanges_.progress(total)) ++total;
    // A part that was posted in this round belongs to a session, too.
    if (sessions_.any_closing() && exchanges_.quiet()) sessions_.settle(observer_);
    return total;
}

[[gnu::always_inline]] inline void worker::on_event(const link_event& event) noexcept {
    auto& from = *static_cast<session*>(event.owner);
    if (from.cancels().any()) [[unlikely]]
        return on_unusual_event(from, event);
    serve_event(from, event);
}

/// For a client that is gone or has cancelled calls. A request that was cancelled on its way is refused as one that is
/// too late.
[[gnu::noinline]] void worker::on_unusual_event(session& from, const link_event& event) noexcept {
    if (from.gone()) return;
    const bool request = event.kind == event_kind::arrived;
    if (!request || !from.cancels().cancelled({event.header.slot, event.header.generation}))
        return serve_event(from, event);
    link_event late = event;
    late.header.deadline_ns = 0;
    serve_event(from, late);
}

[[gnu::always_inline]] inline void worker::serve_event(session& from, const link_event& event) noexcept {
    if (event.kind == event_kind::arrived) [[likely]] {
        if (!exchanges_.on_request(from, event)) [[unlikely]]
            lose(from, status::protocol_error);
        return;
    }
    if (event.kind == event_kind::lost) return lose(from, event.reason);
    from.end_lease(event.header.slot);
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
            idle_since = exchanges_.last_time();
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
    return exchanges_.quiet() && !commands_.pending(std::memory_order_seq_cst) &&
           !stopping_.load(std::memory_order_seq_cst);
}

nanoseconds worker::longest_sleep() const noexcept {
    const gpu_exchanges* const gpu = exchanges_.gpu();
    if (gpu != nullptr && gpu->streams().copying() > 0) return feeding_interval;
    const bool on_gpu = gpu != nullptr && gpu->streams().moving() + gpu->streams().waiting() > 0;
    return sessions_.any_closing() || exchanges_.waits() || on_gpu ? closing_interval : idle_interval;
}

/// From here on others wake this thread. False: there is something to do.
bool worker::prepare_sleep() noexcept {
    asleep_.store(true, std::memory_order_seq_cst);
    bool idle = quiet();
    for (const auto& source : sources_) idle = idle && source->arm();
    // A stream that ends after this makes `wake_` readable.
    gpu_exchanges* const gpu = exchanges_.gpu();
    if (idle && gpu != nullptr && gpu->streams().moving() > 0) idle = !gpu->poll();
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

/// True: somebody called `wake`. While no exchange is open, nobody gives answers, and sessions that come or go can
/// wait.
bool worker::sleep_on_one(nanoseconds until) noexcept {
    event_source& only = *sources_.front();
    return exchanges_.open() == 0 ? only.doze(wake_.fd(), until) : only.sleep(wake_.fd(), until);
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

std::size_t worker::serve() noexcept {
    if (!armed_) return progress();
    const exchange_server::round_scope inside(exchanges_);  // nobody ends this worker before the last line
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
    exchanges_.refuse_requests();
    commands_.push({});
    wake();
}

[[gnu::noinline]] void worker::run_commands() noexcept {
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
        exchanges_.reserve(sessions_.slots() + made->geometry().slots);
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
    return stopped.open() == 0 && stopped.connection().flushed() ? status::closed : status::peer_lost;
}

/// Lets answers leave, then closes every session. Sessions stay whose exchanges a handler keeps.
void worker::close_all() noexcept {
    const nanoseconds deadline = deadline_after(close_patience);
    progress();
    exchanges_.leave();
    while (!sessions_.flushed() && now() < deadline)
        if (progress() == 0) sleep_on({}, now() + closing_interval);
    while (session* const each = sessions_.last()) lose(*each, end_of(*each));
    const gpu_exchanges* const gpu = exchanges_.gpu();
    while (sessions_.any_closing() && now() < deadline) {
        progress();
        const bool moving = gpu != nullptr && gpu->streams().moving() > 0;
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
