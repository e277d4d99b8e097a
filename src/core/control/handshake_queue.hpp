// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <iterator>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>

namespace accel::core {

/// Connections, by number, that wait for their handshakes. Addresses take turns, so that one with many keeps no other
/// waiting. Of one address the newest is first: under a flood each newcomer has a chance, whereas the oldest would have
/// given up before it is served.
class handshake_queue {
  public:
    /// True: nobody waits. Once the last has been removed it stays false until `next` has been asked.
    [[nodiscard]] bool empty() const noexcept { return turns_.empty(); }

    void add(const std::string& address, std::uint64_t id) {
        const auto [place, is_new] = waiting_.try_emplace(address);
        place->second.insert(id);
        if (is_new) turns_.push_back(address);
    }

    void remove(const std::string& address, std::uint64_t id) {
        const auto found = waiting_.find(address);
        if (found != waiting_.end()) found->second.erase(id);  // its turn finds nobody
    }

    [[nodiscard]] bool holds(const std::string& address, std::uint64_t id) const {
        const auto found = waiting_.find(address);
        return found != waiting_.end() && found->second.contains(id);
    }

    /// Takes out the next one of an address that `may(address)` agrees to; each is asked once at most.
    template <typename May>
    [[nodiscard]] std::optional<std::uint64_t> next(const May& may) {
        for (std::size_t left = turns_.size(); left > 0; --left) {
            std::string address = std::move(turns_.front());
            turns_.pop_front();
            const auto found = waiting_.find(address);
            if (found->second.empty()) {
                waiting_.erase(found);
                continue;
            }
            const bool goes_on = may(address);
            turns_.push_back(std::move(address));
            if (!goes_on) continue;
            const auto newest = std::prev(found->second.end());
            const std::uint64_t id = *newest;
            found->second.erase(newest);
            return id;
        }
        return std::nullopt;
    }

  private:
    std::unordered_map<std::string, std::set<std::uint64_t>> waiting_;
    std::deque<std::string> turns_;  ///< each address of `waiting_`, once
};

}  // namespace accel::core
