// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/client/pool_choice.hpp"
#include "core/client/pool_hosts.hpp"
#include "core/client/shared_state.hpp"
#include "core/fork_guard.hpp"

#include <accel_transport/channel_pool.hpp>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string_view>
#include <thread>
#include <vector>

namespace accel::core {

class pool_state;

[[nodiscard]] error pool_closed();

/// A thread's place in a pool. A row has a seat for each host; threads share rows when there are no more.
struct pool_row {
    pool_row(std::shared_ptr<pool_state> of, std::size_t its_number, std::size_t turn) noexcept
        : pool(std::move(of)), number(its_number), choice(turn) {}
    std::shared_ptr<pool_state> pool;
    std::size_t number;
    std::uint64_t version = 0;  ///< of the hosts in `choice`
    pool_choice choice;
};

/// The state behind a pool. The pool and every thread with a row share it.
///
/// A call connects only to hosts that have not failed since they last answered. To all others the pool's thread does,
/// the keeper, which begins when it is needed: it also resolves names, and connects to their new hosts. Meanwhile a
/// thread without a channel there shares that of another, or goes to another host. If there is neither, its call tries
/// all hosts. So a host is left out for all threads only if no channel there takes calls, or if it was ejected.
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
    void give_back(std::size_t row) noexcept;
    [[nodiscard]] bool closing() const noexcept { return closing_.load(); }

  private:
    using channel_ptr = std::shared_ptr<shared_state>;
    struct connected {
        std::shared_ptr<pool_host> host;
        channel_ptr made;
    };
    struct place {
        std::shared_ptr<pool_seat> seat;
        channel_ptr channel;  ///< null: another host is to be tried
    };
    /// Where one call has been.
    struct past_tries {
        std::uint64_t seats = 0;  ///< bits of `pool_choice`, as long as the hosts stay the same
        std::size_t last = 0;
        void failed() noexcept { seats |= pool_choice::bit(last); }
    };
    [[nodiscard]] result<place> channel_here(const submit_options& options, past_tries& past);
    [[nodiscard]] pool_row& first_call();
    [[nodiscard]] std::size_t choose_row();
    void list_hosts(pool_row& row);
    void heard(pool_host& from, status ended, nanoseconds began);

    // Seats and their channels: pool_seats.cpp.
    [[nodiscard]] result<place> renew(const std::shared_ptr<pool_seat>& seat, const past_tries& past, bool last);
    [[nodiscard]] place share(const std::shared_ptr<pool_seat>& seat);
    [[nodiscard]] bool has_channels(const pool_host& host, bool there = true) const;
    void lost(pool_seat& seat);
    void drop_lost(const std::function<bool(const pool_seat&)>& which);
    void empty(pool_seat& seat);
    [[nodiscard]] std::size_t seats_for_each_host() const noexcept;
    [[nodiscard]] std::shared_ptr<pool_seat> seat_of(const std::shared_ptr<pool_host>& host, std::size_t row);
    [[nodiscard]] place put(connected& made, std::size_t row);
    [[nodiscard]] std::shared_ptr<pool_seat> wanting(const pool_host& host) const;
    void remember(const channel_ptr& moved);
    [[nodiscard]] result<connected> connect(const std::shared_ptr<pool_host>& first);
    [[nodiscard]] host_list order_from(const std::shared_ptr<pool_host>& first);
    [[nodiscard]] bool finds_others(const host_list& than, nanoseconds deadline);
    [[nodiscard]] result<connected> try_hosts(const host_list& order, bool retries);
    template <class Action>
    void for_each_channel(Action act) noexcept;

    // The keeper, and what it does: pool_keeper.cpp.
    void wake_keeper() noexcept;
    void keep(const std::stop_token& stopped);
    void keep_once();
    void try_again(const std::shared_ptr<pool_host>& host);
    void resolve_hosts(nanoseconds deadline);
    void publish_hosts();
    [[nodiscard]] nanoseconds next_lookup() const noexcept;

    process_stamp stamp_;
    std::shared_ptr<context_state> context_;
    const channel_options options_;  ///< the URI's not among them
    const nanoseconds close_timeout_;
    const nanoseconds connect_timeout_;
    const nanoseconds connect_retry_;
    const pool_options limits_;
    const pool_balance balance_;
    std::atomic<bool> closing_{false};
    std::atomic<std::uint64_t> version_{1};  ///< of the hosts that threads use; changes under the lock
    std::mutex mutex_;
    pool_hosts hosts_;
    std::vector<std::uint32_t> rows_;  ///< the threads of each
    std::size_t turn_ = 0;             ///< threads begin with different hosts
    std::vector<std::shared_ptr<pool_seat>> seats_;
    const std::shared_ptr<pool_seat> nowhere_ = std::make_shared<pool_seat>(nullptr, 0);  ///< while no host is known
    std::vector<std::weak_ptr<shared_state>> moved_;  ///< channels that are in no seat any more, and may have calls
    pool_statistics counted_;
    nanoseconds resolved_at_{};        ///< when the last lookup began; 0: none has
    nanoseconds listed_at_{};          ///< when the last lookup began that has resolved all names
    nanoseconds failed_at_{};          ///< when a server, or a lookup, failed last: the next lookup is soon
    std::condition_variable changed_;  ///< for the keeper
    std::thread keeper_;
    std::stop_source stop_;
};

}  // namespace accel::core
