// SPDX-License-Identifier: Apache-2.0
#include "perf/command.hpp"
#include "perf/commands.hpp"
#include "perf/loop_uris.hpp"
#include "perf/pattern.hpp"

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace accel::perf {
namespace {

TEST(command, survives_its_trip_in_a_trace_id) {
    const command wanted{0xffff'fff0, 0xab'cdef, true, false};
    const command seen = unpack(pack(wanted));
    EXPECT_EQ(seen.response_bytes, wanted.response_bytes);
    EXPECT_EQ(seen.seed, wanted.seed);
    EXPECT_TRUE(seen.check);
    EXPECT_FALSE(seen.report_cpu);
    EXPECT_TRUE(unpack(pack({.report_cpu = true})).report_cpu);
    EXPECT_EQ(unpack(0).response_bytes, 0U);
}

TEST(pattern, is_recognised_at_every_length) {
    std::array<std::byte, 40> bytes{};
    for (std::size_t length = 0; length <= bytes.size(); ++length) {
        const auto part = std::span{bytes}.first(length);
        fill_pattern(part, 7);
        EXPECT_TRUE(holds_pattern(part, 7)) << length;
    }
}

TEST(pattern, differs_by_seed_place_and_single_bit) {
    std::array<std::byte, 40> bytes{};
    fill_pattern(bytes, 7);
    EXPECT_FALSE(holds_pattern(bytes, 8));
    EXPECT_FALSE(holds_pattern(bytes, response_seed(7)));
    EXPECT_FALSE(holds_pattern(std::span{bytes}.subspan(8), 7));
    for (std::size_t i = 0; i < bytes.size(); ++i) {
        bytes[i] ^= std::byte{1};
        EXPECT_FALSE(holds_pattern(bytes, 7)) << i;
        bytes[i] ^= std::byte{1};
    }
}

TEST(plan, bounds_what_it_sends_by_default) {
    settings chosen;
    chosen.sizes = {0, 64, std::size_t{64} << 20};
    const std::vector<load> loads = plan(chosen);
    ASSERT_EQ(loads.size(), 3U);
    EXPECT_EQ(loads[0].count, 10'000U);
    EXPECT_EQ(loads[1].count, 10'000U);
    EXPECT_EQ(loads[1].response_bytes, 64U);
    EXPECT_EQ(loads[2].count, 100U);
}

TEST(plan, takes_what_was_asked_for) {
    settings chosen;
    chosen.response_bytes = 0;
    chosen.count = 5;
    chosen.warm_up = 0;
    chosen.depth = 3;
    const load only = plan(chosen).front();
    EXPECT_EQ(only.response_bytes, 0U);
    EXPECT_EQ(only.count, 5U);
    EXPECT_EQ(only.warm_up, 0U);
    EXPECT_EQ(only.depth, 3U);
}

TEST(loop_uri, of_a_scheme_alone_is_insecure_on_loopback) {
    const auto ends = split_for_loop("tcp");
    ASSERT_TRUE(ends.ok()) << ends.error().message;
    EXPECT_EQ(ends.value().server, "tcp://127.0.0.1:0?insecure=true");
    EXPECT_EQ(ends.value().client_query, "?insecure=true");
    EXPECT_TRUE(ends.value().made_insecure);
}

TEST(loop_uri, of_local_needs_no_keys) {
    const auto ends = split_for_loop("local");
    ASSERT_TRUE(ends.ok()) << ends.error().message;
    EXPECT_EQ(ends.value().server, "local://perf");
    EXPECT_EQ(ends.value().client_query, "");
    EXPECT_FALSE(ends.value().made_insecure);
}

TEST(loop_uri, of_shm_has_a_name_of_its_own_and_no_keys) {
    const auto ends = split_for_loop("shm");
    ASSERT_TRUE(ends.ok()) << ends.error().message;
    EXPECT_TRUE(ends.value().server.starts_with("shm://perf-")) << ends.value().server;
    EXPECT_EQ(ends.value().client_query, "");
    EXPECT_FALSE(ends.value().made_insecure);
}

TEST(loop_uri, gives_each_end_its_own_options) {
    const auto ends =
        split_for_loop("zmq://127.0.0.1:0?key_file=k&authorized_keys=a&server_key=s&slots=4&workers=2&poll=busy");
    ASSERT_TRUE(ends.ok()) << ends.error().message;
    EXPECT_EQ(ends.value().server, "zmq://127.0.0.1:0?key_file=k&authorized_keys=a&workers=2&poll=busy");
    EXPECT_EQ(ends.value().client_query, "?key_file=k&server_key=s&slots=4&poll=busy");
    EXPECT_FALSE(ends.value().made_insecure);
}

TEST(loop_uri, without_keys_is_refused_off_loopback) {
    EXPECT_EQ(split_for_loop("tcp://192.0.2.1:5555").code(), status::unauthorized);
    EXPECT_EQ(split_for_loop("tcp://0.0.0.0:0?poll=busy").code(), status::unauthorized);
    EXPECT_TRUE(split_for_loop("tcp://192.0.2.1:5555?insecure=true").ok());
}

}  // namespace
}  // namespace accel::perf
