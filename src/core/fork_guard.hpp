// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/status.hpp>

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

/// The consequences of fork() for the library. A child has copies of its parent's objects, but neither its threads nor,
/// as they are shared, its sessions: it uses none of them, and ends none of them (docs/threads.md).
namespace accel::core {

/// How many forks lie between this process and the one that loaded the library. Written in a child of fork(),
/// before it has a second thread.
inline constinit std::atomic<std::uint32_t> fork_generation{0};

/// Which process made an object.
class process_stamp {
  public:
    /// True in a child of the process that made it.
    [[nodiscard]] bool inherited() const noexcept {
        return made_in_ != fork_generation.load(std::memory_order_relaxed);
    }

    [[nodiscard]] std::uint32_t generation() const noexcept { return made_in_; }

  private:
    std::uint32_t made_in_ = fork_generation.load(std::memory_order_relaxed);
};

/// The status of every use of an inherited object.
[[nodiscard]] error made_before_fork();

/// Never destroys it.
void keep_for_ever(std::shared_ptr<void> owned) noexcept;

/// Before an owner (a unique_ptr or shared_ptr) goes: what it inherited is left as it is, because its end
/// would reach the parent's sockets, devices and threads.
template <class Owner>
void leave_to_parent(Owner& owner) {
    if (owner != nullptr && owner->inherited()) keep_for_ever(std::move(owner));
}

/// One T for each process, made on its first use. A child leaves its parent's alone: a thread that the child
/// does not have may hold its lock. For constinit variables; thread-safe.
template <class T>
class per_process {
  public:
    [[nodiscard]] T& get() {
        entry* seen = made_.load(std::memory_order_acquire);
        if (seen != nullptr && !seen->stamp.inherited()) return seen->value;
        auto made = std::make_unique<entry>();
        made->parents = seen;
        if (made_.compare_exchange_strong(seen, made.get(), std::memory_order_acq_rel)) seen = made.release();
        return seen->value;
    }

  private:
    struct entry {
        process_stamp stamp;
        T value;
        entry* parents = nullptr;  ///< so that it is not taken for a leak
    };
    std::atomic<entry*> made_{nullptr};
};

}  // namespace accel::core
