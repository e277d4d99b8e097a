// SPDX-License-Identifier: Apache-2.0
#include "fault/injector.hpp"

#include <algorithm>

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

/// Which of ten sends and ten writes, by turns, a rule hits: of node 0, from queue pair 1 to 2, and back.
TEST(fault_injector, a_rule_hits_what_it_names_as_often_as_it_says) {
    const auto hits = [](const char* rule) {
        fault_injector injector;
        injector.add(parse(rule)[0]);
        std::string seen;
        for (int round = 0; round < 10; ++round) {
            for (const packet_kind kind : {packet_kind::send, packet_kind::write}) {
                const std::uint32_t from = round % 2 == 0 ? 1 : 2;
                const bool hit = injector.decide({0, from, 3 - from, kind}, drops) != nullptr;
                seen += !hit ? '-' : kind == packet_kind::send ? 's' : 'w';
            }
        }
        EXPECT_EQ(injector.fired(), seen.size() - static_cast<std::size_t>(std::count(seen.begin(), seen.end(), '-')));
        return seen;
    };
    EXPECT_EQ(hits("drop"), "swswswswswswswswswsw");
    EXPECT_EQ(hits("drop p=0"), "--------------------");
    EXPECT_EQ(hits("delay"), "--------------------") << "another action";
    EXPECT_EQ(hits("drop nth=3 op=send"), "----s---------------");
    EXPECT_EQ(hits("drop count=3 op=write"), "-w-w-w--------------");
    EXPECT_EQ(hits("drop node=0 count=1"), "s-------------------");
    EXPECT_EQ(hits("drop node=1"), "--------------------");
    EXPECT_EQ(hits("drop qpn=2 count=4"), "swsw----------------") << "either end";
    EXPECT_EQ(hits("drop qpn=3"), "--------------------");
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

}  // namespace
}  // namespace accel::softnic
