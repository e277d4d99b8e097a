// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gateway_rig.hpp"
#include "payload.hpp"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace accel::tests {

/// Of one call; its answer is checked.
inline status call_once(channel& to, std::uint64_t seed) {
    const auto call = to.begin();
    if (!call) return call.error();
    fill(call->request.first(1'000), seed);
    EXPECT_EQ(to.submit(call->id, 1'000, {.timeout = patience(20s), .trace_id = seed}), status::ok);
    completion c;
    EXPECT_EQ(to.wait({&c, 1}, patience(30s)), 1U);
    EXPECT_TRUE(c.status != status::ok || is_changed(c.response, seed, 1'000));
    return c.status;
}

/// Clients that call one after the other, each on a channel of its own, until `end`.
class callers {
  public:
    callers(context& ctx, const std::string& uri, std::size_t threads) {
        for (std::size_t i = 0; i < threads; ++i)
            threads_.emplace_back([this, to = std::make_shared<channel>(connect(ctx, uri))] { run(*to); });
    }
    ~callers() { end(); }
    callers(const callers&) = delete;
    callers& operator=(const callers&) = delete;

    /// Calls that have ended.
    [[nodiscard]] std::uint64_t done() const { return done_; }
    [[nodiscard]] std::uint64_t failed() const { return done_ - of(status::ok); }
    /// Those that have ended with this.
    [[nodiscard]] std::uint64_t of(status seen) const { return seen_.at(static_cast<std::size_t>(seen)); }
    [[nodiscard]] std::string_view last_failure() const { return to_string(last_.load()); }
    void end() {
        ending_ = true;
        for (std::thread& each : threads_)
            if (each.joinable()) each.join();
    }

  private:
    void run(channel& to) {
        while (!ending_) {
            const status seen = call_once(to, ++number_);
            ++seen_.at(static_cast<std::size_t>(seen));
            ++done_;
            if (seen != status::ok) last_ = seen;
        }
    }

    std::atomic<bool> ending_{false};
    std::atomic<std::uint64_t> number_{0};  ///< of the last call
    std::atomic<std::uint64_t> done_{0};
    std::array<std::atomic<std::uint64_t>, status_count> seen_{};
    std::atomic<status> last_{status::ok};
    std::vector<std::thread> threads_;
};

}  // namespace accel::tests
