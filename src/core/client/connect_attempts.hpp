// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/client/backoff.hpp"
#include "core/client/connect.hpp"
#include "core/clock.hpp"

#include <cstddef>
#include <stop_token>
#include <utility>
#include <vector>

namespace accel::core {

/// This part's time of what is left until `deadline`, for `parts` that come one after the other.
[[nodiscard]] inline nanoseconds share_of(nanoseconds deadline, std::size_t parts) noexcept {
    const nanoseconds left = deadline - now();
    return left <= nanoseconds{0} ? nanoseconds{1} : left / static_cast<std::int64_t>(parts);
}

/// The tries of a first connect: each host of its URI in order, and all of them again for `connect_retry`. The hosts
/// of one round share `connect_timeout`. Names of `dns+` are resolved in each round.
class connect_attempts {
  public:
    /// `hosts`: of one URI, at least one. Their options say how often. May wait for the resolver. `stopped` ends its
    /// waits and all further tries.
    [[nodiscard]] static result<connect_attempts> plan(std::vector<uri> hosts, const channel_options& options,
                                                       further_keys* more, std::stop_token stopped = {});

    /// The next host to connect to.
    [[nodiscard]] const uri& host() const noexcept { return hosts_[host_]; }
    /// Its share of the time.
    [[nodiscard]] nanoseconds time() const noexcept;
    /// Puts into a request made from `host` what the whole URI says.
    void restore(connect_request& made) const;
    /// That try has failed. True: there is another one, for which this may have slept.
    [[nodiscard]] bool another(const error& failure);
    /// Why there is none.
    [[nodiscard]] error failure() const;

  private:
    void begin_round();

    std::vector<uri> named_;  ///< the URI's hosts, if one is a name of `dns+`
    std::vector<uri> hosts_;
    channel_options options_;
    std::stop_token stopped_;
    nanoseconds start_ = now();
    nanoseconds retry_until_{};
    nanoseconds round_ends_{};
    backoff pauses_{{}, {}};
    std::size_t host_ = 0;
    std::size_t rounds_ = 1;
    bool may_pass_ = false;        ///< a failure of this round may be gone the next time
    std::vector<error> failures_;  ///< of this round, one a host
};

/// `connect` makes one try: result<Made>(const connect_attempts&).
template <class Made, class Connect>
[[nodiscard]] result<Made> connect_to_any(std::vector<uri> hosts, const channel_options& options, Connect connect,
                                          further_keys* more = nullptr, std::stop_token stopped = {}) {
    auto attempts = connect_attempts::plan(std::move(hosts), options, more, std::move(stopped));
    if (!attempts) return attempts.error();
    for (;;) {
        result<Made> made = connect(*attempts);
        if (made) return made;
        if (!attempts->another(made.error())) return attempts->failure();
    }
}

}  // namespace accel::core
