// SPDX-License-Identifier: Apache-2.0
#include "serving/gateway/event_loop.hpp"

#include "report/program.hpp"

#include <algorithm>
#include <array>
#include <csignal>
#include <utility>

#include <sched.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <unistd.h>

namespace accel::examples::gateway {
namespace {

/// How soon a cancel is passed on, and a request that waits finds a server that has come back.
constexpr std::chrono::milliseconds between_looks{2};

}  // namespace

event_loop::event_loop(forwarder& passing, std::vector<route>& routes, std::list<upstream>& servers, opener& opening,
                       const settings& chosen)
    : passing_(passing),
      routes_(routes),
      servers_(servers),
      opening_(opening),
      chosen_(chosen),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      signals_(report::open_server_signals()) {
    add(signals_, &signals_);
    add(opening.event_fd(), &opening_);
}

event_loop::~event_loop() {
    ::close(signals_);
    ::close(epoll_);
}

void event_loop::add(int fd, void* what) const noexcept {
    epoll_event interest{};
    interest.events = EPOLLIN;
    interest.data.ptr = what;
    ::epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &interest);
}

void event_loop::take_changes() {
    for (opener::change& each : opening_.take()) {
        if (each.channels.empty()) {
            unlist(servers_, *each.of, each.uri);
            ++unlisted_;
            continue;
        }
        upstream& to = each.to != nullptr ? *each.to : join(each);
        for (channel& made : each.channels) {
            line& added = to.add(std::move(made));
            add(added.path.event_fd(), &added);
        }
    }
}

upstream& event_loop::join(const opener::change& one) {
    upstream& made = servers_.emplace_back(one.uri, one.of->models, one.of->needs, one.of);
    for (route& each : routes_)
        if (std::ranges::find(one.of->models, each.model()) != one.of->models.end()) each.add(made);
    passing_.make_room(servers_.size() * chosen_.reach.channels * chosen_.reach.slots);
    return made;
}

/// Not while events are taken, which may be of these servers.
void event_loop::let_leave() {
    if (unlisted_ == 0) return;
    leave_unlisted(servers_, [this](const upstream& left) {
        for (route& each : routes_)
            if (std::ranges::find(left.models(), each.model()) != left.models().end()) each.remove(left);
    });
    unlisted_ -= std::erase_if(servers_, [this](upstream& each) {
        if (!each.leaving() || each.in_flight() > 0) return false;
        for (const line& one : each.lines()) ::epoll_ctl(epoll_, EPOLL_CTL_DEL, one.path.event_fd(), nullptr);
        opening_.close(each.take_channels());
        return true;
    });
}

void event_loop::look_for_missed() {
    const bool any = std::ranges::any_of(servers_, &upstream::is_missed);
    if (any != std::exchange(missed_, any)) opening_.set_missed(any);
}

/// Channels first: what they bring is answered in the same round. After a sleep only those that have woken this thread,
/// and the server before them: until then it counts as asleep, and every answer would wake it by a system call.
std::size_t event_loop::round(server& front) noexcept {
    const bool slept = std::exchange(slept_, false);
    const std::size_t requests = slept ? front.poll() : 0;
    std::size_t answers = 0;
    for (upstream& to : servers_)
        for (line& each : to.lines())
            if (!each.armed || (each.in_flight > 0 && !slept)) answers += poll(each);
    if (slept && answers == 0) return requests;
    return requests + answers + front.poll();
}

std::size_t event_loop::poll(line& one) noexcept {
    const std::size_t got = one.path.poll(done_);
    one.armed = false;
    for (std::size_t i = 0; i < got; ++i) passing_.finish(one, done_[i]);
    return got;
}

/// False: it is too early.
bool event_loop::look_after(clock::time_point now) {
    if (now - looked_ < between_looks) return false;
    looked_ = now;
    passing_.look_after(routes_);
    let_leave();
    look_for_missed();
    return true;
}

/// False: there is something to do.
bool event_loop::arm(server& front) noexcept {
    bool idle = true;
    for (upstream& to : servers_)
        for (line& each : to.lines()) {
            if (!each.armed) each.armed = each.path.arm();
            idle = idle && each.armed;
        }
    return front.arm() && idle;
}

void event_loop::take_signals(const std::function<void()>& on_hangup) {
    signalfd_siginfo one{};
    while (::read(signals_, &one, sizeof one) == sizeof one)
        if (one.ssi_signo == SIGHUP)
            on_hangup();
        else
            stopping_ = true;
}

void event_loop::sleep(const std::function<void()>& on_hangup) {
    std::array<epoll_event, 16> events;
    const int longest = passing_.open() > 0 ? static_cast<int>(between_looks.count()) : -1;
    const int count = ::epoll_wait(epoll_, events.data(), static_cast<int>(events.size()), longest);
    for (int i = 0; i < count; ++i) {
        void* const what = events[static_cast<std::size_t>(i)].data.ptr;
        if (what == &signals_)
            take_signals(on_hangup);
        else if (what == &opening_)
            take_changes();
        else if (what != this)
            static_cast<line*>(what)->armed = false;
    }
}

void event_loop::run(server& front, const std::function<void()>& on_hangup) {
    add(front.event_fd(), this);
    clock::time_point idle_since = clock::now();
    while (!stopping_) {
        const std::size_t events = round(front);
        const clock::time_point now = clock::now();
        if (look_after(now)) {  // it may never sleep
            take_signals(on_hangup);
            take_changes();
        }
        if (stopping_) break;
        if (events > 0) {
            idle_since = now;
        } else if (now - idle_since < chosen_.spin) {
            ::sched_yield();
        } else {
            slept_ = true;
            let_leave();
            look_for_missed();
            if (arm(front)) sleep(on_hangup);
            idle_since = clock::now();
        }
    }
}

void event_loop::drain(server& front, std::chrono::nanoseconds patience) {
    (void)front.drain(std::chrono::nanoseconds{0});  // from now on requests are refused
    const clock::time_point until = clock::now() + patience;
    while (passing_.open() > 0 && clock::now() < until) {
        if (round(front) == 0) ::usleep(100);
        (void)look_after(clock::now());
    }
    (void)round(front);
}

}  // namespace accel::examples::gateway
