// SPDX-License-Identifier: Apache-2.0
#include "core/client/shared_state.hpp"

#include "core/client/call_error.hpp"
#include "core/net/descriptor_error.hpp"

#include <algorithm>
#include <cstring>
#include <ctime>
#include <optional>
#include <utility>

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

/// A channel that threads share: a call in the order in which it travels, then how threads wait.
namespace accel::core {
namespace {

using turn = shared_operation::turn;
using turn_word = std::atomic<turn>;

/// A link that closes says that there is work to do until it has closed.
constexpr int most_refusals = 16;
constexpr nanoseconds look_again = std::chrono::microseconds{200};
/// How often calls in line look whether the session ends, when a late answer has been awaited for too long.
constexpr nanoseconds late_look = std::chrono::milliseconds{10};

/// Until another thread gives this one a turn, or `until`.
void await_turn(const turn_word& word, nanoseconds until) noexcept {
    static_assert(sizeof word == sizeof(std::uint32_t) && turn_word::is_always_lock_free);
    timespec bound{};
    bound.tv_sec = static_cast<std::time_t>(until.count() / 1'000'000'000);
    bound.tv_nsec = static_cast<long>(until.count() % 1'000'000'000);
    while (word.load(std::memory_order_acquire) == turn::none && (until == never || now() < until)) {
        ::syscall(SYS_futex, &word, FUTEX_WAIT_BITSET_PRIVATE, static_cast<std::uint32_t>(turn::none),
                  until == never ? nullptr : &bound, nullptr, FUTEX_BITSET_MATCH_ANY);
    }
}

/// The operation may be gone once its thread has its turn: only the address is used then.
void give_turn(shared_operation& to, turn which) noexcept {
    turn_word* const word = &to.given;
    word->store(which, std::memory_order_release);
    ::syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
}

}  // namespace

/// Another thread's work on the channel: the leader may sleep meanwhile, and must hear of what the transport has told
/// this thread in its place.
class shared_state::visit {
  public:
    explicit visit(shared_state& of) noexcept : of_(of), lock_(of.mutex_) {}
    visit(const visit&) = delete;
    visit& operator=(const visit&) = delete;
    ~visit() {
        of_.keep_armed();
        of_.wake_ended(lock_);
    }

  private:
    shared_state& of_;
    guard lock_;
};

shared_state::shared_state(channel_owner core)
    : core_(std::move(core)),
      events_fd_(core_->event_fd()),
      calls_(core_->request().options.slots),
      spinner_(core_->request().options.poll) {}

result<std::shared_ptr<shared_state>> shared_state::make(channel_owner core) {
    auto made = std::make_shared<shared_state>(std::move(core));
    if (!made->rouse_.open()) return no_descriptor("for a channel", made->rouse_.failure());
    return made;
}

// A call.

result<shared_response> shared_state::call(std::shared_ptr<shared_state> over, shared_operation& what) {
    if (what.options->parts > 0 || what.options->continues) return no_parts_in_call();
    over->run(what);
    return outcome(std::move(over), what);
}

result<shared_call> shared_state::submit(std::shared_ptr<shared_state> over, std::unique_ptr<pending_call> what) {
    if (what->options.parts > 0 || what->options.continues) return no_parts_in_call();
    {
        const visit here(*over);
        over->start(what->call);
    }
    return shared_call{std::move(over), std::move(what)};
}

result<shared_response> shared_state::outcome(std::shared_ptr<shared_state> over, const shared_operation& what) {
    const status how = what.content.status;
    if (what.sent) {
        shared_response owner{std::move(over), what.content};
        if (how != status::ok) return failed_answer(what.content);
        return owner;
    }
    if (how == status::timed_out)
        return error{how, 0, "no slot was free before the deadline; release responses, or raise slots"};
    const std::lock_guard lock(over->mutex_);
    return failed_call(*over->core_, how, what.length(), what.why_unsent);
}

/// Sends a call, unless others wait for slots.
void shared_state::start(shared_operation& what) noexcept {
    count(1);
    const status sent = line_.first() == nullptr ? send(what) : status::again;
    if (sent == status::ok) return;
    if (sent != status::again) return end_unsent(what, sent);
    const nanoseconds own = what.options->timeout;
    what.deadline = deadline_after(own == nanoseconds{0} ? options().call_timeout : own);
    what.state = phase::in_line;
    line_.push_back(what);
    if (core_->quarantine_ends() != never) rouse_leader();  // which is to look then
}

/// `again`: no slot is free.
status shared_state::send(shared_operation& what) noexcept {
    const auto slot = core_->begin();
    if (!slot) return slot.error();
    if (what.state == phase::fresh) return send(what, *slot, *what.options);
    submit_options rest = *what.options;
    if (what.deadline != never) rest.timeout = std::max(what.deadline - now(), nanoseconds{1});
    return send(what, *slot, rest);
}

status shared_state::send(shared_operation& what, const call_view& slot, const submit_options& options) noexcept {
    const std::size_t copied = std::min(what.request.size(), slot.request.size());
    if (copied > 0) std::memcpy(slot.request.data(), what.request.data(), copied);
    const status sent =
        what.lends ? core_->submit(slot.id, what.lent, options) : core_->submit(slot.id, what.request.size(), options);
    if (sent != status::ok) {
        core_->release(slot.id);
        return sent;
    }
    what.sent = true;
    what.state = phase::in_flight;
    what.content.id = slot.id;
    calls_[slot.id.slot] = &what;
    return status::ok;
}

/// What has arrived, and who goes on with it.
void shared_state::take() noexcept {
    for (std::size_t count = taken_.size(); count == taken_.size();) {
        count = core_->poll(taken_);
        for (std::size_t i = 0; i < count; ++i) deliver(taken_[i]);
    }
    serve_line();
}

void shared_state::deliver(completion& one) noexcept {
    shared_operation* const of = std::exchange(calls_[one.call.slot], nullptr);
    if (of == nullptr) return one.release();
    of->content = static_cast<const call_outcome&>(one);
    (void)one.detach();  // its slot is released under the lock, too
    end(*of);
}

void shared_state::serve_line() noexcept {
    while (shared_operation* const next = line_.first()) {
        const bool late = next->deadline != never && now() >= next->deadline;
        const status sent = late ? status::timed_out : send(*next);
        if (sent == status::again) return;
        line_.remove(*next);
        if (sent != status::ok) end_unsent(*next, sent);
    }
}

void shared_state::end(shared_operation& what) noexcept {
    what.state = phase::ended;
    count(-1U);
    if (&what == leader_) rouse_leader();
    if (!what.sleeps) return;
    what.sleeps = false;
    sleepers_.remove(what);
    ended_.push_back(what);
}

void shared_state::end_unsent(shared_operation& what, status why) noexcept {
    what.content.status = why;
    what.why_unsent = core_->last_error();
    end(what);
}

void shared_state::leave_line(shared_operation& what, status why) noexcept {
    line_.remove(what);
    end_unsent(what, why);
}

bool shared_state::done(const shared_operation& what) noexcept {
    const visit here(*this);
    if (what.state != phase::ended && leader_ == nullptr) take();
    return what.state == phase::ended;
}

status shared_state::cancel(shared_operation& what) noexcept {
    const visit here(*this);
    if (what.state == phase::ended) return status::invalid_state;
    if (what.state == phase::in_line) {
        leave_line(what, status::cancelled);
        return status::ok;
    }
    const status done = core_->cancel(what.content.id);
    take();
    return done;
}

/// Lent memory is its owner's again afterwards.
void shared_state::abandon(shared_operation& what) noexcept {
    if (what.lends_memory()) {
        (void)cancel(what);
        await(what);
    }
    const visit here(*this);
    if (what.state == phase::in_line) leave_line(what, status::cancelled);
    if (what.state == phase::in_flight) {
        calls_[what.content.id.slot] = nullptr;
        count(-1U);
        (void)core_->cancel(what.content.id);
        take();
    } else if (what.sent) {
        core_->release(what.content.id);
        serve_line();
    }
}

void shared_state::release(call_id id) noexcept {
    const visit here(*this);
    core_->release(id);
    serve_line();
}

result<std::span<tensor>, status> shared_state::tensors(const call_outcome& of, std::span<tensor> room) noexcept {
    const std::lock_guard lock(mutex_);
    return core_->tensors(of, room);
}
result<std::span<const metadata_entry>, status> shared_state::metadata(const call_outcome& of,
                                                                       metadata_room& room) noexcept {
    const std::lock_guard lock(mutex_);
    return core_->metadata(of, room);
}

// Waiting.

void shared_state::run(shared_operation& what) noexcept {
    guard lock(mutex_);
    start(what);
    keep_armed();
    await(lock, what);
}

void shared_state::await(shared_operation& what) noexcept {
    guard lock(mutex_);
    await(lock, what);
}

/// May end without the lock.
void shared_state::await(guard& lock, shared_operation& what) noexcept {
    while (what.state != phase::ended) {
        if (leader_ == nullptr) return lead(lock, what);
        if (follow(lock, what)) return;
    }
    if (leader_ == nullptr) pass_on(lock);
}

/// Polls for all until this thread's own call has ended.
void shared_state::lead(guard& lock, shared_operation& own) noexcept {
    leader_ = &own;
    spinner_.restart();
    const poll_mode mode = options().poll;
    nanoseconds spin_end = mode == poll_mode::busy ? never : nanoseconds{};
    if (mode == poll_mode::adaptive) spin_end = deadline_after(options().spin);
    for (int refused = 0;;) {
        take();
        wake_ended(lock);
        if (!lock.owns_lock()) lock.lock();
        if (own.state == phase::in_line && now() >= own.deadline) leave_line(own, status::timed_out);
        if (own.state == phase::ended) break;
        if (spin_end == never || now() < spin_end) {
            lock.unlock();
            spinner_.pause();
            lock.lock();
        } else {
            refused = sleep(lock, own, refused >= most_refusals) ? 0 : refused + 1;
        }
    }
    pass_on(lock);
}

/// Without the lock: others send, and change when the channel wants to be looked at, which `keep_armed` takes care of.
/// False: there is work to do.
bool shared_state::sleep(guard& lock, const shared_operation& own, bool at_least_briefly) noexcept {
    const bool armed = core_->arm();
    if (!armed && !at_least_briefly) return false;
    nanoseconds until = own.state == phase::in_line ? own.deadline : never;
    if (!armed) until = now() + look_again;
    if (line_.first() != nullptr) until = std::min(until, std::max(core_->quarantine_ends(), now() + late_look));
    leader_sleeps_ = true;
    lock.unlock();
    std::array<pollfd, 2> fds{{{armed ? events_fd_ : -1, POLLIN, 0}, {rouse_.fd(), POLLIN, 0}}};
    sleep_on(fds, until);
    lock.lock();
    leader_sleeps_ = false;
    if (fds[1].revents != 0) rouse_.clear();
    return armed;
}

/// Sleeps until another thread has ended the call: true, without the lock. False: this thread is to lead, unless
/// another one has come before it, or its time in line is over.
bool shared_state::follow(guard& lock, shared_operation& own) noexcept {
    own.given.store(turn::none, std::memory_order_relaxed);
    own.sleeps = true;
    sleepers_.push_back(own);
    const nanoseconds until = own.state == phase::in_line ? own.deadline : never;
    lock.unlock();
    await_turn(own.given, until);
    if (own.given.load(std::memory_order_acquire) == turn::ended) return true;
    lock.lock();
    if (own.sleeps) {
        own.sleeps = false;
        sleepers_.remove(own);
        if (own.state == phase::in_line) leave_line(own, status::timed_out);
        return false;
    }
    if (own.given.load(std::memory_order_acquire) == turn::none) {
        lock.unlock();  // another thread is about to give it its turn, and must find the operation
        await_turn(own.given, never);
        if (own.given.load(std::memory_order_acquire) == turn::ended) return true;
        lock.lock();
    }
    called_ = nullptr;
    return false;
}

/// To whoever comes first: the sleeping thread that is called, or one that enters before it has a processor.
void shared_state::pass_on(guard& lock) noexcept {
    leader_ = nullptr;
    shared_operation* const next = called_ == nullptr ? sleepers_.first() : nullptr;
    if (next != nullptr) {
        called_ = next;
        next->sleeps = false;
        sleepers_.remove(*next);
    }
    lock.unlock();
    if (next != nullptr) give_turn(*next, turn::leads);
}

/// Gives up the lock if there are any.
void shared_state::wake_ended(guard& lock) noexcept {
    if (ended_.first() == nullptr) return;
    auto all = std::exchange(ended_, {});
    lock.unlock();
    while (shared_operation* const each = all.first()) {
        all.remove(*each);
        give_turn(*each, turn::ended);
    }
}

/// Before the lock is given up by a thread that has used the channel while the leader sleeps.
void shared_state::keep_armed() noexcept {
    if (leader_sleeps_ && !core_->arm()) rouse_leader();
}

void shared_state::rouse_leader() noexcept {
    if (!std::exchange(leader_sleeps_, false)) return;
    rouse_.set();
}

// The channel.

result<target> shared_state::resolve(std::string_view name) {
    std::optional<connect_request> over;
    {
        const std::lock_guard lock(mutex_);
        if (!core_->connected()) return core_->resolve(name);
        over = core_->request();
    }
    return channel_core::resolve(*over, name);
}

void shared_state::close() noexcept {
    const visit here(*this);
    core_->close();
    take();
}

std::string shared_state::endpoint() {
    const std::lock_guard lock(mutex_);
    return core_->request().peer.text();
}
bool shared_state::connected() noexcept {
    const std::lock_guard lock(mutex_);
    return core_->connected();
}
channel_statistics shared_state::statistics() noexcept {
    const std::lock_guard lock(mutex_);
    return core_->statistics();
}

bool shared_state::takes_calls() noexcept {
    const visit here(*this);
    if (leader_ == nullptr) take();
    return core_->connected();
}
void shared_state::leave() noexcept {
    const std::lock_guard lock(mutex_);
    core_->leave();
}
bool shared_state::idle() noexcept {
    const visit here(*this);
    if (leader_ == nullptr) take();
    return line_.first() == nullptr && core_->has_no_calls();
}

}  // namespace accel::core
