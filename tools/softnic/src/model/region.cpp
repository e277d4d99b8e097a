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

memory_region* region_table::find(std::uint32_t key) const {
    const std::uint32_t index = key >> 8;
    if (index >= regions_.size()) return nullptr;
    memory_region* region = regions_[index].get();
    return region != nullptr && region->key == key ? region : nullptr;
}

region_table::result region_table::check(std::uint32_t key, std::uint32_t pd, std::uint64_t address,
                                         std::uint64_t size_bytes, std::uint32_t needed) const {
    constexpr std::uint32_t remote = access::remote_read | access::remote_write | access::remote_atomic;
    memory_region* region = find(key);
    if (region == nullptr || (region->invalidated && (needed & remote) != 0)) return {access_check::bad_key, nullptr};
    if (region->pd != pd) return {access_check::wrong_domain, nullptr};
    if ((region->access & needed) != needed) return {access_check::denied, nullptr};
    // In front of the region the offset wraps, and is larger than any length: a registration's end does not
    // wrap.
    const std::uint64_t offset = address - region->iova;
    if (offset > region->length || size_bytes > region->length - offset) return {access_check::out_of_bounds, nullptr};
    return {access_check::ok, region};
}

}  // namespace accel::softnic
