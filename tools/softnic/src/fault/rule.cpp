// SPDX-License-Identifier: Apache-2.0
#include "fault/rule.hpp"

#include <array>
#include <charconv>
#include <cstdlib>
#include <utility>

#include <fmt/format.h>

namespace accel::softnic {
namespace {

using namespace std::string_view_literals;

constexpr std::array actions{
    std::pair{"drop"sv, fault_action::drop},
    std::pair{"duplicate"sv, fault_action::duplicate},
    std::pair{"delay"sv, fault_action::delay},
    std::pair{"reorder"sv, fault_action::reorder},
    std::pair{"nak"sv, fault_action::nak},
    std::pair{"local_protection"sv, fault_action::local_protection},
    std::pair{"error"sv, fault_action::error},
    std::pair{"qp_error"sv, fault_action::qp_error},
    std::pair{"cq_overrun"sv, fault_action::cq_overrun},
    std::pair{"port_down"sv, fault_action::port_down},
};

constexpr std::array naks{
    std::pair{"rnr"sv, nak_code::receiver_not_ready},     std::pair{"sequence"sv, nak_code::sequence},
    std::pair{"access"sv, nak_code::remote_access},       std::pair{"invalid"sv, nak_code::invalid_request},
    std::pair{"operation"sv, nak_code::remote_operation},
};

constexpr std::array kinds{
    packet_kind::send,           packet_kind::write,           packet_kind::read_request,
    packet_kind::atomic_request, packet_kind::acknowledge,     packet_kind::negative_acknowledge,
    packet_kind::read_response,  packet_kind::atomic_response, packet_kind::datagram,
};

template <class Table>
auto find(const Table& table, std::string_view name) -> std::optional<decltype(table[0].second)> {
    for (const auto& [word, value] : table)
        if (word == name) return value;
    return std::nullopt;
}

std::optional<packet_kind> find_kind(std::string_view name) {
    for (const packet_kind kind : kinds)
        if (to_string(kind) == name) return kind;
    return std::nullopt;
}

template <class Number>
bool parse_number(std::string_view text, Number& value) {
    const bool hex = text.starts_with("0x");
    if (hex) text.remove_prefix(2);
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, hex ? 16 : 10);
    return error == std::errc{} && end == text.data() + text.size();
}

template <class Number>
bool parse_number(std::string_view text, std::optional<Number>& value) {
    return parse_number(text, value.emplace());
}

bool parse_probability(std::string_view text, double& value) {
    const std::string copy(text);
    char* end = nullptr;
    value = std::strtod(copy.c_str(), &end);
    return end == copy.c_str() + copy.size() && !copy.empty() && value >= 0.0 && value <= 1.0;
}

bool set_key(fault_rule& rule, std::string_view key, std::string_view value) {
    if (key == "node") return parse_number(value, rule.node);
    if (key == "qpn") return parse_number(value, rule.qpn);
    if (key == "op") return (rule.kind = find_kind(value)).has_value();
    if (key == "nth") return parse_number(value, rule.nth) && rule.nth > 0;
    if (key == "p") return parse_probability(value, rule.probability);
    if (key == "seed") return parse_number(value, rule.seed);
    if (key == "count") return parse_number(value, rule.count);
    if (key == "us") return parse_number(value, rule.duration_us);
    return false;
}

bool set_action(fault_rule& rule, std::string_view word) {
    const std::size_t colon = word.find(':');
    const bool has_argument = colon != std::string_view::npos;
    const auto argument = has_argument ? word.substr(colon + 1) : std::string_view{};
    const auto action = find(actions, word.substr(0, colon));
    if (!action) return false;
    rule.action = *action;
    if (rule.action == fault_action::error) return parse_number(argument, rule.syndrome) && rule.syndrome != 0;
    if (rule.action != fault_action::nak) return !has_argument;
    const auto code = find(naks, argument);
    if (code) rule.nak = *code;
    return code.has_value();
}

std::string_view next_word(std::string_view& rest, std::string_view separators) {
    const std::size_t start = std::min(rest.find_first_not_of(separators), rest.size());
    const std::size_t end = std::min(rest.find_first_of(separators, start), rest.size());
    const auto word = rest.substr(start, end - start);
    rest.remove_prefix(end);
    return word;
}

bool parse_rule(std::string_view text, fault_rule& rule, std::string& problem) {
    const auto first = next_word(text, " \t\n");
    if (!set_action(rule, first)) {
        problem = fmt::format("fault rule: \"{}\" is not an action", first);
        return false;
    }
    for (auto word = next_word(text, " \t\n"); !word.empty(); word = next_word(text, " \t\n")) {
        const std::size_t equals = word.find('=');
        if (equals == std::string_view::npos || !set_key(rule, word.substr(0, equals), word.substr(equals + 1))) {
            problem = fmt::format("fault rule: \"{}\" is not a known key with a valid value", word);
            return false;
        }
    }
    return true;
}

}  // namespace

std::optional<std::vector<fault_rule>> parse_fault_rules(std::string_view text, std::string& problem) {
    std::vector<fault_rule> rules;
    while (!text.empty()) {
        const auto one = next_word(text, ";");
        if (one.find_first_not_of(" \t\n") == std::string_view::npos) continue;
        if (!parse_rule(one, rules.emplace_back(), problem)) return std::nullopt;
    }
    return rules;
}

std::string_view to_string(fault_action action) {
    for (const auto& [word, value] : actions)
        if (value == action) return word;
    return "?";
}

}  // namespace accel::softnic
