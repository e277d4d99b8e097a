#include "verbs/completion_queue.hpp"

#include "verbs/failure.hpp"

#include <algorithm>
#include <cerrno>
#include <utility>

#include <fcntl.h>

namespace accel::verbs {
namespace {

/// Acknowledging takes a lock in libibverbs, so it is done for many events at once.
constexpr unsigned events_acknowledged_at_once = 256;

}  // namespace

result<std::unique_ptr<completion_queue>> completion_queue::create(std::shared_ptr<device> on,
                                                                   std::uint32_t depth,
                                                                   async_listener* listener) {
    channel_handle channel(ibv_create_comp_channel(&on->context()));
    if (!channel) return verb_failed("no completion channel", errno);
    ::fcntl(channel->fd, F_SETFL, ::fcntl(channel->fd, F_GETFL) | O_NONBLOCK);
    const int entries =
        static_cast<int>(std::min<std::uint32_t>(depth, static_cast<std::uint32_t>(on->limits().max_cqe)));
    cq_handle cq(ibv_create_cq(&on->context(), entries, listener, channel.get(), 0));
    if (!cq) return verb_failed("no completion queue", errno);
    return std::unique_ptr<completion_queue>(
        new completion_queue(std::move(on), std::move(channel), std::move(cq)));
}

completion_queue::completion_queue(std::shared_ptr<device> on, channel_handle channel, cq_handle cq) noexcept
    : device_(std::move(on)), channel_(std::move(channel)), cq_(std::move(cq)) {}

completion_queue::~completion_queue() {
    take_events();
    if (unacknowledged_ > 0) ibv_ack_cq_events(cq_.get(), unacknowledged_);
}

result<void> completion_queue::grow(std::uint32_t wanted) {
    if (wanted <= depth()) return {};
    if (wanted > static_cast<std::uint32_t>(device_->limits().max_cqe)) {
        return error{status::overloaded, 0,
                     "the completion queue cannot hold the slots of one more session; use more workers"};
    }
    if (const int failed = ibv_resize_cq(cq_.get(), static_cast<int>(wanted)); failed != 0) {
        return verb_failed("the completion queue cannot be made larger", failed);
    }
    return {};
}

bool completion_queue::take_event() noexcept {
    ibv_cq* which = nullptr;
    void* context = nullptr;
    if (ibv_get_cq_event(channel_.get(), &which, &context) != 0) return false;
    if (++unacknowledged_ < events_acknowledged_at_once) return true;
    ibv_ack_cq_events(cq_.get(), unacknowledged_);
    unacknowledged_ = 0;
    return true;
}

}  // namespace accel::verbs
