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

[[nodiscard]] std::string text_of(const host_list& hosts) {
    std::string out;
    for (const auto& each : hosts) out += (out.empty() ? "" : " ") + each->at.text().substr(6);
    return out;
}
/// Hosts as a name server gives them.
[[nodiscard]] std::vector<uri> found(const std::string& text) {
    return parse_client_uris("tcp://" + text).value();
}

constexpr nanoseconds pause = 2s;

struct plain_host {
    nanoseconds failed_at = -1h;  ///< long ago: never
    nanoseconds due{};
    nanoseconds answered{};
    unsigned failures = 0;  ///< none of which lies long before the next
    bool out = false;
    bool limited = false;

    void put_off(bool has_channels, nanoseconds until) {
        limited = true;
        out = out || !has_channels;
        due = until;
    }
    void fail(bool has_channels, nanoseconds at) {
        if (at - failed_at > 64 * pause) failures = 0;
        if (!(out || limited) || due <= at) ++failures;
        failed_at = at;
        put_off(has_channels, at + pause * (1 << std::min(failures - 1, 5U)));
    }
    void lose(bool has_channels, nanoseconds at) {
        if (out || (limited && has_channels)) return;
        if (at - answered < pause)
            fail(has_channels, at);
        else
            put_off(has_channels, at);
    }
    void answer(bool wanted, nanoseconds at) {
        answered = due = at;
        out = false;
        limited = wanted;
    }
};

TEST(pool_hosts, are_put_off_for_longer_with_each_failure_and_then_tried_again) {
    for (std::uint32_t seed = 1; seed <= 100; ++seed) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        std::minstd_rand random(seed);
        const std::size_t count = 1 + random() % 5;
        std::string text = "tcp://h0:1";
        for (std::size_t i = 1; i < count; ++i) text += ",h" + std::to_string(i) + ":1";
        pool_hosts hosts = pool_hosts::read(text, pause).value();
        ASSERT_EQ(hosts.count(), count);
        const host_list all = hosts.all();
        std::vector<plain_host> model(count);
        nanoseconds at = 1h;
        for (int step = 0; step < 300; ++step) {
            SCOPED_TRACE("step " + std::to_string(step));
            at += std::chrono::seconds{random() % 40 == 0 ? 200 : random() % 3};
            const std::size_t host = random() % count;
            const bool some = random() % 2 == 0;
            switch (random() % 4) {
                case 0:
                    hosts.failed(*all[host], some, at);
                    model[host].fail(some, at);
                    break;
                case 1:
                    hosts.lost(*all[host], some, at);
                    model[host].lose(some, at);
                    break;
                case 2:
                    hosts.answered(*all[host], some, at);
                    model[host].answer(some, at);
                    break;
                default:
                    host_list expected;
                    nanoseconds next = never;
                    const plain_host* due = nullptr;
                    for (const bool out : {false, true})
                        for (std::size_t i = host; i < host + count; ++i)
                            if (model[i % count].out == out) expected.push_back(all[i % count]);
                    for (const plain_host& each : model) {
                        if (!each.out && !each.limited) continue;
                        next = std::min(next, each.due);
                        if (each.due > at) continue;
                        const bool earlier = due == nullptr || each.failures < due->failures ||
                                             (each.failures == due->failures && each.due < due->due);
                        if (earlier) due = &each;
                    }
                    EXPECT_EQ(text_of(hosts.order_from(all[host])), text_of(expected));
                    EXPECT_EQ(hosts.due(at), due == nullptr ? nullptr : all[static_cast<std::size_t>(due - &model[0])]);
                    EXPECT_EQ(hosts.next_due(), next);
            }
            const auto out = std::ranges::count_if(model, &plain_host::out);
            EXPECT_EQ(hosts.count_out(), static_cast<std::size_t>(out));
            EXPECT_EQ(all[host]->put_off(), model[host].out || model[host].limited);
        }
    }
}

TEST(pool_hosts, are_not_put_off_without_a_pause) {
    pool_hosts hosts = pool_hosts::read("tcp://a:1,b:2", 0s).value();
    pool_host& first = *hosts.all().front();
    hosts.failed(first, false, 1h);
    hosts.lost(first, false, 1h);
    EXPECT_FALSE(hosts.eject(first, 1h));
    hosts.answered(first, true, 1h);
    EXPECT_FALSE(first.put_off());
    EXPECT_EQ(hosts.count_out(), 0U);
    EXPECT_TRUE(hosts.list(found("a:1,c:1"), 1h));
    const auto added = hosts.due(1h);
    ASSERT_NE(added, nullptr) << "it has not answered yet";
    hosts.failed(*added, false, 1h);
    EXPECT_EQ(hosts.next_due(), never) << "from now on calls try it";
}

TEST(pool_hosts, are_left_out_for_good_by_a_pause_that_never_ends) {
    for (const nanoseconds long_pause : {never, never - 1h, never - 1h - 1ns}) {
        pool_hosts hosts = pool_hosts::read("tcp://a:1,b:2", long_pause).value();
        pool_host& first = *hosts.all().front();
        for (int i = 0; i < 40; ++i) hosts.failed(first, false, 1h);
        EXPECT_EQ(hosts.due(never - 2ns), nullptr);
        hosts.answered(first, false, 2h);
        EXPECT_EQ(hosts.count_out(), 0U);
    }
}

TEST(pool_hosts, ejects_half_of_the_hosts_at_most) {
    for (std::size_t count = 1; count <= 7; ++count) {
        std::string text = "h0:1";
        for (std::size_t i = 1; i < count; ++i) text += ",h" + std::to_string(i) + ":1";
        pool_hosts hosts = pool_hosts::read("tcp://" + text, 10s).value();
        std::size_t ejected = 0;
        for (const auto& each : hosts.all()) ejected += hosts.eject(*each, 1h) ? 1U : 0U;
        EXPECT_EQ(ejected, count / 2) << count << " hosts";
        EXPECT_EQ(hosts.next_due(), count > 1 ? nanoseconds{1h} + 10s : never);
    }
    pool_hosts two = pool_hosts::read("tcp://a:1,b:1", 10s).value();
    const host_list both = two.all();
    two.failed(*both[0], false, 1h);
    EXPECT_FALSE(two.eject(*both[1], 1h)) << "the other is out";
    EXPECT_FALSE(two.eject(*both[0], 1h)) << "it is out";
    two.answered(*both[0], false, 1h);
    EXPECT_TRUE(two.list(found("b:1,c:1"), 2h));
    EXPECT_TRUE(two.publish());
    EXPECT_FALSE(two.eject(*both[0], 2h)) << "it is not used";
    EXPECT_EQ(two.count_out(), 1U);
}

TEST(pool_hosts, of_a_name_come_and_go_and_those_that_stay_keep_what_is_known_of_them) {
    pool_hosts hosts = pool_hosts::read("dns+tcp://name:1", 10s).value();
    EXPECT_TRUE(hosts.by_name());
    EXPECT_EQ(hosts.count(), 0U);
    EXPECT_TRUE(hosts.order_from(nullptr).empty());
    EXPECT_TRUE(hosts.list(found("a:1,b:1,a:1"), 1h));
    EXPECT_EQ(text_of(hosts.all()), "a:1 b:1") << "each once";
    EXPECT_EQ(hosts.count(), 0U);
    EXPECT_TRUE(hosts.publish()) << "there was none before: they are tried by calls";
    EXPECT_EQ(hosts.count(), 2U);
    EXPECT_EQ(hosts.count_out(), 0U);
    EXPECT_FALSE(hosts.publish());
    const host_list before = hosts.all();
    hosts.failed(*before[1], false, 1h);
    EXPECT_FALSE(hosts.list(found("b:1,a:1"), 1h)) << "the order is the name server's affair";
    EXPECT_TRUE(hosts.list(found("b:1,c:1"), 1h));
    EXPECT_FALSE(before[0]->listed);
    EXPECT_TRUE(before[1]->listed);
    EXPECT_EQ(text_of(hosts.all()), "b:1 c:1 a:1") << "a is used";
    EXPECT_FALSE(hosts.publish()) << "c has not answered yet, b has failed";
    EXPECT_EQ(hosts.count(), 2U);
    EXPECT_EQ(hosts.count_listed(), 2U);
    EXPECT_EQ(text_of({hosts.due(1h)}), "c:1");
    EXPECT_EQ(text_of(hosts.order_from(before[0])), "a:1 b:1 c:1");
    hosts.failed(*before[0], false, 1h);
    EXPECT_EQ(text_of(hosts.order_from(before[0])), "b:1 c:1 a:1");
    hosts.answered(*before[1], false, 1h);
    EXPECT_TRUE(hosts.publish());
    EXPECT_EQ(text_of(hosts.all()), "b:1 c:1");
    EXPECT_EQ(hosts.count(), 2U);
    EXPECT_TRUE(hosts.list(found("b:1"), 1h)) << "one has gone";
    EXPECT_TRUE(hosts.list(found("b:1,c:1"), 1h)) << "and is back";
    EXPECT_EQ(text_of(hosts.all()), "b:1 c:1");
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
    EXPECT_FALSE(hosts.list(named, 1h));
    EXPECT_TRUE(hosts.list({at(named[0], "a"), at(named[0], "b"), named[1]}, 1h));
    EXPECT_EQ(hosts.count_listed(), 2U);
    EXPECT_TRUE(hosts.list({named[0], at(named[1], "a")}, 1h)) << "the same address by another name is another server";
    EXPECT_EQ(hosts.count_listed(), 3U);
    EXPECT_FALSE(hosts.list(named, 1h));
    EXPECT_TRUE(hosts.publish());
    EXPECT_TRUE(hosts.list({at(named[0], "c"), named[1]}, 1h));
    EXPECT_FALSE(hosts.list(named, 1h)) << "those that it has lost do not come back";
    EXPECT_EQ(hosts.count_listed(), 2U);
    hosts.answered(*hosts.all().front(), false, 1h);
    EXPECT_TRUE(hosts.publish());
    EXPECT_EQ(text_of(hosts.all()), "c:1 a:1");

    const auto known = hosts.all().front();
    EXPECT_EQ(hosts.at(known->at), known);
    const auto added = hosts.at(at(named[1], "c"));
    EXPECT_EQ(hosts.all().back(), added) << "one that no lookup has found yet";
}

TEST(pool_hosts, have_the_same_number_however_they_became_known) {
    pool_hosts hosts = pool_hosts::read("dns+auto://name:1", 1s).value();
    uri chosen = found("a:1").front();
    const auto by_connect = hosts.at(chosen);
    EXPECT_EQ(by_connect->at.scheme, "auto") << "another scheme may be chosen the next time";
    chosen.scheme = "auto";
    EXPECT_EQ(by_connect->number, pool_host{chosen}.number);
    EXPECT_NE(by_connect->number, pool_host{found("a:2").front()}.number);
    EXPECT_NE(by_connect->number, pool_host{found("b:1").front()}.number);
}

TEST(pool_hosts, leave_reconnecting_to_the_pool) {
    const auto options = [](const char* text) { return pool_hosts::read(text, 1s).value().named().back().options; };
    EXPECT_TRUE(options("tcp://a:1?reconnect=true").empty());
    EXPECT_EQ(options("zmq://a:1,b:2?slots=4&reconnect=true").size(), 1U);
    EXPECT_FALSE(pool_hosts::read("tcp://a:1,:2", 1s));
    EXPECT_FALSE(pool_hosts::read("tcp://*:1", 1s));
}

TEST(pool_hosts, take_the_balance_from_the_uri) {
    const auto balance = [](const char* text) {
        const pool_hosts hosts = pool_hosts::read(text, 1s).value();
        EXPECT_TRUE(hosts.named().back().options.empty()) << "channels do not see it";
        return hosts.balance(pool_balance::sticky);
    };
    EXPECT_EQ(balance("tcp://a:1,b:1"), pool_balance::sticky);
    EXPECT_EQ(balance("tcp://a:1,b:1?balance=round-robin"), pool_balance::round_robin);
    EXPECT_EQ(balance("tcp://a:1,b:1?balance=least-loaded"), pool_balance::least_loaded);
    EXPECT_EQ(pool_hosts::read("tcp://a:1?balance=sticky", 1s)->balance({}), pool_balance::sticky);
    EXPECT_EQ(pool_hosts::read("tcp://a:1?balance=fastest", 1s).code(), status::invalid_argument);
}

}  // namespace
}  // namespace accel::core
