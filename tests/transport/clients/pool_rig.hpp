// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "client_rig.hpp"

#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace accel::tests {

class pools : public client_rig {
  protected:
    [[nodiscard]] channel_pool pool_to(const std::string& uri, const pool_options& limits = {}) {
        auto made = channel_pool::open(ctx, uri, client_options(), limits);
        EXPECT_TRUE(made) << made.error().message;
        return std::move(made).value();
    }
    [[nodiscard]] static std::string ask(channel_pool& pool, std::string_view text = {}) {
        auto answer = pool.call(bytes_of(text));
        return answer ? text_of(answer->response) : std::string{to_string(answer.code())};
    }
    static void in_threads(std::size_t count, const std::function<void(std::size_t)>& body) {
        std::vector<std::thread> all;
        for (std::size_t i = 0; i < count; ++i) all.emplace_back(body, i);
        for (std::thread& each : all) each.join();
    }
};

/// A thread that does what the test says, one thing after another.
class told_thread {
  public:
    told_thread() : thread_([this] { run(); }) {}
    ~told_thread() {
        tell([this] { kept.reset(); });
        tell({});
        thread_.join();
    }
    told_thread(const told_thread&) = delete;
    told_thread& operator=(const told_thread&) = delete;
    void tell(std::function<void()> work) {
        std::unique_lock lock(mutex_);
        work_ = std::move(work);
        told_ = true;
        changed_.notify_all();
        changed_.wait(lock, [this] { return !told_; });
    }
    std::optional<shared_response> kept;
    bool seated = false;  ///< it has a channel

  private:
    void run() {
        std::unique_lock lock(mutex_);
        for (bool goes_on = true; goes_on;) {
            changed_.wait(lock, [this] { return told_; });
            goes_on = static_cast<bool>(work_);
            if (goes_on) work_();
            told_ = false;
            changed_.notify_all();
        }
    }
    std::mutex mutex_;
    std::condition_variable changed_;
    std::function<void()> work_;
    bool told_ = false;
    std::thread thread_;
};

}  // namespace accel::tests
