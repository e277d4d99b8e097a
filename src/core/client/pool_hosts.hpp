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
/// Of host and port: `auto` and what it chooses are one server.
[[nodiscard]] std::uint64_t number_of(const uri& server);

/// A server of a pool. Written under the pool's lock, but for the atomic counts.
struct pool_host {
    explicit pool_host(uri where) : at(std::move(where)), number(number_of(at)) {}
    /// Calls do not connect to it, as it has failed since it last answered: the keeper does.
    [[nodiscard]] bool put_off() const noexcept { return out || limited; }
    const uri at;
    const std::uint64_t number;             ///< for sticky: the same in every process
    std::atomic<std::uint32_t> failing{0};  ///< calls in a row that ended by its fault
    std::atomic<bool> out{false};           ///< calls go to others: it has no channel, or was ejected
    bool limited = false;                   ///< threads share its channels; the keeper alone makes further ones
    bool listed = true;                     ///< the name has it
    bool used = false;                      ///< calls may go there: the name had it when its hosts were last published
    unsigned failures = 0;                  ///< one after the other
    nanoseconds due{};                      ///< if it is `out` or `limited`: when the keeper tries it
    nanoseconds answered{};                 ///< last; 0: never
    nanoseconds failed_at{};                ///< last
    alignas(64) std::atomic<std::uint32_t> in_flight{0};  ///< the pool's calls, if they are counted; written by each
};
using host_list = std::vector<std::shared_ptr<pool_host>>;

/// The hosts of a pool's URI, and what is known of them.
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
    /// others than before. New ones are left out until they have answered, if there were some before. Those that are
    /// used stay until `publish`.
    bool list(const std::vector<uri>& found, nanoseconds at);
    /// True: calls go to the hosts that are listed from now on, which are others than before, and of which one is not
    /// left out.
    bool publish();
    /// The host of a connection, which is listed if it was not.
    [[nodiscard]] std::shared_ptr<pool_host> at(const uri& peer);
    /// Those that are used or listed.
    [[nodiscard]] const host_list& all() const noexcept { return hosts_; }

    /// True: there is one that is not among these.
    [[nodiscard]] bool has_others(const host_list& than) const noexcept;
    /// All hosts, in the order to connect to them: from this one on, but those left out last, and at
    /// the very end those that the name has no more.
    [[nodiscard]] host_list order_from(const std::shared_ptr<pool_host>& first) const;
    /// The next that the keeper is to try: that with the fewest failures, so that silent hosts do not delay others. Or
    /// null.
    [[nodiscard]] std::shared_ptr<pool_host> due(nanoseconds at) const;
    /// When the first is due; `never`: none will be.
    [[nodiscard]] nanoseconds next_due() const noexcept;

    /// A connect there has failed. If it `has_channels`, calls go on there.
    void failed(pool_host& host, bool has_channels, nanoseconds at) noexcept;
    /// A channel there is lost. The keeper connects at once, unless the host has answered just now.
    void lost(pool_host& host, bool has_channels, nanoseconds at) noexcept;
    /// `wanted`: the keeper is to make more channels there.
    void answered(pool_host& host, bool wanted, nanoseconds at) const noexcept;
    /// Calls there fail. False: it stays, because more than half of the hosts would be left out.
    [[nodiscard]] bool eject(pool_host& host, nanoseconds at) noexcept;
    [[nodiscard]] std::size_t count_listed() const noexcept;
    /// Of those used.
    [[nodiscard]] std::size_t count() const noexcept;
    [[nodiscard]] std::size_t count_out() const noexcept;

    static constexpr unsigned most_doublings = 5;

  private:
    std::vector<uri> named_;
    host_list hosts_;           ///< those that are listed first
    bool unpublished_ = false;  ///< calls go to the hosts from before
    nanoseconds pause_{};
    std::optional<pool_balance> balance_;
    bool by_name_ = false;
};

}  // namespace accel::core
