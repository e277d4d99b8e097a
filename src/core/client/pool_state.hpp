// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/client/pool_hosts.hpp"
#include "core/client/shared_state.hpp"
#include "core/fork_guard.hpp"

#include <accel_transport/channel_pool.hpp>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string_view>
#include <thread>
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

    std::mutex connecting;                  ///< of the thread that connects for all; before the pool's
    std::mutex mutex;                       ///< last, and for a few instructions
    std::shared_ptr<shared_state> held;     ///< null: not connected yet, or closed
    std::atomic<std::uint32_t> failing{0};  ///< calls in a row that ended by the server's fault
    std::uint32_t threads = 1;              ///< under the pool's lock, as the next
    host_use host;                          ///< of its channel; null: it has none
    nanoseconds made{};                     ///< when its channel was
    bool displaced = false;                 ///< made while a host was left out: not for another thread
};

/// The state behind a pool. It lives as long as the pool, and as any thread that has a seat.
///
/// If the servers have a name, or one of several fails calls, the pool has a thread, the keeper. It resolves the name
/// and moves channels: it connects first, and then puts the new channel into the seat. So no call waits for it.
class pool_state : public std::enable_shared_from_this<pool_state> {
  public:
    /// `effective`: with the URI's options.
    pool_state(std::shared_ptr<context_state> context, pool_hosts hosts, const channel_options& options,
               const channel_options& effective, const pool_options& limits);

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
        host_use host;
        std::shared_ptr<shared_state> made;
        bool displaced;
    };
    struct host_order {
        std::vector<std::shared_ptr<pool_host>> hosts;
        host_use first;          ///< of these
        bool displaced = false;  ///< a host is left out
    };
    struct place {
        std::shared_ptr<pool_seat> seat;
        std::shared_ptr<shared_state> channel;
    };
    struct move_from {
        place is;
        std::shared_ptr<pool_host> host;
        bool must = false;  ///< the host has gone or is ejected
    };
    [[nodiscard]] result<place> channel_here();
    [[nodiscard]] std::shared_ptr<pool_seat> first_call();
    [[nodiscard]] std::shared_ptr<pool_seat> choose_seat();
    [[nodiscard]] result<std::shared_ptr<shared_state>> renew(pool_seat& seat);
    [[nodiscard]] std::shared_ptr<shared_state> put(pool_seat& seat, connected made);
    void remember(const std::shared_ptr<shared_state>& moved);
    [[nodiscard]] std::shared_ptr<shared_state> empty(pool_seat& seat) noexcept;
    [[nodiscard]] result<connected> connect();
    [[nodiscard]] host_order choose_order(const move_from* from = nullptr);
    [[nodiscard]] bool finds_others(const std::vector<std::shared_ptr<pool_host>>& than, nanoseconds deadline);
    [[nodiscard]] result<connected> try_hosts(host_order with, const std::stop_token& stopped);
    void heard(const place& from, status ended);
    void eject(const place& from);

    // The keeper, and what it does.
    void start_keeper() noexcept;
    void keep(const std::stop_token& stopped);
    void keep_once(const std::stop_token& stopped);
    void resolve_hosts(nanoseconds deadline);
    [[nodiscard]] nanoseconds next_lookup() const noexcept;
    template <class Action>
    void for_each_channel(Action act) noexcept;
    [[nodiscard]] std::vector<move_from> seats_to_move();
    void move(const move_from& from, const std::stop_token& stopped);

    process_stamp stamp_;
    std::shared_ptr<context_state> context_;
    const channel_options options_;  ///< the URI's not among them
    const nanoseconds close_timeout_;
    const nanoseconds connect_timeout_;
    const nanoseconds connect_retry_;
    const pool_options limits_;
    std::atomic<bool> closing_{false};
    std::mutex mutex_;
    pool_hosts hosts_;
    std::vector<std::shared_ptr<pool_seat>> seats_;
    std::vector<std::weak_ptr<shared_state>> moved_;  ///< channels that others have replaced, and that may have calls
    pool_statistics counted_;
    nanoseconds resolved_at_{};        ///< when the last lookup began; 0: none has
    nanoseconds listed_at_{};          ///< when the last lookup began that has resolved all names
    nanoseconds failed_at_{};          ///< when a server, or a lookup, failed last: the next lookup is soon
    bool moves_ = false;               ///< channels may have to move
    std::condition_variable changed_;  ///< for the keeper
    std::thread keeper_;
    std::stop_source stop_;
};

}  // namespace accel::core
