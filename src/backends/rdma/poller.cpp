// SPDX-License-Identifier: Apache-2.0
#include "backends/rdma/poller.hpp"

#include "core/event_signal.hpp"
#include "core/log.hpp"
#include "core/net/descriptor_error.hpp"
#include "core/net/socket.hpp"
#include "core/net/unique_fd.hpp"

#include <algorithm>
#include <cerrno>
#include <new>
#include <utility>

#include <sys/epoll.h>
#include <sys/eventfd.h>

namespace accel::rdma {
namespace {

/// Receives of all sessions of a worker. A burst beyond them waits in the senders' devices (RNR).
constexpr std::uint32_t shared_receives = 8192;
constexpr std::uint32_t min_completions = 64;

}  // namespace

result<std::unique_ptr<core::poller>> rdma_poller::open(std::shared_ptr<verbs::device> on,
                                                        std::shared_ptr<verbs::domain_list> domains,
                                                        const core::poller_options& options, bool fills_devices) {
    std::unique_ptr<rdma_poller> made(new rdma_poller(std::move(on), std::move(domains), options, fills_devices));
    if (auto ready = made->make_queues(); !ready) return ready.error();
    return std::unique_ptr<core::poller>(std::move(made));
}

rdma_poller::rdma_poller(std::shared_ptr<verbs::device> on, std::shared_ptr<verbs::domain_list> domains,
                         const core::poller_options& options, bool fills_devices)
    : device_(std::move(on)),
      domains_(std::move(domains)),
      role_(options.role),
      fills_devices_(fills_devices),
      options_(options.verbs),
      epoll_fd_(core::unique_fd(::epoll_create1(EPOLL_CLOEXEC)).release()),
      wake_fd_(core::unique_fd(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)).release()) {
    device_->events().subscribe(*this);
}

rdma_poller::~rdma_poller() {
    device_->events().unsubscribe(*this);
    for (queue_share& each : queues_) each.queue.reset();
    receives_.reset();
    ::close(wake_fd_);
    ::close(epoll_fd_);
}

result<void> rdma_poller::make_queues() {
    if (role_ == core::link_role::server) {
        auto receives = verbs::receive_queue::create(device_, shared_receives);
        if (!receives) return receives.error();
        receives_ = std::move(*receives);
        shared_use_.missing = receives_->depth();
        refill_receives();
    }
    if (epoll_fd_ < 0) return core::no_descriptor("for rdma", -epoll_fd_);
    if (wake_fd_ < 0) return core::no_descriptor("for rdma", -wake_fd_);
    epoll_event interest{};
    interest.events = EPOLLIN;
    if (::epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, wake_fd_, &interest) != 0 && errno != EEXIST)
        return core::cannot_watch("rdma", errno);
    if (auto first = add_queue(0); !first) return first;
    completions_ = queues_[0].queue.get();
    queues_polled_ = 1;
    return {};
}

/// Any of the receives may complete there.
result<void> rdma_poller::add_queue(std::uint32_t completions) {
    const std::uint32_t at_first = min_completions + (receives_ ? receives_->depth() : 0);
    const std::uint32_t needed = at_first + completions;
    const auto most = static_cast<std::uint32_t>(device_->limits().max_cqe);
    if (needed > most || queues_made_ == max_queues) {
        return error{status::overloaded, 0,
                     "the completion queues cannot hold the slots of one more session; use more workers"};
    }
    const std::uint32_t doubled = queues_made_ == 0 ? 0 : queues_[queues_made_ - 1].queue->depth() * 2;
    auto made = verbs::completion_queue::create(device_, std::min(std::max(needed, doubled), most), this);
    if (!made) return made.error();
    epoll_event interest{};
    interest.events = EPOLLIN;
    if (::epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, (*made)->event_fd(), &interest) != 0)
        return core::cannot_watch("rdma", errno);
    queues_[queues_made_++] = {std::move(*made), at_first};
    return {};
}

result<std::unique_ptr<core::link>> rdma_poller::open_link(const core::link_config& config) {
    return rdma_link::create(*this, config);
}

// Links that come, go and fail.

result<verbs::completion_queue*> rdma_poller::admit(std::uint32_t completions) {
    const std::lock_guard lock(mutex_);
    if (queue_failed_ || overrun_ || device_failed_)
        return error{status::overloaded, 0, "rdma: the completion queue has failed and is replaced; try again"};
    const auto has_room = [completions](const queue_share& each) {
        return each.queue && each.needed + completions <= each.queue->depth();
    };
    auto found = std::find_if(queues_.begin(), queues_.end(), has_room);
    if (found == queues_.end()) {
        if (auto added = add_queue(completions); !added) return added.error();
        found = queues_.begin() + queues_made_ - 1;
        wake();
    }
    failed_.reserve(links_alive_ + std::size_t{1});
    ++links_alive_;
    found->needed += completions;
    return found->queue.get();
}

void rdma_poller::dismiss(const verbs::completion_queue& from, std::uint32_t completions) noexcept {
    const std::lock_guard lock(mutex_);
    for (queue_share& each : queues_)
        if (each.queue.get() == &from) each.needed -= completions;
    --links_alive_;
    if (links_alive_ == 0 && queue_failed_) wake();  // to be replaced now
}

void rdma_poller::wake() noexcept {
    commands_pending_.store(true, std::memory_order_seq_cst);
    core::signal_event(wake_fd_);
}

void rdma_poller::add(rdma_link& link) {
    const std::lock_guard lock(mutex_);
    added_.push_back(&link);
    wake();
}

void rdma_poller::report(rdma_link& link) noexcept {
    const std::lock_guard lock(mutex_);
    if (std::find(failed_.begin(), failed_.end(), &link) == failed_.end()) failed_.push_back(&link);
    wake();
}

void rdma_poller::on_async_event(ibv_event_type type) noexcept {
    const std::lock_guard lock(mutex_);
    (type == IBV_EVENT_CQ_ERR ? overrun_ : device_failed_) = true;
    wake();
}

void rdma_poller::take_commands() noexcept {
    core::clear_event(wake_fd_);
    const std::lock_guard lock(mutex_);
    commands_pending_.store(false, std::memory_order_relaxed);
    queues_polled_ = queues_made_;
    take_added();
    for (rdma_link* each : failed_) each->settle_async_failure();
    failed_.clear();
    if (device_failed_) fail_all(status::system_error);
    if (overrun_) {
        queue_failed_ = true;
        fail_all(status::system_error);
    }
}

/// Called with `mutex_` held. If memory runs out, the links that are left wait for the next poll.
void rdma_poller::take_added() noexcept {
    try {
        pending_links_.reserve(links_.size() + added_.size());
        for (; !added_.empty(); added_.pop_back()) links_.add(added_.back()->number(), *added_.back());
    } catch (const std::bad_alloc&) {
        commands_pending_.store(true, std::memory_order_relaxed);
    }
}

void rdma_poller::remove(rdma_link& link, std::uint32_t number, bool polled) noexcept {
    {
        const std::lock_guard lock(mutex_);
        std::erase(failed_, &link);
        if (!polled) return;
        std::erase(added_, &link);
        discard_completions(number);
    }
    links_.remove(number);
    std::erase(pending_links_, &link);
    link.pending = false;
    top_up_due_ = receives_ != nullptr && !receives_->is_direct();
    settle_busy();
}

/// Completions of a queue pair that is gone are nobody's, even if there is another of its number.
void rdma_poller::discard_completions(std::uint32_t number) noexcept {
    for (const queue_share& each : queues_)
        if (each.queue) each.queue->discard_completions(number);
    for (std::uint32_t i = next_fetched_; i < last_fetched_; ++i)
        if (fetched_[i].queue_pair == number) fetched_[i].queue_pair = mlx5::no_queue_pair;
}

void rdma_poller::mark_pending(rdma_link& link) noexcept {
    if (link.pending) return;
    link.pending = true;
    pending_links_.push_back(&link);
    busy_ = true;
}

void rdma_poller::fail_all(status reason) noexcept {
    links_.for_each([reason](rdma_link& each) { each.fail(reason); });
}

void rdma_poller::fail_queue() noexcept {
    {
        const std::lock_guard lock(mutex_);
        queue_failed_ = true;
    }
    fail_all(status::system_error);
}

/// A completion queue that has failed is of no use to anybody. Once all its links have ended there is another.
void rdma_poller::replace_queues() noexcept {
    constexpr std::chrono::milliseconds pause{10};
    const std::lock_guard lock(mutex_);
    if (links_alive_ > 0 || device_failed_) return;
    const core::nanoseconds now = core::now();
    if (now < replace_at_) return;
    replace_at_ = now + pause;
    for (queue_share& each : queues_) each = {};
    queues_made_ = queues_polled_ = polled_queue_ = 0;
    completions_ = nullptr;
    receives_.reset();
    next_fetched_ = last_fetched_ = 0;
    armed_ = false;
    if (auto made = make_queues(); !made) {
        core::limited_log().error("rdma: cannot make a new completion queue: {}", made.error().message);
        return;
    }
    overrun_ = queue_failed_ = false;
    core::limited_log().warn("rdma: replaced a failed completion queue");
}

// The data path; `poll` itself is in receive_datapath.cpp.

std::size_t rdma_poller::drain_events(std::span<core::link_event> out) noexcept {
    std::size_t count = 0;
    std::size_t kept = 0;
    for (rdma_link* each : pending_links_) {
        count += each->drain_events(out.subspan(count));
        each->pending = each->has_something_to_tell();
        if (each->pending) pending_links_[kept++] = each;
    }
    pending_links_.resize(kept);
    return count;
}

/// libibverbs refuses a receive only when the queue is full. Then no receive is missing.
void rdma_poller::refill_receives() noexcept {
    (void)receives_->post(shared_use_.missing, receive_chain_);
    shared_use_.missing = 0;
}

/// A queue pair may be destroyed before its completions are taken. Some drivers drop these completions, so that the
/// receives that they stand for do not come back by themselves.
void rdma_poller::top_up() noexcept {
    top_up_due_ = false;
    shared_use_.missing = receives_->depth();
    refill_receives();
}

bool rdma_poller::arm() noexcept {
    const bool work = commands_pending_.load(std::memory_order_seq_cst) || !pending_links_.empty() || top_up_due_;
    if (work || next_fetched_ < last_fetched_) return false;
    if (queue_failed_) return true;  // whoever polls comes back to see its links closed
    // A look is cheap; to ask for an event may be a system call.
    if (fetch()) return false;
    for (std::uint32_t i = 0; i < queues_polled_; ++i) {
        if (!queues_[i].queue->request_event()) return false;
        armed_ = true;
    }
    return !fetch();
}

bool rdma_poller::sleep(int other_fd, core::nanoseconds until) noexcept {
    std::array<pollfd, max_queues + 2> fds;
    fds[0] = {other_fd, POLLIN, 0};
    fds[1] = {wake_fd_, POLLIN, 0};
    for (std::uint32_t i = 0; i < queues_polled_; ++i) fds[i + 2] = {queues_[i].queue->event_fd(), POLLIN, 0};
    core::sleep_on(std::span{fds}.first(queues_polled_ + 2), until);
    for (std::uint32_t i = 0; i < queues_polled_; ++i) {
        if ((fds[i + 2].revents & POLLIN) == 0) continue;
        queues_[i].queue->take_event();
        armed_ = queues_polled_ > 1;
    }
    return (fds[0].revents & POLLIN) != 0;
}

void rdma_poller::disarm() noexcept {
    if (!armed_) return;
    for (std::uint32_t i = 0; i < queues_polled_; ++i) queues_[i].queue->take_events();
    armed_ = false;
}

}  // namespace accel::rdma
