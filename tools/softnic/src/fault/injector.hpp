// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "fault/rule.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace accel::softnic {

/// What is about to happen, for the rules to look at.
struct fault_subject {
    int node = 0;
    std::uint32_t qpn = 0;       ///< either end of a packet matches a rule's qpn
    std::uint32_t peer_qpn = 0;  ///< 0 when there is no packet
    packet_kind kind = packet_kind::send;
};

/// Decides, for each thing that happens, which rule fires. Same rules, same seed, same events: same
/// decisions.
class fault_injector {
  public:
    void add(const fault_rule& rule);
    void clear() { armed_.clear(); }
    [[nodiscard]] bool empty() const { return armed_.empty(); }

    /// The first rule among those with one of `actions` that fires now, or null. Every such rule counts the
    /// match.
    [[nodiscard]] const fault_rule* decide(const fault_subject& subject, std::span<const fault_action> actions);
    [[nodiscard]] std::uint64_t fired() const { return fired_; }

  private:
    struct armed_rule {
        fault_rule rule;
        std::uint64_t random = 0;
        std::uint64_t matches = 0;
        std::uint64_t fired = 0;
    };

    static bool fires(armed_rule& armed);

    std::vector<armed_rule> armed_;
    std::uint64_t fired_ = 0;
};

}  // namespace accel::softnic
