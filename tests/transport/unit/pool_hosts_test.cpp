// SPDX-License-Identifier: Apache-2.0
#include "core/client/pool_hosts.hpp"

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace accel::core {
namespace {

using namespace std::chrono_literals;

struct plain_host {
    nanoseconds failed_at = -1h;  ///< long ago: never, or it has answered since
    nanoseconds answered{};
};

TEST(pool_hosts, take_turns_and_are_left_out_for_the_pause_after_a_failure) {
    constexpr nanoseconds pause = 10s;
    for (std::uint32_t seed = 1; seed <= 100; ++seed) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        std::minstd_rand random(seed);
        const std::size_t count = 1 + random() % 5;
        std::string uri = "tcp://h0:1";
        for (std::size_t i = 1; i < count; ++i) uri += ",h" + std::to_string(i) + ":1";
        pool_hosts hosts = pool_hosts::read(uri, pause).value();
        ASSERT_EQ(hosts.count(), count);
        std::vector<plain_host> model(count);
        nanoseconds at = 1h;
        std::size_t turn = 0;
        const auto is_out = [&](std::size_t i) { return at - model[i].failed_at < pause; };
        for (int step = 0; step < 300; ++step) {
            at += std::chrono::seconds{random() % 3};
            const std::size_t host = random() % count;
            const nanoseconds made = at - std::chrono::seconds{random() % 4};
            switch (random() % 6) {
                case 0:
                    hosts.failed(host, at);
                    model[host].failed_at = at;
                    break;
                case 1:
                    hosts.lost(host, made, at);
                    if (model[host].answered <= made) model[host].failed_at = at;
                    break;
                case 2:
                    hosts.answered(host, at);
                    model[host] = {-1h, at};
                    break;
                default:
                    std::vector<std::size_t> expected;
                    for (const bool out : {false, true})
                        for (std::size_t i = 0; i < count; ++i)
                            if (is_out((turn + i) % count) == out) expected.push_back((turn + i) % count);
                    ++turn;
                    EXPECT_EQ(hosts.next_order(at), expected) << "step " << step;
            }
            std::size_t out = 0;
            for (std::size_t i = 0; i < count; ++i) out += is_out(i) ? 1U : 0U;
            EXPECT_EQ(hosts.count_out(at), out) << "step " << step;
        }
    }
}

TEST(pool_hosts, are_left_out_for_good_by_a_pause_that_never_ends) {
    for (const nanoseconds pause : {never, never - 1h, never - 1h - 1ns}) {
        pool_hosts hosts = pool_hosts::read("tcp://a:1,b:2", pause).value();
        hosts.failed(0, 1h);
        EXPECT_EQ(hosts.count_out(never - 2ns), 1U);
        hosts.answered(0, 2h);
        EXPECT_EQ(hosts.count_out(2h), 0U);
    }
}

TEST(pool_hosts, uri_has_the_hosts_in_order_and_no_reconnect) {
    const auto named = [](const char* uri, const std::vector<std::size_t>& order) {
        auto hosts = pool_hosts::read(uri, 1s);
        return hosts ? hosts->uri(order) : hosts.error().message;
    };
    EXPECT_EQ(named("tcp://a:1,[::1]:22,c:3", {2, 0, 1}), "tcp://c:3,a:1,[::1]:22?reconnect=false");
    EXPECT_EQ(named("zmq://a:1,b:2?slots=4&reconnect=true", {1}), "zmq://b:2?slots=4&reconnect=true&reconnect=false");
    EXPECT_EQ(named("shm://name", {0}), "shm://name?reconnect=false");
    EXPECT_FALSE(pool_hosts::read("tcp://a:1,:2", 1s));
    EXPECT_FALSE(pool_hosts::read("tcp://*:1", 1s));
}

}  // namespace
}  // namespace accel::core
