// SPDX-License-Identifier: Apache-2.0
#include "model/region.hpp"

namespace accel::softnic {

std::uint32_t region_table::take_index() {
    if (free_.size() > rest_before_reuse) {
        const std::uint32_t index = free_.front();
        free_.pop_front();
        return index;
    }
    if (regions_.empty()) {  // key 0 and the invalid lkey 0x100 stay unused
        regions_.resize(2);
        variants_.resize(2);
    }
    regions_.emplace_back();
    variants_.push_back(0x41);
    return static_cast<std::uint32_t>(regions_.size() - 1);
}

memory_region& region_table::add(memory_region region) {
    const std::uint32_t index = take_index();
    region.key = index << 8 | ++variants_[index];
    regions_[index] = std::make_unique<memory_region>(std::move(region));
    ++live_;
    return *regions_[index];
}

memory_region& region_table::add(memory_region region, std::uint8_t variant) {
    const std::uint32_t index = take_index();
    region.key = index << 8 | variant;
    regions_[index] = std::make_unique<memory_region>(std::move(region));
    ++live_;
    return *regions_[index];
}

bool region_table::remove(std::uint32_t key) {
    if (find(key) == nullptr) return false;
    regions_[key >> 8].reset();
    free_.push_back(key >> 8);
    --live_;
    return true;
}

memory_region* region_table::find_any_variant(std::uint32_t key) const {
    const std::uint32_t index = key >> 8;
    return index < regions_.size() ? regions_[index].get() : nullptr;
}

memory_region* region_table::find(std::uint32_t key) const {
    memory_region* region = find_any_variant(key);
    return region != nullptr && region->key == key ? region : nullptr;
}

region_table::result region_table::look_through(const memory_region& window, user by, std::uint32_t needed) const {
    if (window.target == 0 || (needed & access::remote) == 0) return {access_check::bad_key, nullptr};
    if (window.window == window_type::type_2 && window.qpn != by.qpn) return {access_check::wrong_domain, nullptr};
    memory_region* behind = find(window.target);
    return {behind != nullptr ? access_check::ok : access_check::bad_key, behind};
}

/// Both keys must allow it. The region behind may have been registered anew, elsewhere.
region_table::result region_table::follow(memory_region& alias, user by, std::uint64_t address,
                                          std::uint64_t size_bytes, std::uint32_t needed) const {
    const memory_region* behind = find(alias.target);
    if (behind == nullptr || behind->is_window() || behind->is_alias()) return {access_check::bad_key, nullptr};
    const result found = check(behind->key, by, address + alias.shift, size_bytes, needed);
    if (found.status != access_check::ok) return found;
    alias.base = behind->engine_address(alias.iova + alias.shift);
    alias.engine = behind->engine;
    return {access_check::ok, &alias};
}

region_table::result region_table::check(std::uint32_t key, user by, std::uint64_t address, std::uint64_t size_bytes,
                                         std::uint32_t needed) const {
    memory_region* region = find(key);
    if (region == nullptr || (region->invalidated && (needed & access::remote) != 0))
        return {access_check::bad_key, nullptr};
    if (region->pd != by.pd) return {access_check::wrong_domain, nullptr};
    if ((region->access & needed) != needed) return {access_check::denied, nullptr};
    // In front of the region the offset wraps, and is larger than any length: a registration's end does not
    // wrap.
    const std::uint64_t offset = address - region->iova;
    if (offset > region->length || size_bytes > region->length - offset) return {access_check::out_of_bounds, nullptr};
    if (region->is_alias()) return follow(*region, by, address, size_bytes, needed);
    return region->is_window() ? look_through(*region, by, needed) : result{access_check::ok, region};
}

}  // namespace accel::softnic
