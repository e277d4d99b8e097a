// SPDX-License-Identifier: Apache-2.0
#include "core/client/range_lists.hpp"

#include "core/region_state.hpp"

#include <accel_transport/channel.hpp>

#include <new>

namespace accel::core {
namespace {

[[nodiscard]] bool lies_in_its_region(const slice& range) noexcept {
    const region_state& region = *range.region();
    const auto begin = reinterpret_cast<std::uintptr_t>(region.data());
    const auto at = reinterpret_cast<std::uintptr_t>(range.data());
    if (at < begin || at - begin > region.size()) return false;
    return range.size() <= region.size() - (at - begin);
}

/// Neighbours in memory become one range: each range costs the transport some work.
void append(std::vector<lent_range>& list, const slice& range) noexcept {
    if (!list.empty()) {
        lent_range& last = list.back();
        if (last.data + last.size == range.data() && last.region == range.region()) {
            last.size += range.size();
            return;
        }
    }
    list.push_back({range.data(), range.size(), range.region()});  // within reserved capacity
}

}  // namespace

bool range_lists::make_room(std::vector<lent_range>& list, std::size_t count) noexcept {
    list.clear();
    if (list.capacity() >= count) return true;
    try {
        list.reserve(count);
    } catch (const std::bad_alloc&) {
        return false;
    }
    ++allocations_;
    return true;
}

status range_lists::keep(std::uint32_t slot, std::span<const slice> ranges, std::size_t most) noexcept {
    std::vector<lent_range>& list = lists_[slot].memory;
    lists_[slot].kept = {};
    if (ranges.size() > max_ranges) return status::invalid_argument;
    if (!make_room(list, ranges.size())) return status::out_of_memory;
    range_list out;
    const region_state* known = nullptr;
    for (const slice& each : ranges) {
        if (each.empty()) continue;
        const region_state* const region = each.region();
        if (region == nullptr) return status::invalid_argument;
        if (region != known) {
            if (region->inherited()) return status::invalid_state;
            out.on_device = out.on_device || region->device() != nullptr;
            known = region;
        }
        if (!lies_in_its_region(each)) return status::invalid_argument;
        if (each.size() > most - out.bytes) return status::message_too_large;
        out.bytes += each.size();
        append(list, each);
    }
    out.ranges = list;
    lists_[slot].kept = out;
    return status::ok;
}

}  // namespace accel::core
