// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "loopback.hpp"
#include "patience.hpp"

#include <accel_transport/accel_transport.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

namespace accel::tests {

[[nodiscard]] inline std::span<const std::byte> bytes_of(std::string_view text) {
    return std::as_bytes(std::span{text});
}
[[nodiscard]] inline std::string text_of(std::span<const std::byte> bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

inline void echo_back(exchange one) {
    const std::size_t length = std::min(one.request().size(), one.response().size());
    if (length > 0) std::memcpy(one.response().data(), one.request().data(), length);
    (void)one.reply(length);
}
/// A handler that answers with a name, so that clients see who has answered.
[[nodiscard]] inline handler names_itself(std::string name) {
    return [name = std::move(name)](exchange one) {
        std::memcpy(one.response().data(), name.data(), name.size());
        (void)one.reply(name.size());
    };
}

/// Keeps exchanges; the test answers them.
class shelf {
  public:
    [[nodiscard]] handler keeper() {
        return [this](exchange one) {
            const std::lock_guard lock(mutex_);
            kept_.push_back(std::move(one));
        };
    }
    [[nodiscard]] std::size_t size() {
        const std::lock_guard lock(mutex_);
        return kept_.size();
    }
    void answer_all(void (*answer)(exchange) = echo_back) {
        const std::lock_guard lock(mutex_);
        for (exchange& each : kept_) answer(std::move(each));
        kept_.clear();
    }
    /// A server waits for them when it stops.
    void drop_all() {
        const std::lock_guard lock(mutex_);
        kept_.clear();
    }
    /// What `use` says of them.
    template <class Use>
    [[nodiscard]] auto with_all(Use use) {
        const std::lock_guard lock(mutex_);
        return use(kept_);
    }

  private:
    std::mutex mutex_;
    std::vector<exchange> kept_;
};

/// Servers and clients of this process, without keys.
class client_rig : public ::testing::TestWithParam<std::string> {
  protected:
    void SetUp() override {
        for (const scheme_report& each : ctx.schemes())
            if (each.scheme == GetParam() && !each.usable) GTEST_SKIP() << each.reason;
    }
    [[nodiscard]] static channel_options client_options() {
        channel_options options;
        options.slots = 4;
        options.request_bytes = options.response_bytes = 4096;
        options.connect_timeout = patience(5s);
        options.peer_timeout = patience(2s);
        options.backoff_min = 5ms;
        options.backoff_max = 20ms;
        options.security.insecure = true;
        return options;
    }
    /// A place to listen on: any free port, or a name that no other process has.
    [[nodiscard]] static std::string place(std::string_view name) {
        const std::string& scheme = GetParam();
        if (scheme != "local" && scheme != "shm") return scheme + "://" + own_loopback() + ":0";
        return scheme + "://clients-" + std::to_string(::getpid()) + "-" + std::string{name};
    }
    [[nodiscard]] server serve(std::string_view where, handler service = echo_back, std::uint32_t workers = 1) {
        server_options options;
        options.workers = workers;
        options.peer_timeout = patience(2s);
        options.security.insecure = true;
        auto made = server::listen(ctx, {where}, std::move(service), options);
        EXPECT_TRUE(made) << made.error().message;
        return std::move(made).value();
    }
    [[nodiscard]] static std::string where(const server& one) { return one.endpoints().front(); }
    [[nodiscard]] channel connect_to(const server& there) {
        auto made = channel::connect(ctx, where(there), client_options());
        EXPECT_TRUE(made) << made.error().message;
        return std::move(made).value();
    }
    /// One URI for several servers' endpoints.
    [[nodiscard]] static std::string joined(std::initializer_list<std::string> endpoints) {
        std::string out;
        for (const std::string& each : endpoints) out += out.empty() ? each : "," + each.substr(each.find("://") + 3);
        return out;
    }

    context ctx = context::open({.log = log_level::off}).value();
};

/// `gdr` is `rdma` with the server's memory on a GPU; the conformance suite has both.
#define ACCEL_OVER_EVERY_TRANSPORT(suite)                                                                 \
    INSTANTIATE_TEST_SUITE_P(over, suite, ::testing::Values("local", "shm", "tcp", "zmq", "rdma", "gpu"), \
                             [](const auto& row) { return row.param; })

}  // namespace accel::tests
