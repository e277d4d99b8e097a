// SPDX-License-Identifier: Apache-2.0
#include "engine/uar.hpp"

#include <algorithm>

namespace accel::softnic {

std::uint64_t uar_page::take(std::uint32_t offset) {
    auto* where = reinterpret_cast<std::uint64_t*>(page_.data() + offset);
    if (__atomic_load_n(where, __ATOMIC_RELAXED) == 0) return 0;
    return __atomic_exchange_n(where, 0, __ATOMIC_ACQ_REL);
}

bool uar_page::rang() const {
    const auto peek = [this](std::uint32_t offset) {
        return __atomic_load_n(reinterpret_cast<const std::uint64_t*>(page_.data() + offset), __ATOMIC_RELAXED);
    };
    std::uint64_t any = peek(arm_offset);
    for (const std::uint32_t offset : send_offsets) any |= peek(offset);
    return any != 0;
}

void uar_page::remove(const queue_pair& qp) {
    const auto found = std::find(users_.begin(), users_.end(), &qp);
    if (found == users_.end()) return;
    if (static_cast<std::size_t>(found - users_.begin()) < next_) --next_;
    users_.erase(found);
    left_ = std::min(left_, users_.size());
}

std::span<queue_pair* const> uar_page::next_users() {
    if (left_ == 0) return {};
    if (next_ >= users_.size()) next_ = 0;
    const std::size_t count = std::min({left_, users_at_once, users_.size() - next_});
    const auto some = std::span<queue_pair* const>(users_).subspan(next_, count);
    next_ += count;
    left_ -= count;
    return some;
}

}  // namespace accel::softnic
