// SPDX-License-Identifier: Apache-2.0
// The option `pacing`: no faster than asked for, on either end, and refused where nothing would keep to it.
#include "client_rig.hpp"

#include <algorithm>
#include <vector>

namespace accel::tests {
namespace {

constexpr std::size_t payload_bytes = 10'000'000;
constexpr double bits_per_second = 200e6;
constexpr double formula_s = payload_bytes * 8 / bits_per_second;

struct pacing : ::testing::TestWithParam<const char*> {
    context ctx = *context::open();

    [[nodiscard]] server serve(std::string_view options, const char* scheme = GetParam()) {
        server_options own;
        own.security.insecure = true;
        auto made = server::listen(
            ctx, {std::string(scheme) + "://" + own_loopback() + ":0" + std::string(options)},
            [](exchange request) {
                const std::size_t wanted = request.trace_id();
                (void)request.reply(std::min(wanted, request.response().size()));
            },
            own);
        if (!made) throw std::runtime_error(made.error().message);
        return std::move(*made);
    }
    [[nodiscard]] result<channel> connect(const server& to, std::string_view options) {
        channel_options own;
        own.security.insecure = true;
        own.slots = 1;
        own.request_bytes = payload_bytes;
        own.response_bytes = payload_bytes;
        return channel::connect(ctx, to.endpoints().at(0) + std::string(options), own);
    }
    /// Seconds of the second call; the first one warms up, and uses up the kernel's burst.
    static double seconds_of(channel& client, std::size_t request, std::size_t response) {
        const std::vector<std::byte> payload(request);
        submit_options options;
        options.trace_id = response;
        (void)client.call(payload, options);
        const auto start = std::chrono::steady_clock::now();
        const auto answer = client.call(payload, options);
        EXPECT_TRUE(answer) << answer.error().message;
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    }
};

/// The kernel's buffers may take the last bytes a little early, and never more than this.
constexpr double slack = 0.97;
constexpr double longest = 1.15;

/// No call is faster than the rate. A busy machine makes some slower, so the best of a few is judged.
void expect_paced(auto seconds_of_a_call) {
    double best = seconds_of_a_call();
    EXPECT_GE(best, formula_s * slack);
    for (int more = 0; more < 9 && best > formula_s * longest; ++more) {
        const double again = seconds_of_a_call();
        EXPECT_GE(again, formula_s * slack);
        best = std::min(best, again);
    }
    EXPECT_LE(best, formula_s * longest);
}

/// One call of a few takes less than half of what the rate would ask for.
void expect_unpaced(auto seconds_of_a_call) {
    double best = seconds_of_a_call();
    for (int more = 0; more < 9 && best >= formula_s / 2; ++more) best = std::min(best, seconds_of_a_call());
    EXPECT_LT(best, formula_s / 2);
}

TEST_P(pacing, a_paced_client_sends_at_its_rate) {
    const server there = serve("");
    auto client = connect(there, "?pacing=200Mb/s");
    ASSERT_TRUE(client) << client.error().message;
    expect_paced([&] { return seconds_of(*client, payload_bytes, 0); });
    expect_unpaced([&] { return seconds_of(*client, 0, payload_bytes); });
}

TEST_P(pacing, a_paced_server_sends_at_its_rate) {
    const server there = serve("?pacing=200Mb/s");
    auto client = connect(there, "");
    ASSERT_TRUE(client) << client.error().message;
    expect_paced([&] { return seconds_of(*client, 0, payload_bytes); });
    expect_unpaced([&] { return seconds_of(*client, payload_bytes, 0); });
}

TEST_P(pacing, a_rate_of_zero_paces_nothing) {
    const server there = serve("?pacing=0");
    auto client = connect(there, "?pacing=0");
    ASSERT_TRUE(client) << client.error().message;
    expect_unpaced([&] { return seconds_of(*client, payload_bytes, 0); });
}

TEST_P(pacing, bad_rates_are_refused) {
    const server there = serve("");
    for (const char* wrong : {"200", "200MB/s", "fast", "-1Mb/s", "1kb/s", "1000Tb/s", "0.5Mb/s"})
        EXPECT_EQ(connect(there, std::string("?pacing=") + wrong).code(), status::invalid_argument) << wrong;
}

INSTANTIATE_TEST_SUITE_P(, pacing, ::testing::Values("tcp", "zmq"), [](const auto& each) { return each.param; });

TEST(pacing_elsewhere, other_transports_refuse_pacing) {
    context ctx = *context::open();
    const auto refused = server::listen(ctx, {"local://pacing?pacing=1Gb/s"}, &echo_back, {});
    ASSERT_EQ(refused.code(), status::unsupported);
    EXPECT_NE(refused.error().message.find("use tcp or zmq"), std::string::npos) << refused.error().message;
    const auto there = server::listen(ctx, {"local://pacing"}, &echo_back, {});
    ASSERT_TRUE(there) << there.error().message;
    EXPECT_EQ(channel::connect(ctx, "local://pacing?pacing=1Gb/s", {}).code(), status::unsupported);
}

}  // namespace
}  // namespace accel::tests
