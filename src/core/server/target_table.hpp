// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/server.hpp>
#include <accel_transport/target.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace accel::core {

/// The handlers of a worker that requests name, by the numbers of their targets. Never changes.
class target_table {
  public:
    target_table() = default;
    explicit target_table(const std::vector<service_table::entry>& from) {
        for (const service_table::entry& each : from) entries_.push_back({target_of(each.name).number, each.service});
        std::ranges::sort(entries_, {}, &entry::number);
    }
    /// Null: there is none. `index`: in `numbers`, the number of targets if there is none.
    [[nodiscard]] const handler* find(std::uint32_t number, std::size_t& index) const noexcept {
        const auto found = std::ranges::lower_bound(entries_, number, {}, &entry::number);
        const bool known = found != entries_.end() && found->number == number;
        index = known ? static_cast<std::size_t>(found - entries_.begin()) : entries_.size();
        return known ? &found->service : nullptr;
    }
    [[nodiscard]] const handler* find(std::uint32_t number) const noexcept {
        std::size_t any = 0;
        return find(number, any);
    }
    /// The numbers of all targets, in their order here.
    [[nodiscard]] std::vector<std::uint32_t> numbers() const {
        std::vector<std::uint32_t> all;
        for (const entry& each : entries_) all.push_back(each.number);
        return all;
    }

  private:
    struct entry {
        std::uint32_t number;
        handler service;
    };
    std::vector<entry> entries_;
};

}  // namespace accel::core
