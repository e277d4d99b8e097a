// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <iterator>
#include <list>
#include <string>
#include <unordered_map>

namespace accel::core {

/// Lines of what waits, one for each name. Names take turns, so that one with much keeps no other waiting. `Line` is a
/// container. What is taken out of a line, from wherever, may leave it empty: its next turn forgets it.
template <typename Line>
class round_robin {
  public:
    round_robin() = default;
    round_robin(const round_robin&) = delete;
    round_robin& operator=(const round_robin&) = delete;

    /// False: a line waits for its turn, although it may be empty by now.
    [[nodiscard]] bool empty() const noexcept { return turns_.empty(); }
    void clear() noexcept {
        lines_.clear();
        turns_.clear();
    }

    /// The line of `name`, whose first turn comes after everybody's. Valid until that line is forgotten.
    [[nodiscard]] Line& of(const std::string& name) {
        if (const auto found = lines_.find(name); found != lines_.end()) return found->second->line;
        turns_.push_back({name, {}});
        try {
            lines_.emplace(name, std::prev(turns_.end()));
        } catch (...) {
            turns_.pop_back();
            throw;
        }
        return turns_.back().line;
    }

    /// Null: there is none.
    [[nodiscard]] Line* find(const std::string& name) {
        const auto found = lines_.find(name);
        return found == lines_.end() ? nullptr : &found->second->line;
    }
    [[nodiscard]] const Line* find(const std::string& name) const {
        const auto found = lines_.find(name);
        return found == lines_.end() ? nullptr : &found->second->line;
    }

    /// The line whose turn it is, which is not empty; null without one. Names that `may(name)` refuses are passed over.
    /// Each is asked once at most. Allocates nothing.
    template <typename May>
    [[nodiscard]] Line* next(const May& may) {
        for (std::size_t left = turns_.size(); left > 0; --left) {
            const auto first = turns_.begin();
            if (first->line.empty()) {
                lines_.erase(first->name);
                turns_.pop_front();
                continue;
            }
            const bool agreed = may(first->name);
            turns_.splice(turns_.end(), turns_, first);
            if (agreed) return &first->line;
        }
        return nullptr;
    }

  private:
    struct named_line {
        std::string name;
        Line line;
    };
    std::list<named_line> turns_;  ///< whose turn is next, first
    std::unordered_map<std::string, typename std::list<named_line>::iterator> lines_;
};

}  // namespace accel::core
