// SPDX-License-Identifier: Apache-2.0
#include "core/server/session_table.hpp"

#include <algorithm>
#include <utility>

namespace accel::core {

void session_table::add(std::unique_ptr<session> made) {
    slots_ += made->geometry().slots;
    // It may have been lost before.
    (made->gone() ? closing_ : served_).push_back(std::move(made));
}

session* session_table::find(std::uint64_t id) const noexcept {
    const auto found = std::ranges::find(served_, id, &session::id);
    return found == served_.end() ? nullptr : found->get();
}

void session_table::retire(const session& lost) noexcept {
    const auto found = std::ranges::find(served_, &lost, &std::unique_ptr<session>::get);
    if (found == served_.end()) return;
    closing_.push_back(std::move(*found));
    served_.erase(found);
}

void session_table::settle(session_observer* observer) noexcept {
    std::erase_if(closing_, [&](const std::unique_ptr<session>& each) {
        if (!each->close() || each->open() > 0) return false;
        if (observer != nullptr) observer->session_freed(*each);
        slots_ -= each->geometry().slots;
        return true;
    });
}

bool session_table::flushed() const noexcept {
    return std::ranges::all_of(served_, [](const auto& each) { return each->connection().flushed(); });
}

bool session_table::only_held() const noexcept {
    return std::ranges::all_of(closing_, [](const auto& each) { return each->open() > 0 && each->close(); });
}

void session_table::leak() noexcept {
    for (auto* list : {&served_, &closing_})
        for (auto& each : *list) (void)each.release();
}

}  // namespace accel::core
