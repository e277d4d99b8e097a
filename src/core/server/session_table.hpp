// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/server/session.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace accel::core {

/// Told by a worker what happened to its sessions. Control path; called on the worker's thread.
class session_observer {
  public:
    virtual ~session_observer() = default;
    /// The session takes no more requests; its client, if it lives, has to be told.
    virtual void session_lost(const session& which, status why) noexcept = 0;
    /// Nothing uses the session any more; its memory is about to be freed.
    virtual void session_freed(const session& which) noexcept = 0;
};

/// The sessions of one worker: those that are served, and those that are lost but still touched by the
/// transport or a handler. Belongs to the worker's thread.
class session_table {
  public:
    session_table() { closing_.reserve(1); }
    /// For one more session. Throws std::bad_alloc.
    void make_room();
    /// There is room for it.
    void add(std::unique_ptr<session> made) noexcept;
    /// Closes a session for which no room could be made.
    void turn_away(std::unique_ptr<session> made) noexcept;
    /// Null: no served session has this id.
    [[nodiscard]] session* find(std::uint64_t id) const noexcept;
    /// Null: none is served.
    [[nodiscard]] session* last() const noexcept { return served_.empty() ? nullptr : served_.back().get(); }
    /// Marks a session as lost. Does nothing if it has not been added yet.
    void retire(const session& lost) noexcept;
    [[nodiscard]] bool any_closing() const noexcept { return !closing_.empty(); }
    /// Frees the lost sessions that nothing touches any more: not the transport, and no handler.
    void settle(session_observer* observer) noexcept;
    /// True: all answers have left.
    [[nodiscard]] bool flushed() const noexcept;
    /// True: only handlers still touch the lost sessions.
    [[nodiscard]] bool only_held() const noexcept;
    /// Slots of all sessions, the lost ones too.
    [[nodiscard]] std::size_t slots() const noexcept { return slots_; }
    /// Leaks their memory, because a device may still write there.
    void leak() noexcept;

  private:
    std::vector<std::unique_ptr<session>> served_;
    std::vector<std::unique_ptr<session>> closing_;
    std::size_t slots_ = 0;
};

}  // namespace accel::core
