// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>

#include <boost/intrusive/set.hpp>

namespace accel::examples::serving::doors {

/// A connection as `deadline_order` has it: its base.
struct deadline_entry : boost::intrusive::set_base_hook<boost::intrusive::link_mode<boost::intrusive::auto_unlink>> {
    std::chrono::steady_clock::time_point look_at{};  ///< while it is linked
    friend bool operator<(const deadline_entry& one, const deadline_entry& other) noexcept {
        return one.look_at < other.look_at;
    }
};

/// When the door looks at which of its connections, each of which is a `Connection` and a `deadline_entry`. A deadline
/// that moves to a later time costs nothing: the earlier look finds the new one.
template <typename Connection>
class deadline_order {
  public:
    using time_point = std::chrono::steady_clock::time_point;

    /// It is looked at by then; max: it needs no look.
    void look_by(deadline_entry& one, time_point at) {
        if (at == time_point::max() || (one.is_linked() && one.look_at <= at)) return;
        one.unlink();
        one.look_at = at;
        all_.insert(one);
    }
    /// The next one that was to be looked at by `now`, which leaves the order; null: there is none.
    [[nodiscard]] Connection* take_due(time_point now) {
        if (all_.empty() || all_.begin()->look_at > now) return nullptr;
        deadline_entry& first = *all_.begin();
        first.unlink();
        return &static_cast<Connection&>(first);
    }

  private:
    boost::intrusive::multiset<deadline_entry, boost::intrusive::constant_time_size<false>> all_;
};

}  // namespace accel::examples::serving::doors
