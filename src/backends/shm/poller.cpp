// SPDX-License-Identifier: Apache-2.0
#include "backends/shm/poller.hpp"

#include "core/net/descriptor_error.hpp"
#include "core/net/epoll_wait.hpp"
#include "core/net/socket.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include <sys/epoll.h>

namespace accel::shm {

using core::link_event;

namespace {

/// How often a busy poller calls epoll: once in so many polls.
constexpr std::uint32_t busy_polls_between_epolls = 4096;
constexpr std::size_t epoll_events_at_once = 64;

}  // namespace

result<std::unique_ptr<core::poller>> shm_poller::open(const core::poller_options& options,
                                                       std::shared_ptr<core::accelerator> gpus) {
    core::unique_fd epoll(::epoll_create1(EPOLL_CLOEXEC));
    if (!epoll.open()) return core::no_descriptor("for shm", epoll.failure());
    std::unique_ptr<shm_poller> made(new shm_poller(std::move(epoll), std::move(gpus)));
    if (options.role == core::link_role::server)
        if (auto ready = made->serve(); !ready) return ready.error();
    return std::unique_ptr<core::poller>(std::move(made));
}

result<void> shm_poller::serve() {
    auto page = segment::create(page_bytes, peer_access::read);
    if (!page) return page.error();
    page_ = std::move(*page);
    door_.emplace(page_.fd());
    if (door_->fd() < 0) return core::no_descriptor("for shm", -door_->fd());
    if (!watch(door_->fd(), &door_)) return core::cannot_watch("shm", errno);
    return {};
}

result<std::unique_ptr<core::link>> shm_poller::open_link(const core::link_config& config) {
    return shm_link::create(*this, config);
}

result<void> shm_poller::make_waker() {
    if (waker_) return {};
    copied_.emplace();
    if (copied_->fd() < 0) return core::no_descriptor("for shm", copied_->failure());
    if (!watch(copied_->fd(), &waker_)) return core::cannot_watch("shm", errno);
    waker_.emplace(copied_->fd());
    return {};
}

bool shm_poller::watch(int fd, void* tag) noexcept {
    epoll_event event{};
    event.events = EPOLLIN | EPOLLRDHUP;
    event.data.ptr = tag;
    return ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0;
}

bool shm_poller::watch_other(int fd) noexcept {
    if (fd == other_fd_) return true;
    if (other_fd_ >= 0) ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, other_fd_, nullptr);
    other_fd_ = watch(fd, nullptr) ? fd : -1;
    return other_fd_ >= 0;
}

void shm_poller::unwatch(const shm_link& link) noexcept {
    if (link.fd() >= 0) ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, link.fd(), nullptr);
}

void shm_poller::make_room() {
    if (links_.size() == links_.capacity()) links_.reserve(std::max<std::size_t>(1, 2 * links_.size()));
}

bool shm_poller::add(shm_link& link) noexcept {
    links_.push_back(&link);
    publish();
    return watch(link.fd(), &link);
}

void shm_poller::remove(shm_link& link) noexcept {
    if (door_) door_->forget(link.session_id(), link);
    unwatch(link);
    std::erase(links_, &link);
    next_ = 0;
}

void shm_poller::take_arrivals() noexcept {
    for (arrivals::arrival& each : door_->take_all()) each.link->adopt_arrival(std::move(each.connection));
}

std::size_t shm_poller::poll(std::span<link_event> out) noexcept {
    if (asleep()) [[unlikely]]
        disarm();
    if (ask_ || ++polls_ % busy_polls_between_epolls == 0) [[unlikely]]
        ask_epoll(core::at_once);
    if (door_ && door_->waiting()) [[unlikely]]
        take_arrivals();
    return links_.size() == 1 ? links_.front()->take(out) : poll_all(out);
}

[[gnu::noinline]] std::size_t shm_poller::poll_all(std::span<link_event> out) noexcept {
    const std::size_t links = links_.size();
    std::size_t count = 0;
    for (std::size_t looked = 0; looked < links && count < out.size(); ++looked) {
        shm_link& each = *links_[next_];
        if (++next_ == links) next_ = 0;
        count += each.take(out.subspan(count));
    }
    return count;
}

/// True: `other_fd_` is readable.
bool shm_poller::ask_epoll(core::nanoseconds until) noexcept {
    std::array<epoll_event, epoll_events_at_once> events;
    ask_ = false;
    bool other = false;
    const int count = core::wait_on(epoll_.get(), events, until);
    for (int i = 0; i < count; ++i) {
        void* const tag = events[static_cast<std::size_t>(i)].data.ptr;
        if (tag == nullptr)
            other = true;
        else if (tag == &waker_)
            copied_->clear();
        else if (tag != &door_)  // `poll` takes arrivals
            static_cast<shm_link*>(tag)->hear();
    }
    return other;
}

/// Clients read one word for all sessions of this poller; a server reads its client's in the session.
void shm_poller::publish() noexcept {
    if (door_) return reinterpret_cast<poller_page*>(page_.base())->sleep.store(sleep_, std::memory_order_seq_cst);
    for (shm_link* each : links_) each->publish(sleep_);
}

bool shm_poller::has_work() const noexcept {
    return (door_ && door_->waiting()) ||
           std::any_of(links_.begin(), links_.end(), [](const shm_link* each) { return each->has_work(); });
}

/// Peers look at the number after they have sent, and this end at its lanes after it has changed the number: one of
/// the two notices. Each sleep has a number of its own, because a peer wakes this end once for each.
bool shm_poller::arm() noexcept {
    sleep_ += asleep() ? 2U : 1U;
    publish();
    if (!has_work()) return true;
    ++sleep_;
    publish();
    return false;
}

void shm_poller::disarm() noexcept {
    if (!asleep()) return;
    ++sleep_;
    publish();
    ask_ = !std::exchange(slept_, false);
}

bool shm_poller::sleep(int other_fd, core::nanoseconds until) noexcept {
    if (!watch_other(other_fd)) return poller::sleep(other_fd, until);
    slept_ = true;
    return ask_epoll(until);
}

}  // namespace accel::shm
