// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>

namespace accel::core {

/// Connections, by number, whose peers have not said who they are, and which of them goes when room is needed: the
/// oldest one of the address that has the most. An address with few counts as one without any, so that a flood from
/// many addresses drops its own oldest, and not a client that opens some at once. An address whose peers were let in
/// before may have more.
class half_open_table {
  public:
    static constexpr std::size_t few = 8;
    static constexpr std::size_t few_of_known = 64;
    /// More are not remembered, if none of their peers is connected.
    static constexpr std::size_t max_known = 4096;

    [[nodiscard]] std::size_t size() const noexcept { return size_; }

    /// Nothing has changed where it throws std::bad_alloc.
    void add(const std::string& address, std::uint64_t id) {
        const auto [at, is_new] = places_.try_emplace(address);
        place& of = at->second;
        try {
            of.ids.insert(id);
            if (is_new) order_.insert({rank_of(address, of), &of});
        } catch (...) {
            of.ids.erase(id);
            if (is_new) places_.erase(at);
            throw;
        }
        ++size_;
        if (!is_new) rank_anew(address, of);
    }
    /// `id` is there.
    void remove(const std::string& address, std::uint64_t id) noexcept {
        const auto at = places_.find(address);
        place& of = at->second;
        of.ids.erase(id);
        --size_;
        if (!of.ids.empty()) return rank_anew(address, of);
        order_.erase({of.placed, &of});
        places_.erase(at);
    }

    /// A peer at this address was let in. As often as that, `left` follows.
    void let_in(const std::string& address) {
        if (known_.size() >= max_known && !known_.contains(address)) forget_gone();
        ++known_[address];
        rank_anew(address);
    }
    void left(const std::string& address) noexcept { --known_.find(address)->second; }
    [[nodiscard]] bool knows(const std::string& address) const { return known_.contains(address); }

    /// The one to go first; none if there are none.
    [[nodiscard]] std::optional<std::uint64_t> first_to_go() const noexcept {
        if (order_.empty()) return std::nullopt;
        return *order_.begin()->second->ids.begin();
    }

  private:
    /// Less for those that go sooner: how many too many there are, and the oldest one.
    using rank = std::pair<std::int64_t, std::uint64_t>;
    struct place {
        std::set<std::uint64_t> ids;  ///< oldest first
        rank placed;                  ///< as in `order_`
    };

    /// Notes it as well.
    rank rank_of(const std::string& address, place& of) const noexcept {
        const bool known = known_.contains(address);
        const std::size_t allowed = known ? few_of_known : few;
        const std::size_t beyond = of.ids.size() > allowed ? of.ids.size() - allowed : 0;
        of.placed = {beyond > 0 || !known ? -static_cast<std::int64_t>(beyond) : 1, *of.ids.begin()};
        return of.placed;
    }
    void rank_anew(const std::string& address, place& of) noexcept {
        auto node = order_.extract({of.placed, &of});
        node.value().first = rank_of(address, of);
        order_.insert(std::move(node));
    }
    void rank_anew(const std::string& address) noexcept {
        if (const auto at = places_.find(address); at != places_.end()) rank_anew(address, at->second);
    }
    void forget_gone() noexcept {
        for (auto each = known_.begin(); each != known_.end();) {
            const auto gone = each++;
            if (gone->second == 0) rank_anew(known_.extract(gone).key());
        }
    }

    std::size_t size_ = 0;
    std::unordered_map<std::string, place> places_;
    std::unordered_map<std::string, std::size_t> known_;  ///< how many peers are connected
    std::set<std::pair<rank, place*>> order_;
};

}  // namespace accel::core
