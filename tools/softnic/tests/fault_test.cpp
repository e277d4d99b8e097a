// SPDX-License-Identifier: Apache-2.0
#include "fault/injector.hpp"

#include <gtest/gtest.h>

namespace accel::softnic {
namespace {

std::vector<fault_rule> parse(std::string_view text) {
    std::string problem;
    const auto rules = parse_fault_rules(text, problem);
    EXPECT_TRUE(rules) << problem;
    return rules.value_or(std::vector<fault_rule>{});
}

TEST(fault_rules, rules_are_parsed) {
    const auto rules = parse("drop p=0.25 seed=9 op=write node=2; nak:rnr nth=3 qpn=0x101 ; error:0x13 count=2;");
    ASSERT_EQ(rules.size(), 3u);
    EXPECT_EQ(rules[0].action, fault_action::drop);
    EXPECT_EQ(rules[0].probability, 0.25);
    EXPECT_EQ(rules[0].seed, 9u);
    EXPECT_EQ(rules[0].kind, packet_kind::write);
    EXPECT_EQ(rules[0].node, 2);
    EXPECT_EQ(rules[1].nak, nak_code::receiver_not_ready);
    EXPECT_EQ(rules[1].nth, 3u);
    EXPECT_EQ(rules[1].qpn, 0x101u);
    EXPECT_EQ(rules[2].syndrome, 0x13);
    EXPECT_EQ(rules[2].count, 2u);
}

TEST(fault_rules, invalid_rules_are_refused_with_a_sentence) {
    for (const char* text :
         {"explode", "drop p=2", "drop p=", "drop p=x", "drop op=teleport", "nak", "nak:maybe", "error", "error:0",
          "drop nth=0", "drop every=3", "drop qpn=0xzz", "drop p", "drop:hard"}) {
        std::string problem;
        EXPECT_FALSE(parse_fault_rules(text, problem)) << text;
        EXPECT_FALSE(problem.empty()) << text;
    }
    std::string problem;
    EXPECT_TRUE(parse_fault_rules("", problem));
    EXPECT_TRUE(parse_fault_rules(" ; ;", problem));
}

constexpr fault_action drops[]{fault_action::drop};

TEST(fault_injector, nth_fires_once) {
    fault_injector injector;
    injector.add(parse("drop nth=3 op=send")[0]);
    std::vector<int> fired;
    for (int round = 1; round <= 10; ++round) {
        EXPECT_EQ(injector.decide({0, 1, 2, packet_kind::write}, drops), nullptr);
        if (injector.decide({0, 1, 2, packet_kind::send}, drops) != nullptr) fired.push_back(round);
    }
    EXPECT_EQ(fired, std::vector<int>{3});
    EXPECT_EQ(injector.fired(), 1u);
}

TEST(fault_injector, probability_is_about_right_and_repeatable) {
    const auto run = [] {
        fault_injector injector;
        injector.add(parse("drop p=0.1 seed=5")[0]);
        std::vector<int> fired;
        for (int round = 0; round < 10000; ++round)
            if (injector.decide({0, 1, 2, packet_kind::send}, drops) != nullptr) fired.push_back(round);
        return fired;
    };
    const auto first = run();
    EXPECT_NEAR(static_cast<double>(first.size()), 1000.0, 120.0);
    EXPECT_EQ(first, run());
}

TEST(fault_injector, matches_either_end_and_honours_count) {
    fault_injector injector;
    injector.add(parse("drop qpn=2 count=2")[0]);
    EXPECT_EQ(injector.decide({0, 1, 3, packet_kind::send}, drops), nullptr);
    EXPECT_NE(injector.decide({0, 1, 2, packet_kind::send}, drops), nullptr);
    EXPECT_NE(injector.decide({0, 2, 1, packet_kind::send}, drops), nullptr);
    EXPECT_EQ(injector.decide({0, 2, 1, packet_kind::send}, drops), nullptr);
}

}  // namespace
}  // namespace accel::softnic
