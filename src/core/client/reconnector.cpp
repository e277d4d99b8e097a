// SPDX-License-Identifier: Apache-2.0
#include "core/client/reconnector.hpp"

#include "core/log.hpp"
#include "core/thread.hpp"

#include <algorithm>

namespace accel::core {

reconnector::~reconnector() {
    {
        const std::lock_guard lock(mutex_);
        stopping_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
    if (made_) {
        (void)made_->path->close();
        close_session(request_, made_->session);
    }
}

void reconnector::start() {
    const std::lock_guard lock(mutex_);
    wanted_ = true;
    if (!thread_.joinable()) thread_ = start_thread("accel-reconnect", [this] { run(); });
    changed_.notify_all();
}

channel_connection reconnector::take() {
    const std::lock_guard lock(mutex_);
    ready_.store(false, std::memory_order_relaxed);
    signal_.clear();
    return *std::exchange(made_, std::nullopt);
}

bool reconnector::pause(nanoseconds duration) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, duration, [this] { return stopping_; });
    return !stopping_;
}

void reconnector::run() {
    for (;;) {
        {
            std::unique_lock lock(mutex_);
            changed_.wait(lock, [this] { return stopping_ || wanted_; });
            if (stopping_) return;
            wanted_ = false;
        }
        nanoseconds backoff = request_.options.backoff_min;
        while (pause(backoff)) {
            auto made = open_connection(request_);
            if (made) {
                const std::lock_guard lock(mutex_);
                made_ = std::move(*made);
                ready_.store(true, std::memory_order_release);
                signal_.set();
                break;
            }
            backoff = std::min(backoff * 2, request_.options.backoff_max);
            limited_log(request_.peer.host)
                .info("connecting to {} again in {} ms: {}", request_.peer.text(), backoff.count() / 1'000'000,
                      made.error().message);
        }
    }
}

}  // namespace accel::core
