// SPDX-License-Identifier: Apache-2.0
#include "device/harness/poller.hpp"

#include "core/event_signal.hpp"
#include "core/log.hpp"
#include "device/harness/link.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <utility>

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

namespace accel::tests {
namespace {

/// Sessions that end keep their places for a moment.
constexpr std::uint32_t places_a_session = 2;
constexpr std::uint32_t max_places = 1U << 16;

std::uint32_t places_for(std::uint32_t sessions) noexcept {
    return std::clamp(sessions, 1U, max_places / places_a_session) * places_a_session;
}

/// Of all sessions of a worker. A burst beyond them waits in the senders' devices.
constexpr gpu::queue_depths direct_depths{8192, 122'880};
constexpr gpu::queue_depths proxy_depths{2048, 57'344};

}  // namespace

result<std::unique_ptr<core::poller>> harness_poller::open(std::shared_ptr<verbs::device> on,
                                                           std::shared_ptr<verbs::domain_list> domains,
                                                           const core::poller_options& options) {
    std::unique_ptr<harness_poller> made(new harness_poller(std::move(on), std::move(domains), options));
    if (auto ready = made->make_queues(); !ready) return ready.error();
    return std::unique_ptr<core::poller>(std::move(made));
}

harness_poller::harness_poller(std::shared_ptr<verbs::device> on, std::shared_ptr<verbs::domain_list> domains,
                               const core::poller_options& options)
    : device_(std::move(on)),
      domains_(std::move(domains)),
      options_(options.verbs),
      places_(places_for(options.sessions)),
      epoll_fd_(::epoll_create1(EPOLL_CLOEXEC)),
      wake_fd_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
      by_place_(places_) {
    device_->events().subscribe(*this);
}

harness_poller::~harness_poller() {
    device_->events().unsubscribe(*this);
    queues_.reset();
    ::close(wake_fd_);
    ::close(epoll_fd_);
}

result<void> harness_poller::make_queues() {
    auto made = device_->driver() != nullptr ? gpu::make_direct_queues(device_, direct_depths, this)
                                             : gpu::make_proxy_queues(device_, proxy_depths, memory_);
    if (!made) return made.error();
    queues_ = std::move(*made);
    service_ = std::make_unique<harness_service>(places_);
    if (auto ready = service_->prepare(*queues_); !ready) return ready;
    for (const int fd : {wake_fd_, queues_->event_fd()}) {
        epoll_event interest{};
        interest.events = EPOLLIN;
        if (::epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, fd, &interest) != 0 && errno != EEXIST)
            return error{status::system_error, errno, "gpu: epoll does not take an event descriptor"};
    }
    return {};
}

result<std::unique_ptr<core::link>> harness_poller::open_link(const core::link_config& config) {
    return harness_link::create(*this, config);
}

result<void> harness_poller::admit() {
    const std::lock_guard lock(mutex_);
    if (device_failed_) {
        return error{status::system_error, 0,
                     fmt::format("gpu: {} has failed; restart the server", device_->describe())};
    }
    if (overrun_)
        return error{status::overloaded, 0, "gpu: the completion queue has failed and is replaced; try again"};
    ++links_alive_;
    return {};
}

void harness_poller::dismiss() noexcept {
    const std::lock_guard lock(mutex_);
    --links_alive_;
    if (links_alive_ == 0 && overrun_) wake();  // to be replaced now
}

// Links that come, go and fail.

void harness_poller::wake() noexcept {
    commands_pending_.store(true, std::memory_order_seq_cst);
    core::signal_event(wake_fd_);
}

/// The device code learns last of it: whoever it has a request of is known here.
void harness_poller::open(harness_link& link, const device::detail::session_entry& entry,
                          const device::detail::session_offer& offer) {
    const std::lock_guard lock(mutex_);
    by_place_[link.place()] = &link;
    service_->open(link.place(), entry, offer);
    added_.push_back(&link);
    wake();
}

void harness_poller::report(harness_link& link) noexcept {
    const std::lock_guard lock(mutex_);
    if (std::find(reported_.begin(), reported_.end(), &link) == reported_.end()) reported_.push_back(&link);
    wake();
}

void harness_poller::on_async_event(ibv_event_type type) noexcept {
    const std::lock_guard lock(mutex_);
    (type == IBV_EVENT_CQ_ERR ? overrun_ : device_failed_) = true;
    wake();
}

/// A completion queue that has failed is of no use to anybody. Once all its links have ended there is
/// another.
void harness_poller::replace_queues() noexcept {
    constexpr std::chrono::milliseconds pause{10};
    {
        const std::lock_guard lock(mutex_);
        if (links_alive_ > 0 || device_failed_) return;
    }
    const core::nanoseconds now = core::now();
    if (now < replace_at_) return;
    replace_at_ = now + pause;
    // Until the flags change there is no other link.
    queues_.reset();
    service_.reset();
    failures_seen_ = 0;
    if (auto made = make_queues(); !made) {
        core::limited_log().error("gpu: cannot make a new completion queue: {}", made.error().message);
        return;
    }
    const std::lock_guard lock(mutex_);
    overrun_ = failed_ = false;
    core::limited_log().warn("gpu: replaced a failed completion queue");
}

void harness_poller::take_commands() noexcept {
    core::clear_event(wake_fd_);
    const std::lock_guard lock(mutex_);
    commands_pending_.store(false, std::memory_order_relaxed);
    links_.insert(links_.end(), added_.begin(), added_.end());
    pending_links_.reserve(links_.size());
    added_.clear();
    // The others are not active yet.
    std::erase_if(reported_, [this](harness_link* each) {
        const bool known = std::find(links_.begin(), links_.end(), each) != links_.end();
        if (known) each->settle_async_failure();
        return known;
    });
    overrun_ = overrun_ || (queues_ && queues_->has_failed());
    failed_ = device_failed_ || overrun_;
    if (failed_)
        for (harness_link* each : links_) each->fail(status::system_error);
    else
        note_failures();  // of those added just now, too
}

void harness_poller::remove(harness_link& link, bool opened) noexcept {
    const std::lock_guard lock(mutex_);
    std::erase(reported_, &link);
    if (!opened) return;
    std::erase(added_, &link);
    std::erase(links_, &link);
    std::erase(pending_links_, &link);
    link.pending = false;
}

void harness_poller::mark_pending(harness_link& link) noexcept {
    if (std::exchange(link.pending, true)) return;
    pending_links_.push_back(&link);
}

void harness_poller::note_failures() noexcept {
    failures_seen_ = service_->failures();
    for (harness_link* each : links_) each->note_failure();
}

// The data path.

std::size_t harness_poller::poll(std::span<core::link_event> out) noexcept {
    if (commands_pending_.load(std::memory_order_acquire)) take_commands();
    const std::size_t count = pending_links_.empty() ? 0 : drain_events(out);
    if (failed_) [[unlikely]] {
        replace_queues();
        return count;
    }
    (void)queues_->progress();
    if (queues_->has_failed()) [[unlikely]]
        wake();  // perhaps with no session left that could tell of it
    return count < out.size() ? count + take(out[count]) : count;
}

std::size_t harness_poller::take(core::link_event& out) noexcept {
    device::detail::ready_entry arrived;
    const bool any = device::detail::next_ready(service_->ref(), arrived) == status::ok;
    const bool taken = any && by_place_[arrived.session]->take(arrived, out);
    if (service_->failures() != failures_seen_) [[unlikely]]
        note_failures();
    return taken ? 1 : 0;
}

std::size_t harness_poller::drain_events(std::span<core::link_event> out) noexcept {
    std::size_t count = 0;
    std::size_t kept = 0;
    for (harness_link* each : pending_links_) {
        count += each->drain_events(out.subspan(count));
        each->pending = each->waits_to_tell();
        if (each->pending) pending_links_[kept++] = each;
    }
    pending_links_.resize(kept);
    return count;
}

bool harness_poller::arm() noexcept {
    if (commands_pending_.load(std::memory_order_seq_cst)) return false;
    const auto has_news = [](const harness_link* each) { return each->has_something_to_tell(); };
    if (std::any_of(pending_links_.begin(), pending_links_.end(), has_news)) return false;
    if (failed_) return true;  // whoever polls comes back to see its links closed
    if (queues_->progress()) return false;
    const device::service_ref& service = service_->ref();
    // What is owed is given back while there is time.
    device::detail::give_back(service);
    publish_taken(service.completions);
    if (!queues_->arm() || queues_->progress()) return false;
    return !device::detail::is_next_there(service.completions);
}

void harness_poller::disarm() noexcept {
    if (queues_) queues_->disarm();
}

}  // namespace accel::tests
