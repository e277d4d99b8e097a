// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/client/pool_hosts.hpp"
#include "core/client/shared_state.hpp"
#include "core/fork_guard.hpp"

#include <accel_transport/channel_pool.hpp>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace accel::core {

/// A channel of a pool, and how many threads have it.
struct pool_seat {
    [[nodiscard]] std::shared_ptr<shared_state> channel() noexcept {
        const std::lock_guard lock(mutex);
        return held;
    }
    /// Returns the one before.
    [[nodiscard]] std::shared_ptr<shared_state> exchange(std::shared_ptr<shared_state> other) noexcept {
        const std::lock_guard lock(mutex);
        held.swap(other);
        return other;
    }

    std::mutex connecting;               ///< of the thread that connects for all; before the pool's
    std::size_t host = 0;                ///< its place in `pool_hosts`; under `connecting`, as the next
    nanoseconds made{};                  ///< when its channel was
    std::mutex mutex;                    ///< last, and for a few instructions
    std::shared_ptr<shared_state> held;  ///< null: not connected yet, or closed
    std::uint32_t threads = 1;           ///< under the pool's lock, as the next
    bool displaced = false;              ///< made while a host was left out: not for another thread
};

/// The state behind a pool. It lives as long as the pool, and as any thread that has a seat.
class pool_state : public std::enable_shared_from_this<pool_state> {
  public:
    pool_state(std::shared_ptr<context_state> context, pool_hosts hosts, const channel_options& options,
               nanoseconds close_timeout, const pool_options& limits);

    /// True in a child of the process that made it.
    [[nodiscard]] bool inherited() const noexcept { return stamp_.inherited(); }
    [[nodiscard]] result<shared_response> call(std::span<const std::byte> request, const submit_options& options);
    [[nodiscard]] result<shared_call> submit(std::span<const std::byte> request, const submit_options& options);
    [[nodiscard]] result<target> resolve(std::string_view name);
    [[nodiscard]] status leave() noexcept;
    [[nodiscard]] status close(nanoseconds timeout) noexcept;
    [[nodiscard]] nanoseconds close_timeout() const noexcept { return close_timeout_; }
    [[nodiscard]] pool_statistics statistics();

    /// A thread has ended or left.
    void give_back(const std::shared_ptr<pool_seat>& seat) noexcept;
    [[nodiscard]] bool closing() const noexcept { return closing_.load(); }

  private:
    struct connected {
        std::size_t host;
        std::shared_ptr<shared_state> made;
        bool displaced;
    };
    [[nodiscard]] result<std::shared_ptr<shared_state>> channel_here();
    [[nodiscard]] std::shared_ptr<pool_seat> first_call();
    [[nodiscard]] std::shared_ptr<pool_seat> choose_seat();
    [[nodiscard]] result<std::shared_ptr<shared_state>> renew(pool_seat& seat);
    [[nodiscard]] result<connected> connect();

    process_stamp stamp_;
    std::shared_ptr<context_state> context_;
    const channel_options options_;  ///< the URI's not among them
    const nanoseconds close_timeout_;
    const pool_options limits_;
    std::atomic<bool> closing_{false};
    std::mutex mutex_;
    pool_hosts hosts_;
    std::vector<std::shared_ptr<pool_seat>> seats_;
    pool_statistics counted_;
};

}  // namespace accel::core
