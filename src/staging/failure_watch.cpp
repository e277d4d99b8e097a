// SPDX-License-Identifier: Apache-2.0
#include "staging/failure_watch.hpp"

#include "core/log.hpp"
#include "core/thread.hpp"

#include <utility>

namespace accel::core {

failure_watch::failure_watch(std::function<gpu_sight()> look, std::atomic<bool>& failed, nanoseconds interval)
    : look_(std::move(look)),
      failed_(failed),
      interval_(interval),
      thread_(start_thread("accel-gpu-watch", [this] { run(); })) {}

failure_watch::~failure_watch() {
    ending_.store(true, std::memory_order_release);
    ended_.set();
    thread_.join();
}

void failure_watch::run() {
    failure_judge judge;
    while (!ending_.load(std::memory_order_acquire)) {
        const gpu_sight seen = look_();
        if (judge.judge(seen)) {
            if (seen == gpu_sight::refused)
                log().error("a GPU failed {} checks in a row; its sessions end with device_lost",
                            failure_judge::patience);
            return failed_.store(true, std::memory_order_release);
        }
        pollfd end{ended_.fd(), POLLIN, 0};
        sleep_on({&end, 1}, now() + interval_);
    }
}

}  // namespace accel::core
