// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/server.hpp>
#include <accel_transport/target.hpp>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace accel::core {

/// The handlers of a worker that requests name, by the numbers of their targets. Never changes.
class target_table {
  public:
    target_table() = default;
    explicit target_table(const std::vector<named_handler>& from) {
        for (const named_handler& each : from) entries_.push_back({target_of(each.name).number, each.service});
        std::ranges::sort(entries_, {}, &entry::number);
    }
    /// Null: there is none.
    [[nodiscard]] const handler* find(std::uint32_t number) const noexcept {
        const auto found = std::ranges::lower_bound(entries_, number, {}, &entry::number);
        return found != entries_.end() && found->number == number ? &found->service : nullptr;
    }

  private:
    struct entry {
        std::uint32_t number;
        handler service;
    };
    std::vector<entry> entries_;
};

}  // namespace accel::core
