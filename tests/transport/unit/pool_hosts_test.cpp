// SPDX-License-Identifier: Apache-2.0
#include "core/client/pool_hosts.hpp"

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace accel::core {
namespace {

using namespace std::chrono_literals;

using order_of_hosts = std::vector<std::shared_ptr<pool_host>>;

[[nodiscard]] std::string text_of(const order_of_hosts& hosts) {
    std::string out;
    for (const auto& each : hosts) out += (out.empty() ? "" : " ") + each->at.text().substr(6);
    return out;
}
/// Hosts as a name server gives them.
[[nodiscard]] std::vector<uri> found(const std::string& text) {
    return parse_client_uris("tcp://" + text).value();
}

struct plain_host {
    std::string name;
    nanoseconds failed_at = -1h;  ///< long ago: never
    nanoseconds out_until{};
    nanoseconds answered{};
    unsigned failures = 0;  ///< none of which lies long before the next
    std::size_t seats = 0;

    void fail(nanoseconds at, nanoseconds pause) {
        if (at - failed_at > 64 * pause) failures = 0;
        if (out_until <= at) ++failures;
        failed_at = at;
        out_until = at + pause * (1 << std::min(failures - 1, 5U));
    }
};

TEST(pool_hosts, go_by_their_channels_and_by_turn_and_are_left_out_for_longer_with_each_failure) {
    constexpr nanoseconds pause = 2s;
    for (std::uint32_t seed = 1; seed <= 100; ++seed) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        std::minstd_rand random(seed);
        const std::size_t count = 1 + random() % 5;
        std::string text = "tcp://h0:1";
        for (std::size_t i = 1; i < count; ++i) text += ",h" + std::to_string(i) + ":1";
        pool_hosts hosts = pool_hosts::read(text, pause).value();
        ASSERT_EQ(hosts.count(), count);
        const order_of_hosts all = hosts.next_order({});
        std::vector<plain_host> model(count);
        for (std::size_t i = 0; i < count; ++i) model[i].name = "h" + std::to_string(i) + ":1";
        nanoseconds at = 1h;
        std::size_t turn = 1;
        for (int step = 0; step < 300; ++step) {
            at += std::chrono::seconds{random() % 40 == 0 ? 200 : random() % 3};
            const std::size_t host = random() % count;
            const nanoseconds made = at - std::chrono::seconds{random() % 4};
            switch (random() % 8) {
                case 0:
                    hosts.failed(*all[host], at);
                    model[host].fail(at, pause);
                    break;
                case 1:
                    hosts.lost(*all[host], made, at);
                    if (model[host].answered <= made) model[host].fail(at, pause);
                    break;
                case 2:
                    pool_hosts::answered(*all[host], at);
                    model[host].answered = at;
                    model[host].out_until = {};
                    break;
                case 3:
                    all[host]->seats = model[host].seats = random() % 3;
                    break;
                default:
                    std::vector<const plain_host*> expected;
                    for (const bool out : {false, true})
                        for (std::size_t seats = 0; seats < 3; ++seats)
                            for (std::size_t i = 0; i < count; ++i) {
                                const plain_host& each = model[(turn + i) % count];
                                if ((each.out_until > at) == out && each.seats == seats) expected.push_back(&each);
                            }
                    ++turn;
                    std::string names;
                    for (const plain_host* each : expected) names += (names.empty() ? "" : " ") + each->name;
                    EXPECT_EQ(text_of(hosts.next_order(at)), names) << "step " << step;
            }
            std::size_t out = 0;
            for (const plain_host& each : model) out += each.out_until > at ? 1U : 0U;
            EXPECT_EQ(hosts.count_out(at), out) << "step " << step;
        }
    }
}

TEST(pool_hosts, are_left_out_for_good_by_a_pause_that_never_ends) {
    for (const nanoseconds pause : {never, never - 1h, never - 1h - 1ns}) {
        pool_hosts hosts = pool_hosts::read("tcp://a:1,b:2", pause).value();
        pool_host& first = *hosts.next_order({}).front();
        for (int i = 0; i < 40; ++i) hosts.failed(first, 1h);
        EXPECT_EQ(hosts.count_out(never - 2ns), 1U);
        pool_hosts::answered(first, 2h);
        EXPECT_EQ(hosts.count_out(2h), 0U);
    }
}

TEST(pool_hosts, ejects_half_of_the_hosts_at_most) {
    for (std::size_t count = 1; count <= 7; ++count) {
        std::string text = "h0:1";
        for (std::size_t i = 1; i < count; ++i) text += ",h" + std::to_string(i) + ":1";
        pool_hosts hosts = pool_hosts::read("tcp://" + text, 10s).value();
        std::size_t ejected = 0;
        for (const auto& each : hosts.next_order(1h)) ejected += hosts.eject(*each, 1h) ? 1U : 0U;
        EXPECT_EQ(ejected, count / 2) << count << " hosts";
        EXPECT_EQ(hosts.next_return(1h), count > 1 ? nanoseconds{1h} + 10s : never);
        EXPECT_EQ(hosts.next_return(1h + 10s), never) << "they are back";
    }
    pool_hosts two = pool_hosts::read("tcp://a:1,b:1", 10s).value();
    const order_of_hosts both = two.next_order(1h);
    two.failed(*both[0], 1h);
    EXPECT_FALSE(two.eject(*both[1], 1h)) << "the other is out";
    EXPECT_FALSE(two.eject(*both[0], 1h)) << "it is out";
    EXPECT_TRUE(two.list(found("b:1,c:1")));
    EXPECT_FALSE(two.eject(*both[0], 2h)) << "it is not listed";
}

TEST(pool_hosts, of_a_name_come_and_go_and_those_that_stay_keep_what_is_known_of_them) {
    pool_hosts hosts = pool_hosts::read("dns+tcp://name:1", 10s).value();
    EXPECT_TRUE(hosts.by_name());
    EXPECT_EQ(hosts.count(), 0U);
    EXPECT_TRUE(hosts.next_order(1h).empty());
    EXPECT_TRUE(hosts.list(found("a:1,b:1,a:1")));
    EXPECT_EQ(hosts.count(), 2U) << "each once";
    const order_of_hosts before = hosts.next_order(1h);
    hosts.failed(*before[1], 1h);
    EXPECT_FALSE(hosts.list(found("b:1,a:1"))) << "the order is the name server's affair";
    EXPECT_TRUE(hosts.list(found("b:1,c:1")));
    EXPECT_FALSE(before[0]->listed);
    EXPECT_TRUE(before[1]->listed);
    EXPECT_EQ(text_of(hosts.next_order(1h)), "c:1 b:1") << "b is out";
    EXPECT_TRUE(hosts.list(found("b:1"))) << "one has gone";
}

TEST(pool_hosts, take_a_channel_of_another_if_it_must_leave_or_they_have_fewer) {
    pool_hosts hosts = pool_hosts::read("tcp://a:1,b:1,c:1,d:1", 10s).value();
    const order_of_hosts all = hosts.next_order({});
    const auto better = [&](std::size_t a, std::size_t b, std::size_t c, bool must) {
        all[0]->seats = a;
        all[1]->seats = b;
        all[2]->seats = c;
        order_of_hosts out = hosts.next_order(1h);
        pool_hosts::keep_better(out, *all[0], must, 1h);
        return text_of(out);
    };
    hosts.failed(*all[3], 1h);
    EXPECT_EQ(better(2, 0, 1, false), "b:1");
    EXPECT_EQ(better(2, 1, 1, false), "") << "that would exchange the two";
    EXPECT_EQ(better(1, 0, 0, false), "");
    EXPECT_EQ(better(3, 4, 1, false), "c:1");
    EXPECT_EQ(better(1, 4, 3, true), "c:1 b:1") << "the next one if the first does not answer";
    for (const auto& each : all) hosts.failed(*each, 1h);
    EXPECT_EQ(better(3, 0, 0, false), "") << "all are left out";
    EXPECT_EQ(better(3, 0, 0, true), "");
}

TEST(pool_hosts, of_a_name_that_is_not_resolved_stay) {
    pool_hosts hosts = pool_hosts::read("dns+tcp://one:1,two:1", 10s).value();
    const std::vector<uri> named = hosts.named();
    const auto at = [](const uri& name, const std::string& address) {
        uri out = name;
        out.dns = false;
        out.name = std::exchange(out.host, address);
        return out;
    };
    EXPECT_FALSE(hosts.list(named));
    EXPECT_TRUE(hosts.list({at(named[0], "a"), at(named[0], "b"), named[1]}));
    EXPECT_EQ(hosts.count(), 2U);
    EXPECT_TRUE(hosts.list({named[0], at(named[1], "a")})) << "the same address by another name is another server";
    EXPECT_EQ(hosts.count(), 3U);
    EXPECT_FALSE(hosts.list(named));
    EXPECT_TRUE(hosts.list({at(named[0], "c"), named[1]}));
    EXPECT_EQ(text_of(hosts.next_order(1h)), "c:1 a:1");

    const auto known = hosts.next_order(1h).front();
    EXPECT_EQ(hosts.at(known->at), known);
    EXPECT_FALSE(hosts.at(at(named[1], "c"))->listed);
}

TEST(pool_hosts, leave_reconnecting_to_the_pool) {
    const auto options = [](const char* text) { return pool_hosts::read(text, 1s).value().named().back().options; };
    EXPECT_TRUE(options("tcp://a:1?reconnect=true").empty());
    EXPECT_EQ(options("zmq://a:1,b:2?slots=4&reconnect=true").size(), 1U);
    EXPECT_FALSE(pool_hosts::read("tcp://a:1,:2", 1s));
    EXPECT_FALSE(pool_hosts::read("tcp://*:1", 1s));
}

}  // namespace
}  // namespace accel::core
