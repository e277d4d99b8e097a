// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/metrics/metrics_sums.hpp"

#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace accel::core {

/// Something that counts and is asked for its sums: a channel, a server.
class metrics_source {
  public:
    virtual ~metrics_source() = default;
    /// Any thread, under the registry's lock.
    virtual void add_to(metrics_sums& sums) const = 0;
};

/// The counters of a context, and the sums of those that have ended. Thread-safe; control path only.
class metrics_registry {
  public:
    void add(const metrics_source& source);
    /// Its counters stay in the sums. It is not asked any more.
    void remove(const metrics_source& source);
    /// Known by name from now on.
    void name_target(std::string_view name);
    [[nodiscard]] metrics_snapshot snapshot() const;

  private:
    mutable std::mutex mutex_;
    std::vector<const metrics_source*> sources_;
    metrics_sums ended_;
    target_names names_;
};

}  // namespace accel::core
