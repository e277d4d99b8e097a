// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/clock.hpp"

#include <accel_transport/status.hpp>

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace accel::core {

/// The hosts of a pool's URI: they take turns, and one that failed is left out for a while.
class pool_hosts {
  public:
    /// `pause`: how long.
    [[nodiscard]] static result<pool_hosts> read(std::string_view uri, nanoseconds pause);

    /// Places of all hosts, in the order to try them: the one whose turn it is first, those left out last.
    [[nodiscard]] std::vector<std::size_t> next_order(nanoseconds at);
    /// A URI that names them in this order.
    [[nodiscard]] std::string uri(const std::vector<std::size_t>& order) const;
    void failed(std::size_t host, nanoseconds at) noexcept;
    /// A channel to it that was made at `made` is lost. It may have answered since.
    void lost(std::size_t host, nanoseconds made, nanoseconds at) noexcept {
        if (hosts_[host].answered <= made) failed(host, at);
    }
    void answered(std::size_t host, nanoseconds at) noexcept {
        hosts_[host].out_until = nanoseconds{};
        hosts_[host].answered = at;
    }
    [[nodiscard]] std::size_t count() const noexcept { return hosts_.size(); }
    [[nodiscard]] std::size_t count_out(nanoseconds at) const noexcept;

  private:
    struct place {
        std::string text;  ///< "a:1"
        nanoseconds out_until{};
        nanoseconds answered{};  ///< last
    };
    std::string scheme_;  ///< "tcp://"
    std::string query_;   ///< "?slots=4", or empty
    std::vector<place> hosts_;
    nanoseconds pause_{};
    std::size_t turn_ = 0;
};

}  // namespace accel::core
