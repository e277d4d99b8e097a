// SPDX-License-Identifier: Apache-2.0
#include "fault/injector.hpp"

#include <algorithm>

namespace accel::softnic {
namespace {

/// splitmix64: any seed is a good seed, 0 included.
std::uint64_t next_random(std::uint64_t& state) {
    std::uint64_t z = (state += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}

bool matches(const fault_rule& rule, const fault_subject& subject) {
    if (rule.node && *rule.node != subject.node) return false;
    if (rule.qpn && *rule.qpn != subject.qpn && *rule.qpn != subject.peer_qpn) return false;
    return !rule.kind || *rule.kind == subject.kind;
}

}  // namespace

void fault_injector::add(const fault_rule& rule) {
    armed_.push_back({rule, rule.seed, 0, 0});
}

bool fault_injector::fires(armed_rule& armed) {
    ++armed.matches;
    const double dice = static_cast<double>(next_random(armed.random) >> 11) * 0x1p-53;
    if (armed.rule.nth != 0 && armed.matches != armed.rule.nth) return false;
    return armed.fired < armed.rule.count && dice < armed.rule.probability;
}

const fault_rule* fault_injector::decide(const fault_subject& subject, std::span<const fault_action> actions) {
    const fault_rule* chosen = nullptr;
    for (auto& armed : armed_) {
        if (std::find(actions.begin(), actions.end(), armed.rule.action) == actions.end()) continue;
        if (!matches(armed.rule, subject) || !fires(armed) || chosen != nullptr) continue;
        ++armed.fired;
        ++fired_;
        chosen = &armed.rule;
    }
    return chosen;
}

}  // namespace accel::softnic
