// SPDX-License-Identifier: Apache-2.0
#include "engine/uar.hpp"

namespace accel::softnic {

bool uar_page::take(std::uint32_t offset) {
    auto* where = reinterpret_cast<std::uint64_t*>(page_.data() + offset);
    if (__atomic_load_n(where, __ATOMIC_RELAXED) == 0) return false;
    return __atomic_exchange_n(where, 0, __ATOMIC_ACQ_REL) != 0;
}

bool uar_page::rang() const {
    const auto peek = [this](std::uint32_t offset) {
        return __atomic_load_n(reinterpret_cast<const std::uint64_t*>(page_.data() + offset), __ATOMIC_RELAXED);
    };
    std::uint64_t any = peek(arm_offset);
    for (const std::uint32_t offset : send_offsets) any |= peek(offset);
    return any != 0;
}

bool uar_page::take_send_doorbell() {
    bool rang = false;
    for (const std::uint32_t offset : send_offsets) rang |= take(offset);
    return rang;
}

bool uar_page::take_arm_doorbell() {
    return take(arm_offset);
}

}  // namespace accel::softnic
