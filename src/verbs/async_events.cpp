// SPDX-License-Identifier: Apache-2.0
#include "verbs/async_events.hpp"

#include "core/event_signal.hpp"
#include "core/log.hpp"
#include "core/net/unique_fd.hpp"
#include "core/thread.hpp"

#include <algorithm>
#include <array>

#include <fcntl.h>
#include <sys/eventfd.h>

namespace accel::verbs {

async_events::async_events(ibv_context& context)
    : context_(context), stop_fd_(core::unique_fd(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)).release()) {
    if (stop_fd_ < 0) return;
    ::fcntl(context_.async_fd, F_SETFL, ::fcntl(context_.async_fd, F_GETFL) | O_NONBLOCK);
    try {
        thread_ = core::start_thread("accel-verbs", [this] { run(); });
    } catch (...) {
        ::close(stop_fd_);
        throw;
    }
}

async_events::~async_events() {
    if (failure() != 0) return;
    core::signal_event(stop_fd_);
    thread_.join();
    ::close(stop_fd_);
}

void async_events::subscribe(async_listener& listener) {
    const std::lock_guard lock(mutex_);
    subscribers_.push_back(&listener);
}

void async_events::unsubscribe(async_listener& listener) noexcept {
    const std::lock_guard lock(mutex_);
    std::erase(subscribers_, &listener);
}

void async_events::run() noexcept {
    while (true) {
        std::array<pollfd, 2> fds{{{context_.async_fd, POLLIN, 0}, {stop_fd_, POLLIN, 0}}};
        core::sleep_on(fds, core::never);
        if ((fds[1].revents & POLLIN) != 0) return;
        ibv_async_event event{};
        while (ibv_get_async_event(&context_, &event) == 0) {
            dispatch(event);
            ibv_ack_async_event(&event);
        }
        // A device that was unplugged has no more to say.
        if ((fds[0].revents & (POLLERR | POLLNVAL)) != 0) return;
    }
}

void async_events::dispatch(const ibv_async_event& event) noexcept {
    const char* device = ibv_get_device_name(context_.device);
    const auto tell = [&](void* listener) {
        if (listener != nullptr) static_cast<async_listener*>(listener)->on_async_event(event.event_type);
    };
    switch (event.event_type) {
        case IBV_EVENT_QP_FATAL:
        case IBV_EVENT_QP_REQ_ERR:
        case IBV_EVENT_QP_ACCESS_ERR:
            return tell(event.element.qp->qp_context);
        case IBV_EVENT_CQ_ERR:
            core::limited_log(device).error("{}: a completion queue has failed", device);
            return tell(event.element.cq->cq_context);
        case IBV_EVENT_DEVICE_FATAL: {
            core::limited_log(device).error("{}: the device has failed", device);
            const std::lock_guard lock(mutex_);
            for (async_listener* each : subscribers_) each->on_async_event(event.event_type);
            return;
        }
        case IBV_EVENT_PORT_ERR:
            return core::limited_log(device).warn("{}: port {} is down", device, event.element.port_num);
        case IBV_EVENT_PORT_ACTIVE:
            return core::limited_log(device).info("{}: port {} is up", device, event.element.port_num);
        default:
            return;
    }
}

}  // namespace accel::verbs
