// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>

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

    void add(const std::string& address, std::uint64_t id) {
        change(address, [&](place& at) { at.ids.insert(id); });
        ++size_;
    }
    /// `id` is there.
    void remove(const std::string& address, std::uint64_t id) {
        change(address, [&](place& at) { at.ids.erase(id); });
        --size_;
    }

    /// A peer at this address was let in. As often as that, `left` follows.
    void let_in(const std::string& address) {
        if (known_.size() >= max_known && !known_.contains(address)) forget_gone();
        change(address, [&](place&) { ++known_[address]; });
    }
    void left(const std::string& address) { --known_.find(address)->second; }
    [[nodiscard]] bool knows(const std::string& address) const { return known_.contains(address); }

    /// The one to go first; none if there are none.
    [[nodiscard]] std::optional<std::uint64_t> first_to_go() const {
        if (order_.empty()) return std::nullopt;
        return std::get<1>(*order_.begin());
    }

  private:
    struct place {
        std::set<std::uint64_t> ids;  ///< oldest first
    };
    /// Fewer for those that go sooner; the oldest id; its address.
    using rank = std::tuple<std::int64_t, std::uint64_t, std::string>;

    [[nodiscard]] rank rank_of(const std::string& address, const place& of) const {
        const bool known = known_.contains(address);
        const std::size_t allowed = known ? few_of_known : few;
        const std::size_t beyond = of.ids.size() > allowed ? of.ids.size() - allowed : 0;
        return {beyond > 0 || !known ? -static_cast<std::int64_t>(beyond) : 1, *of.ids.begin(), address};
    }
    template <typename Change>
    void change(const std::string& address, Change make) {
        place& of = places_[address];
        if (!of.ids.empty()) order_.erase(rank_of(address, of));
        make(of);
        if (of.ids.empty())
            places_.erase(address);
        else
            order_.insert(rank_of(address, of));
    }
    void forget_gone() {
        std::set<std::string> gone;
        for (const auto& [address, connected] : known_)
            if (connected == 0) gone.insert(address);
        for (const std::string& each : gone) change(each, [&](place&) { known_.erase(each); });
    }

    std::size_t size_ = 0;
    std::unordered_map<std::string, place> places_;
    std::unordered_map<std::string, std::size_t> known_;  ///< how many peers are connected
    std::set<rank> order_;
};

}  // namespace accel::core
