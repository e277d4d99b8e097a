// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/clock.hpp"
#include "core/uri.hpp"

#include <accel_transport/status.hpp>

#include <atomic>
#include <cstddef>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

namespace accel::core {

/// A server of a pool. Under the pool's lock, but for `at` and `seats`.
struct pool_host {
    explicit pool_host(uri where) : at(std::move(where)) {}
    const uri at;
    std::atomic<std::size_t> seats{0};  ///< the pool's channels to it, those that connect included
    bool listed = true;                 ///< the name still has it
    bool ejected = false;               ///< it is out because calls failed: channels to it move
    unsigned failures = 0;              ///< one after the other
    nanoseconds out_until{};            ///< it is tried last until then
    nanoseconds answered{};             ///< last
    nanoseconds failed_at{};            ///< last
};

/// Counts as one of a host's seats while it lives.
class host_use {
  public:
    host_use() = default;
    explicit host_use(std::shared_ptr<pool_host> host) noexcept : host_(std::move(host)) { ++host_->seats; }
    ~host_use() { reset(); }
    host_use(host_use&& other) noexcept : host_(std::move(other.host_)) {}
    host_use& operator=(host_use&& other) noexcept {
        if (this == &other) return *this;
        reset();
        host_ = std::move(other.host_);
        return *this;
    }
    void reset() noexcept {
        if (host_ != nullptr) --host_->seats;
        host_ = nullptr;
    }
    [[nodiscard]] const std::shared_ptr<pool_host>& get() const noexcept { return host_; }

  private:
    std::shared_ptr<pool_host> host_;
};

/// The hosts of a pool's URI: new channels go to the one with the fewest, and one that failed is left out for a while.
class pool_hosts {
  public:
    /// `pause`: how long after a first failure; twice as long after each further one, up to `longest`.
    [[nodiscard]] static result<pool_hosts> read(std::string_view text, nanoseconds pause);

    /// The URI has names that are to be resolved, again and again.
    [[nodiscard]] bool by_name() const noexcept { return by_name_; }
    /// As the URI has them.
    [[nodiscard]] const std::vector<uri>& named() const noexcept { return named_; }
    /// The hosts that the names have now; a name that was not resolved (`uri::dns`) keeps those it had. True: they are
    /// others than before.
    bool list(const std::vector<uri>& found);
    /// The host of a connection; one that is not listed if the names do not have it.
    [[nodiscard]] std::shared_ptr<pool_host> at(const uri& peer) const;

    /// True: there is one that is not among these.
    [[nodiscard]] bool has_others(const std::vector<std::shared_ptr<pool_host>>& than) const noexcept;

    /// All hosts, in the order to try them: those left out last, then those with fewer channels first, then by turn.
    [[nodiscard]] std::vector<std::shared_ptr<pool_host>> next_order(nanoseconds at);
    /// Leaves in an order the hosts to which a channel of `from` moves. If it `must`, all that are not left out; else
    /// the first, if the two have more equal numbers of channels then.
    static void keep_better(std::vector<std::shared_ptr<pool_host>>& order, const pool_host& from, bool must,
                            nanoseconds at) noexcept;
    void failed(pool_host& host, nanoseconds at) noexcept;
    /// A channel to it that was made at `made` is lost. It may have answered since.
    void lost(pool_host& host, nanoseconds made, nanoseconds at) noexcept {
        if (host.answered <= made) failed(host, at);
    }
    static void answered(pool_host& host, nanoseconds at) noexcept {
        host.out_until = nanoseconds{};
        host.answered = at;
        host.ejected = false;
    }
    /// Calls there fail. False: it stays, because half of the hosts would be left out.
    [[nodiscard]] bool eject(pool_host& host, nanoseconds at) noexcept;
    /// It is out because calls failed.
    [[nodiscard]] static bool is_ejected(const pool_host& host, nanoseconds at) noexcept {
        return host.ejected && host.out_until > at;
    }
    /// When the first ejected host is back; `never`: none is out.
    [[nodiscard]] nanoseconds next_return(nanoseconds at) const noexcept;
    [[nodiscard]] std::size_t count() const noexcept { return hosts_.size(); }
    [[nodiscard]] std::size_t count_out(nanoseconds at) const noexcept;

    static constexpr unsigned most_doublings = 5;

  private:
    std::vector<uri> named_;
    std::vector<std::shared_ptr<pool_host>> hosts_;
    nanoseconds pause_{};
    std::size_t turn_ = 0;
    bool by_name_ = false;
};

}  // namespace accel::core
