// SPDX-License-Identifier: Apache-2.0
#include "backends/tcp/poller.hpp"

#include "core/control/security.hpp"
#include "core/event_signal.hpp"
#include "core/net/descriptor_error.hpp"
#include "core/net/epoll_wait.hpp"
#include "core/net/socket.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include <sys/epoll.h>

namespace accel::tcp {

using core::link_event;

namespace {

/// How often a busy poller calls epoll: once in so many polls.
constexpr std::uint32_t busy_polls_between_epolls = 4;
constexpr std::size_t epoll_events_at_once = 64;
/// A link needs room for a `buffer_released` and the arrival behind it.
constexpr std::size_t min_room = 2;
/// The data of the event for new connections. (Other events carry a link's address, or null.)
constexpr std::uint64_t arrivals_tag = 1;
}  // namespace

result<std::unique_ptr<core::poller>> tcp_poller::open(const core::poller_options& options) {
    core::unique_fd epoll(::epoll_create1(EPOLL_CLOEXEC));
    if (!epoll.open()) return core::no_descriptor("for tcp", epoll.failure());
    std::unique_ptr<tcp_poller> made(new tcp_poller(std::move(epoll), options));
    if (options.role == core::link_role::server) {
        made->arrivals_.emplace();
        epoll_event event{};
        event.events = EPOLLIN;
        event.data.u64 = arrivals_tag;
        const int signal = made->arrivals_->fd();
        if (signal < 0) return core::no_descriptor("for tcp", -signal);
        if (::epoll_ctl(made->epoll_.get(), EPOLL_CTL_ADD, signal, &event) != 0)
            return core::cannot_watch("tcp", errno);
    }
    return std::unique_ptr<core::poller>(std::move(made));
}

result<std::unique_ptr<core::link>> tcp_poller::open_link(const core::link_config& config) {
    const bool complete = config.send && config.receive && config.send->count() == config.geometry.slots &&
                          config.receive->count() == config.geometry.slots;
    if (!complete)
        return error{status::invalid_argument, 0, "tcp: a link needs slot memory for all its slots, both ways"};
    core::link_config own = config;
    own.zerocopy = config.zerocopy || zerocopy_;
    return std::unique_ptr<core::link>(std::make_unique<tcp_link>(*this, own));
}

bool tcp_poller::encrypts() const noexcept {
    return security_ != nullptr && security_->encrypts();
}

bool tcp_poller::has_to_encrypt() const noexcept {
    return security_ != nullptr && security_->options.encrypt == encryption::required;
}

result<void> tcp_poller::take_connection(core::data_connection& made) {
    return arrivals_->take(made);
}

void tcp_poller::take_arrivals() noexcept {
    for (arrivals::arrival& each : arrivals_->take_all()) each.link->adopt(std::move(each.connection));
}

/// Polling never allocates for links.
void tcp_poller::make_room() {
    if (links_.size() == links_.capacity()) links_.reserve(links_.size() * 2 + few_links);
    hot_.reserve(links_.capacity());
}

bool tcp_poller::add(tcp_link& link) noexcept {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.ptr = &link;
    const bool watched = ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, link.fd(), &event) == 0;
    links_.push_back(&link);
    if (links_.size() == few_links + 1) {
        for (tcp_link* each : links_) {
            make_hot(*each);
            sync_output(*each);
        }
    }
    make_hot(link);
    return watched;
}

void tcp_poller::remove(tcp_link& link) noexcept {
    if (arrivals_) arrivals_->forget(link.session_id(), link);
    const auto polled = std::find(links_.begin(), links_.end(), &link);
    if (polled == links_.end()) return;
    *polled = links_.back();
    links_.pop_back();
    if (link.hot) {
        hot_.erase(std::find(hot_.begin(), hot_.end(), &link));
        link.hot = false;
    }
    unwatch(link);
}

void tcp_poller::unwatch(tcp_link& link) noexcept {
    if (link.fd() >= 0) ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, link.fd(), nullptr);
}

void tcp_poller::make_hot(tcp_link& link) noexcept {
    if (!link.hot) {
        link.hot = true;
        hot_.push_back(&link);
    }
}

std::size_t tcp_poller::poll(std::span<link_event> out) noexcept {
    ++polls_;
    return few() ? poll_few(out) : poll_many(out);
}

std::size_t tcp_poller::poll_few(std::span<link_event> out) noexcept {
    if (arrivals_ && arrivals_->waiting()) take_arrivals();
    std::size_t count = 0;
    const std::size_t links = links_.size();
    for (std::size_t i = 0; i < links && out.size() - count >= min_room; ++i) {
        tcp_link& link = *links_[(first_link_ + i) % links];
        link.unblock();
        count += link.progress(out.subspan(count));
    }
    ++first_link_;
    quiet_ = quiet_ && count == 0;
    return count;
}

std::size_t tcp_poller::poll_many(std::span<link_event> out) noexcept {
    if (hot_.empty() || polls_ % busy_polls_between_epolls == 0) ask_epoll(core::at_once);
    std::size_t count = 0;
    // Each hot link is polled once. Those that are not done stay hot, behind the others.
    std::size_t polled = 0;
    std::size_t kept = 0;
    const std::size_t hot = hot_.size();
    while (polled < hot && out.size() - count >= min_room) {
        tcp_link* link = hot_[polled++];
        count += link->progress(out.subspan(count));
        link->hot = link->has_work();
        if (link->hot) hot_[kept++] = link;
    }
    if (polled == hot) {
        hot_.resize(kept);
    } else {
        std::rotate(hot_.begin(), hot_.begin() + static_cast<std::ptrdiff_t>(polled), hot_.end());
        // Now: the links not polled, then the first `polled` places, of which `kept` stay.
        hot_.resize(hot - polled + kept);
    }
    return count;
}

/// Takes the epoll's events: new connections, links with input, links that can send again. True: `other_fd_`
/// is readable.
bool tcp_poller::ask_epoll(core::nanoseconds until) noexcept {
    std::array<epoll_event, epoll_events_at_once> events;
    bool other = false;
    bool arrived = false;
    const int count = core::wait_on(epoll_.get(), events, until);
    for (int i = 0; i < count; ++i) {
        const epoll_event& event = events[static_cast<std::size_t>(i)];
        if (event.data.ptr == nullptr) {
            other = true;
            continue;
        }
        if (event.data.u64 == arrivals_tag) {
            arrived = true;
            continue;
        }
        auto& link = *static_cast<tcp_link*>(event.data.ptr);
        if ((event.events & (EPOLLOUT | EPOLLERR | EPOLLHUP)) != 0) link.unblock();
        make_hot(link);
    }
    if (arrived) take_arrivals();
    return other;
}

/// A read that sleeps saves one system call per message. `other_fd` cannot wake it, so the read is short, and
/// after a read without result the epoll waits.
bool tcp_poller::doze(int other_fd, core::nanoseconds until) noexcept {
    if (!may_read_asleep(until)) return sleep(other_fd, until);
    slept_ = true;
    quiet_ = !links_.front()->read_asleep();
    return false;
}

bool tcp_poller::sleep(int other_fd, core::nanoseconds until) noexcept {
    slept_ = true;
    disarm_links();
    if (!watch_other(other_fd)) {
        std::array<pollfd, 2> fds{{{epoll_.get(), POLLIN, 0}, {other_fd, POLLIN, 0}}};
        core::sleep_on(fds, until);
        return (fds[1].revents & POLLIN) != 0;
    }
    return ask_epoll(until);
}

bool tcp_poller::may_read_asleep(core::nanoseconds until) const noexcept {
    return !quiet_ && links_.size() == 1 && links_.front()->may_read_asleep() &&
           (until == core::never || until - core::now() > 2 * core::sleeping_read_limit);
}

bool tcp_poller::watch_other(int fd) noexcept {
    if (fd == other_fd_) return true;
    if (other_fd_ >= 0) ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, other_fd_, nullptr);
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.ptr = nullptr;
    const bool watched = ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0;
    other_fd_ = watched ? fd : -1;
    return watched;
}

void tcp_poller::output_changed(tcp_link& link) noexcept {
    if (!few()) sync_output(link);
}

void tcp_poller::sync_output(tcp_link& link) noexcept {
    if (link.blocked() == link.watches_output || link.fd() < 0) return;
    epoll_event event{};
    event.events = link.blocked() ? EPOLLIN | EPOLLOUT : EPOLLIN;
    event.data.ptr = &link;
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, link.fd(), &event);
    link.watches_output = link.blocked();
}

bool tcp_poller::arm() noexcept {
    if (arrivals_ && arrivals_->waiting()) return false;
    if (!few()) return hot_.empty();
    for (tcp_link* link : links_) {
        if (link->has_work()) return false;
        sync_output(*link);
    }
    return true;
}

void tcp_poller::disarm() noexcept {
    if (std::exchange(slept_, false)) return;
    disarm_links();
}

void tcp_poller::disarm_links() noexcept {
    if (few())
        for (tcp_link* link : links_) link->after_sleep();
}

}  // namespace accel::tcp
