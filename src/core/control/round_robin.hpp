// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <deque>
#include <string>
#include <unordered_map>
#include <utility>

namespace accel::core {

/// Lines of what waits, one for each name. Names take turns, so that one with much keeps no other waiting. `Line` is a
/// container. What is taken out of a line, from wherever, may leave it empty: its next turn forgets it.
template <typename Line>
class round_robin {
  public:
    /// False: a line waits for its turn, although it may be empty by now.
    [[nodiscard]] bool empty() const noexcept { return turns_.empty(); }

    /// The line of `name`, whose first turn comes after everybody's. Valid until that line is forgotten.
    [[nodiscard]] Line& of(const std::string& name) {
        const auto [place, is_new] = lines_.try_emplace(name);
        if (is_new) turns_.push_back(name);
        return place->second;
    }

    /// Null: there is none.
    [[nodiscard]] Line* find(const std::string& name) {
        const auto found = lines_.find(name);
        return found == lines_.end() ? nullptr : &found->second;
    }
    [[nodiscard]] const Line* find(const std::string& name) const {
        const auto found = lines_.find(name);
        return found == lines_.end() ? nullptr : &found->second;
    }

    /// The line whose turn it is, which is not empty; null without one. Names that `may(name)` refuses are passed over.
    /// Each is asked once at most.
    template <typename May>
    [[nodiscard]] Line* next(const May& may) {
        for (std::size_t left = turns_.size(); left > 0; --left) {
            std::string name = std::move(turns_.front());
            turns_.pop_front();
            const auto found = lines_.find(name);
            if (found->second.empty()) {
                lines_.erase(found);
                continue;
            }
            const bool agreed = may(name);
            turns_.push_back(std::move(name));
            if (agreed) return &found->second;
        }
        return nullptr;
    }

  private:
    std::unordered_map<std::string, Line> lines_;
    std::deque<std::string> turns_;  ///< each name of `lines_`, once
};

}  // namespace accel::core
