// SPDX-License-Identifier: Apache-2.0
// From one transport to another: every answer is right, and the gateway copies no payload where it need not.
#include "pairs.hpp"

#include "gateway_rig.hpp"
#include "handler_memory.hpp"
#include "payload.hpp"

#include <algorithm>
#include <array>
#include <thread>

#include <gtest/gtest.h>

namespace accel::tests {
namespace {

class pairs_of_transports : public ::testing::TestWithParam<pair_case> {};

/// On both sides of what transports treat alike.
constexpr std::array<std::size_t, 8> sizes{0, 1, 64, 1'000, 5'000, 65'536, 602'112, 100};
constexpr std::uint64_t callers = 4;

/// Of `sizes`, those whose requests may lie in ZeroMQ's own messages.
[[nodiscard]] std::uint64_t long_sizes() {
    return static_cast<std::uint64_t>(
        std::count_if(sizes.begin(), sizes.end(), [](auto size) { return size >= 1'024; }));
}

/// Calls of one client, several in flight.
void call_many(context& ctx, const std::string& uri, std::uint64_t seed) {
    channel to = connect(ctx, uri);
    auto model = to.resolve("model");
    ASSERT_TRUE(model) << model.error().message;
    for (int round = 0; round < effort(12); ++round) {
        for (const std::size_t size : sizes) {
            call_view call;
            ASSERT_EQ(to.begin(call), status::ok);
            fill(call.request.first(size), seed + size);
            ASSERT_EQ(to.submit(call.id, size, {.tag = size, .trace_id = seed, .target = *model}), status::ok);
        }
        for (std::size_t left = sizes.size(); left > 0; --left) {
            completion c;
            ASSERT_EQ(to.wait({&c, 1}, patience(20s)), 1U);
            ASSERT_EQ(c.status, status::ok) << to_string(c.status);
            EXPECT_EQ(c.trace_id, seed);
            EXPECT_TRUE(is_changed(c.response, seed + c.tag, c.tag)) << c.tag;
            (void)to.release(c.id);
        }
    }
}

TEST_P(pairs_of_transports, every_pair_of_transports_answers_correctly) {
    if (GetParam().to == "gdr" && !missing_handler_memory().empty()) GTEST_SKIP() << missing_handler_memory();
    auto ctx = context::open({.log = log_level::off});
    ASSERT_TRUE(ctx);
    prepare(*ctx);
    server behind = listen(*ctx, any_uri(GetParam().to), service_table{{{"model", answer_changed}}, {}});
    gateway_process between(
        {"--listen", any_uri(GetParam().from), "--to", "model=" + server_uri(client_uri(behind.endpoints().at(0)))});
    std::vector<std::thread> clients;
    for (std::uint64_t i = 0; i < callers; ++i)
        clients.emplace_back([&, i] { call_many(*ctx, between.uri(), 1'000'000 * (i + 1)); });
    for (std::thread& each : clients) each.join();
    const auto seen = between.stop();
    const std::uint64_t rounds = callers * static_cast<std::uint64_t>(effort(12));
    EXPECT_EQ(seen.at("answers"), rounds * sizes.size());
    EXPECT_TRUE(seen.at("errors").empty()) << seen;
    // What ZeroMQ delivers misaligned, its transport has copied already, and the gateway lends that.
    EXPECT_EQ(seen.at("payload_copies") > 0, GetParam().copies) << seen;
    EXPECT_LE(seen.at("payload_copies"), rounds * long_sizes()) << seen;
}

INSTANTIATE_TEST_SUITE_P(pairs, pairs_of_transports, all_pairs(), name_of_pair);

}  // namespace
}  // namespace accel::tests
