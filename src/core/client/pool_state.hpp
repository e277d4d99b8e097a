// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/client/channel_core.hpp"
#include "core/client/pool_hosts.hpp"
#include "core/fork_guard.hpp"

#include <accel_transport/channel_pool.hpp>

#include <atomic>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace accel::core {

/// A channel of a pool, and the thread that has it.
struct pool_seat {
    pool_seat(pool_state& of, std::size_t at, channel one) noexcept : owner(of), host(at), held(std::move(one)) {}

    pool_state& owner;
    std::size_t host;                    ///< its place in `pool_hosts`
    nanoseconds made = now();            ///< when its channel was
    std::optional<channel> held;         ///< nothing: the pool has closed it
    std::atomic<std::uint32_t> uses{0};  ///< `pooled_channel`s; written by its thread alone
    bool taken = true;                   ///< by a thread; under the pool's lock
    bool displaced = false;              ///< made while a host was left out: not for another thread
    bool retired = false;                ///< lost; its thread still has calls there, and has another seat
};

/// The state behind a pool. It lives as long as the pool, and as any thread that has a seat.
///
/// Two may touch a channel: its thread while `uses` is above 0, and whoever holds the lock while it is 0 and the pool
/// is closing or no thread has it. `enter` counts before it looks at `closing_`, and `close` sets that before it looks
/// at the count (both sequentially consistent), so one of them notices the other.
class pool_state : public std::enable_shared_from_this<pool_state> {
  public:
    pool_state(std::shared_ptr<context_state> context, pool_hosts hosts, const channel_options& options,
               nanoseconds close_timeout, const pool_options& limits);

    /// True in a child of the process that made it.
    [[nodiscard]] bool inherited() const noexcept { return stamp_.inherited(); }
    [[nodiscard]] result<pooled_channel> take();
    [[nodiscard]] result<pooled_response> call(std::span<const std::byte> request, const submit_options& options);
    [[nodiscard]] status leave() noexcept;
    [[nodiscard]] status close(nanoseconds timeout) noexcept;
    [[nodiscard]] nanoseconds close_timeout() const noexcept { return close_timeout_; }
    [[nodiscard]] pool_statistics statistics();

    /// Ends one use of a seat, by its thread.
    void exit(pool_seat& seat) noexcept;
    /// The thread has ended or left.
    void give_back(pool_seat& seat) noexcept;
    [[nodiscard]] bool closing() const noexcept { return closing_.load(); }

  private:
    struct connected {
        std::size_t host;
        channel made;
        bool displaced;
    };
    [[nodiscard]] bool enter(pool_seat& seat) noexcept;
    [[nodiscard]] result<pool_seat*> first_call();
    [[nodiscard]] pool_seat* idle_seat() noexcept;
    [[nodiscard]] result<connected> connect();
    [[nodiscard]] result<void> renew(pool_seat& seat);
    [[nodiscard]] result<pooled_channel> take_current();
    [[nodiscard]] result<pooled_channel> take_for_call();
    [[nodiscard]] pool_seat* retired_seat();
    void retire(pool_seat& seat);
    void drop(pool_seat& seat) noexcept;
    [[nodiscard]] bool close_unused() noexcept;

    process_stamp stamp_;
    std::shared_ptr<context_state> context_;
    const channel_options options_;  ///< the URI's not among them
    const nanoseconds close_timeout_;
    const pool_options limits_;
    std::atomic<bool> closing_{false};
    std::mutex mutex_;
    pool_hosts hosts_;
    std::list<pool_seat> seats_;
    std::uint32_t reserved_ = 0;  ///< seats that are being connected
    std::uint32_t retired_ = 0;   ///< seats that do not count for `max_channels`
    pool_statistics counted_;
};

}  // namespace accel::core
