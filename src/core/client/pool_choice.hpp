// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/client/pool_hosts.hpp"
#include "core/client/shared_state.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

namespace accel::core {

/// A channel of a pool to one host, for the threads of one row.
struct pool_seat {
    pool_seat(std::shared_ptr<pool_host> to, std::size_t of_row) noexcept : host(std::move(to)), row(of_row) {}
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

    const std::shared_ptr<pool_host> host;  ///< null: none is known yet
    const std::size_t row;
    std::mutex connecting;                   ///< of the thread that connects for all; before the pool's
    std::atomic<std::uint64_t> failures{0};  ///< of connects to all hosts; written under `connecting`, as the next
    error failure;                           ///< of the last of them
    std::mutex mutex;                        ///< last, and for a few instructions
    std::shared_ptr<shared_state> held;      ///< null: not connected
    /// Under the pool's lock, as the next: the keeper is to make a channel. Until then the seat shares that of another
    /// row, or has none.
    bool wants = false;
    bool given_up = false;  ///< the pool has it no more
};

/// The seats of a thread, one for each host, and which is next. Of one thread; takes no lock and does not allocate.
class pool_choice {
  public:
    static constexpr std::size_t none = static_cast<std::size_t>(-1);

    explicit pool_choice(std::size_t turn) noexcept : turn_(turn) {}
    void list(std::vector<std::shared_ptr<pool_seat>> seats) noexcept { seats_ = std::move(seats); }
    [[nodiscard]] const std::shared_ptr<pool_seat>& seat(std::size_t i) const noexcept { return seats_[i]; }
    /// The seat for a call, or `none`. Hosts that are left out come last. `tried`: a bit for each seat that this call
    /// has tried; the seat after the 64th shares the bit of the first. `key`: with sticky; 0: by turn.
    [[nodiscard]] std::size_t next(pool_balance how, std::uint64_t key, std::uint64_t tried) noexcept {
        if (seats_.size() != 1) return next_of_several(how, key, tried);
        return tried == 0 ? 0 : none;
    }
    /// Undoes the last choice, which was not used for a call.
    void take_back(std::size_t last) noexcept { turn_ = last; }
    /// Of a caller's text; 0: of none.
    [[nodiscard]] static std::uint64_t key_of(std::string_view text) noexcept;
    [[nodiscard]] static constexpr std::uint64_t bit(std::size_t i) noexcept { return std::uint64_t{1} << (i & 63); }

  private:
    [[nodiscard]] std::size_t next_of_several(pool_balance how, std::uint64_t key, std::uint64_t tried) noexcept;

    std::vector<std::shared_ptr<pool_seat>> seats_;
    std::size_t turn_;
};

}  // namespace accel::core
