// SPDX-License-Identifier: Apache-2.0
#include "core/client/connect_attempts.hpp"

#include <chrono>
#include <cstdint>
#include <random>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace accel::core {
namespace {

using namespace std::chrono_literals;

/// Outcomes of single tries: each may be gone the next time, or not.
const std::vector<error> passing{{status::peer_lost, 0, {}},
                                 {status::timed_out, 0, {}},
                                 {status::closed, 0, {}},
                                 {status::overloaded, 0, {}},
                                 {status::invalid_argument, -2, {}}};
const std::vector<error> lasting{{status::invalid_argument, 0, {}},
                                 {status::unauthorized, 0, {}},
                                 {status::message_too_large, 5, {}},
                                 {status::unsupported, 0, {}}};

/// What a connect to these hosts does and says while each try fails, against the rules: each host in order, and all
/// again while `connect_retry` lasts and one of the round may pass.
TEST(connect_attempts, tries_each_host_in_order_and_all_again_after_a_failure_that_may_pass) {
    for (std::uint32_t seed = 1; seed <= 300; ++seed) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        std::minstd_rand random(seed);
        const std::size_t hosts = 1 + random() % 4;
        const bool retries = random() % 4 != 0;
        const std::size_t succeeds = random() % 2 == 0 ? random() % 12 : 60;
        std::vector<std::string> names;
        std::string uri = "tcp://";
        for (std::size_t i = 0; i < hosts; ++i) {
            names.push_back("h" + std::to_string(i) + ":1");
            uri += (i == 0 ? "" : ",") + names.back();
        }
        channel_options options;
        options.connect_retry = retries ? nanoseconds{1h} : nanoseconds{0};
        options.backoff_min = options.backoff_max = 1ms;

        std::vector<error> failed;
        const auto connect = [&](const connect_attempts& at) -> result<std::size_t> {
            EXPECT_EQ(at.host().text(), "tcp://" + names[failed.size() % hosts]);
            if (failed.size() == succeeds) return failed.size();
            const std::vector<error>& some = random() % (2 * hosts) == 0 ? passing : lasting;
            failed.push_back(some[random() % some.size()]);
            failed.back().message = "try " + std::to_string(failed.size());
            return failed.back();
        };
        auto made = connect_to_any<std::size_t>(parse_client_uris(uri).value(), options, connect);
        // Full rounds, none of which follows one in which nothing could pass.
        const std::size_t rounds = failed.size() / hosts;
        for (std::size_t round = 0; round < rounds; ++round) {
            bool may_pass = false;
            for (std::size_t i = 0; i < hosts; ++i) {
                const error& each = failed[round * hosts + i];
                for (const error& one : passing) may_pass |= each.code == one.code && each.native == one.native;
            }
            EXPECT_EQ(may_pass && retries, made || round + 1 < rounds) << "round " << round;
        }
        if (made) {
            EXPECT_EQ(*made, succeeds);
            continue;
        }
        ASSERT_EQ(failed.size() % hosts, 0U);
        std::string expected = hosts > 1 ? "cannot connect to any of " + std::to_string(hosts) + " hosts" : "";
        for (std::size_t i = failed.size() - hosts; i < failed.size(); ++i)
            expected += (hosts == 1 ? "" : i == failed.size() - hosts ? ": " : "; ") + failed[i].message;
        if (rounds > 1) expected += " (tried " + std::to_string(rounds) + " times in ";
        EXPECT_EQ(made.error().message.substr(0, expected.size()), expected);
        EXPECT_EQ(made.error().message.size() > expected.size(), rounds > 1);
        EXPECT_EQ(made.code(), failed.back().code);
    }
}

TEST(connect_attempts, hosts_of_a_round_share_the_time) {
    channel_options options;
    options.connect_timeout = 1h;
    options.connect_retry = 10h;
    options.backoff_min = options.backoff_max = 1ms;
    const error refused{status::peer_lost, 0, {}};
    auto one = connect_attempts::plan(parse_client_uris("tcp://a:1").value(), options, nullptr).value();
    EXPECT_EQ(one.time(), 1h);
    auto three = connect_attempts::plan(parse_client_uris("tcp://a:1,b:1,c:1").value(), options, nullptr).value();
    for (int round = 0; round < 2; ++round) {
        for (const int left : {3, 2, 1}) {
            const nanoseconds share = nanoseconds{1h} / left;
            EXPECT_LE(three.time(), share) << left;
            EXPECT_GT(three.time(), share - 10min) << left;
            EXPECT_TRUE(three.another(refused));
        }
    }
    EXPECT_EQ(share_of(now() - 1ns, 3), 1ns) << "nothing is left";
}

TEST(connect_attempts, end_when_they_are_stopped) {
    channel_options options;
    options.connect_retry = options.backoff_min = options.backoff_max = 1h;
    const error refused{status::peer_lost, 0, {}};
    std::stop_source stop;
    auto attempts =
        connect_attempts::plan(parse_client_uris("tcp://a:1").value(), options, nullptr, stop.get_token()).value();
    std::jthread stopper([&] { stop.request_stop(); });
    EXPECT_FALSE(attempts.another(refused));
    EXPECT_EQ(attempts.failure().code, status::peer_lost);
}

TEST(connect_attempts, restores_what_the_whole_uri_says) {
    const auto restored = [](const char* uri, const char* scheme) {
        channel_options options;
        options.connect_timeout = 77s;
        auto attempts = connect_attempts::plan(parse_client_uris(uri).value(), options, nullptr).value();
        (void)attempts.another({status::peer_lost, 0, {}});
        connect_request made;
        made.peer.scheme = scheme;
        attempts.restore(made);
        EXPECT_EQ(made.options.connect_timeout, 77s);
        std::string text = std::to_string(made.first_host);
        for (const core::uri& each : made.hosts) text += " " + each.text();
        return text;
    };
    EXPECT_EQ(restored("tcp://a:1,b:2", "tcp"), "1 tcp://a:1 tcp://b:2");
    EXPECT_EQ(restored("auto://a:1,b:2", "zmq"), "1 zmq://a:1 zmq://b:2");
    EXPECT_EQ(restored("auto://a:1,b:2", "shm"), "1");
    EXPECT_EQ(restored("shm://a,b", "shm"), "1 shm://a shm://b");
}

}  // namespace
}  // namespace accel::core
