// SPDX-License-Identifier: Apache-2.0
#include "core/server/session_table.hpp"

#include "core/log.hpp"

#include <algorithm>
#include <utility>

namespace accel::core {

/// All sessions may be closing at once, and one more that is turned away.
void session_table::make_room() {
    const std::size_t all = served_.size() + closing_.size() + 1;
    if (served_.capacity() < all) served_.reserve(2 * all);
    if (closing_.capacity() < all + 1) closing_.reserve(2 * all);
}

void session_table::turn_away(std::unique_ptr<session> made) noexcept {
    if (closing_.size() < closing_.capacity()) return add(std::move(made));
    log().error("no memory is left to close session {}, which stays open", made->id());
    (void)made.release();
}

void session_table::add(std::unique_ptr<session> made) noexcept {
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

/// Asks all of them: some count from when they were asked first.
bool session_table::flushed() const noexcept {
    return std::ranges::count_if(served_, [](const auto& each) { return !each->connection().flushed(); }) == 0;
}

bool session_table::only_held() const noexcept {
    return std::ranges::all_of(closing_, [](const auto& each) { return each->open() > 0 && each->close(); });
}

void session_table::leak() noexcept {
    for (auto* list : {&served_, &closing_})
        for (auto& each : *list) (void)each.release();
}

}  // namespace accel::core
