// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/gateway/reach.hpp"
#include "serving/gateway/upstream.hpp"

#include <accel_transport/context.hpp>

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace accel::examples::gateway {

/// Connects to servers on a thread of its own, because that takes time, and tries again where it fails. From then on
/// channels connect again by themselves.
class opener {
  public:
    struct opened {
        upstream* to = nullptr;
        std::vector<channel> channels;
        bool tells_models = false;
    };

    opener(context& ctx, const reach_settings& chosen, std::deque<upstream>& servers);
    ~opener();
    opener(const opener&) = delete;
    opener& operator=(const opener&) = delete;

    /// Readable when `take` has something.
    [[nodiscard]] int event_fd() const noexcept { return signal_; }
    [[nodiscard]] std::vector<opened> take();
    /// Waits until each server was tried, and one reached. On failure: what the last one said.
    [[nodiscard]] result<void> wait_for_servers(std::chrono::nanoseconds patience);

  private:
    [[nodiscard]] result<opened> open(upstream& server) const;
    void run();

    context& context_;
    const reach_settings& chosen_;
    const int signal_;
    mutable std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<upstream*> left_;
    std::vector<opened> done_;
    std::size_t untried_;
    std::size_t reached_ = 0;
    error last_;
    bool stopping_ = false;
    std::thread thread_;
};

}  // namespace accel::examples::gateway
