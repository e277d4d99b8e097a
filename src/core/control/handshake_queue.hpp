// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/control/round_robin.hpp"

#include <cstdint>
#include <iterator>
#include <optional>
#include <set>
#include <string>

namespace accel::core {

/// Connections, by number, that wait for their handshakes. Addresses take turns. Of one address the newest is first:
/// under a flood each newcomer has a chance, whereas the oldest would have given up before it is served.
class handshake_queue {
  public:
    /// True: nobody waits. Once the last has been removed it stays false until `next` has been asked.
    [[nodiscard]] bool empty() const noexcept { return waiting_.empty(); }

    void add(const std::string& address, std::uint64_t id) { waiting_.of(address).insert(id); }

    void remove(const std::string& address, std::uint64_t id) {
        if (auto* line = waiting_.find(address)) line->erase(id);
    }

    [[nodiscard]] bool holds(const std::string& address, std::uint64_t id) const {
        const auto* line = waiting_.find(address);
        return line != nullptr && line->contains(id);
    }

    /// Takes out the next one of an address that `may(address)` agrees to; each is asked once at most.
    template <typename May>
    [[nodiscard]] std::optional<std::uint64_t> next(const May& may) {
        auto* line = waiting_.next(may);
        if (line == nullptr) return std::nullopt;
        return line->extract(std::prev(line->end())).value();
    }

  private:
    round_robin<std::set<std::uint64_t>> waiting_;
};

}  // namespace accel::core
