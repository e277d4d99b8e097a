// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/clock.hpp"
#include "core/uri.hpp"

#include <accel_transport/channel_pool.hpp>
#include <accel_transport/status.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace accel::core {

/// FNV-1a.
[[nodiscard]] std::uint64_t number_of(std::string_view text) noexcept;

/// A server of a pool. Written under the pool's lock, but for the atomic counts.
struct pool_host {
    explicit pool_host(uri where) : at(std::move(where)), number(number_of(at.text())) {}
    const uri at;
    const std::uint64_t number;               ///< for sticky: the same in every process
    std::atomic<std::uint32_t> in_flight{0};  ///< the pool's calls, if they are counted
    std::atomic<std::uint32_t> failing{0};    ///< calls in a row that ended by its fault
    std::atomic<bool> out{false};             ///< calls go to others
    bool listed = true;                       ///< the name still has it
    unsigned failures = 0;                    ///< one after the other
    nanoseconds out_until{};                  ///< if it is `out`: when it is tried again
    nanoseconds answered{};                   ///< last; 0: never
    nanoseconds failed_at{};                  ///< last
};
using host_list = std::vector<std::shared_ptr<pool_host>>;

/// The hosts of a pool's URI. One that failed is left out for a while.
class pool_hosts {
  public:
    /// `pause`: how long after a first failure; twice as long after each further one, up to `most_doublings` times.
    [[nodiscard]] static result<pool_hosts> read(std::string_view text, nanoseconds pause);

    /// As the URI says, if it does.
    [[nodiscard]] pool_balance balance(pool_balance otherwise) const noexcept { return balance_.value_or(otherwise); }
    /// The URI has names that are to be resolved, again and again.
    [[nodiscard]] bool by_name() const noexcept { return by_name_; }
    /// As the URI has them.
    [[nodiscard]] const std::vector<uri>& named() const noexcept { return named_; }
    /// The hosts that the names have now; a name that was not resolved (`uri::dns`) keeps those it had. True: they are
    /// others than before. New ones are left out until they have answered, if there were some before.
    bool list(const std::vector<uri>& found, nanoseconds at);
    /// The host of a connection, which is listed if it was not.
    [[nodiscard]] std::shared_ptr<pool_host> at(const uri& peer);
    [[nodiscard]] const host_list& all() const noexcept { return hosts_; }

    /// True: there is one that is not among these.
    [[nodiscard]] bool has_others(const host_list& than) const noexcept;
    /// Another one than this has answered, and is not left out.
    [[nodiscard]] bool others_answer(const pool_host& than) const noexcept;
    /// All hosts, in the order to connect to them: from this one on, if it is listed, but those left out last.
    [[nodiscard]] host_list order_from(const std::shared_ptr<pool_host>& first) const;
    /// Those that are left out and are to be tried again.
    [[nodiscard]] host_list due(nanoseconds at) const;
    /// When the first is due; `never`: none is out.
    [[nodiscard]] nanoseconds next_due() const noexcept;

    void failed(pool_host& host, nanoseconds at) noexcept;
    /// A channel to it that was made at `made` is lost. It may have answered since.
    void lost(pool_host& host, nanoseconds made, nanoseconds at) noexcept {
        if (host.answered <= made) failed(host, at);
    }
    static void answered(pool_host& host, nanoseconds at) noexcept {
        host.answered = at;
        host.out = false;
        host.failing = 0;
    }
    /// Calls there fail. False: it stays, because more than half of the hosts would be left out.
    [[nodiscard]] bool eject(pool_host& host, nanoseconds at) noexcept;
    [[nodiscard]] std::size_t count() const noexcept { return hosts_.size(); }
    [[nodiscard]] std::size_t count_out() const noexcept;

    static constexpr unsigned most_doublings = 5;

  private:
    std::vector<uri> named_;
    host_list hosts_;
    nanoseconds pause_{};
    std::optional<pool_balance> balance_;
    bool by_name_ = false;
};

}  // namespace accel::core
