// SPDX-License-Identifier: Apache-2.0
// A server whose monotonic clock is another one, although the kernel is the same.
#include "hostile/arena.hpp"

#include <array>

namespace accel::hostile {
namespace {

struct clocks : ::testing::TestWithParam<const char*> {
    /// Ahead of ours by this.
    [[nodiscard]] bool serve(int seconds) {
        const std::string uri = listen_uri(GetParam()) + (shared() ? "" : "?insecure=true");
        server_ = std::make_unique<victim>(uri, std::vector<std::string>{"clock=" + std::to_string(seconds)}, -1);
        return server_->uri() != "not allowed";
    }
    [[nodiscard]] static bool shared() { return std::string_view(GetParam()) == "shm"; }
    void expect_calls_in_time() const {
        context ctx = *context::open({.log = log_level::off});
        channel_options options;
        options.call_timeout = patience(10s);
        auto made = channel::connect(ctx, server_->uri() + (shared() ? "" : "?insecure=true"), options);
        ASSERT_TRUE(made.ok()) << made.error().message;
        const std::array<std::byte, 8> request{};
        for (int i = 0; i < 3; ++i) {
            const auto answered = made->call(request);
            ASSERT_TRUE(answered.ok()) << to_string(answered.code()) << ": " << answered.error().message;
        }
    }
    std::unique_ptr<victim> server_;
};

TEST_P(clocks, deadlines_hold_at_a_server_in_another_time_namespace) {
    if (!serve(100'000)) GTEST_SKIP() << "no time namespace can be made here: that takes CAP_SYS_ADMIN";
    expect_calls_in_time();
}

INSTANTIATE_TEST_SUITE_P(hostile, clocks, ::testing::Values("tcp", "shm"),
                         [](const auto& each) { return std::string(each.param); });

}  // namespace
}  // namespace accel::hostile
