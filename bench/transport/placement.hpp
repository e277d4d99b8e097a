// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sched.h>

/// Where the two ends of an echo run: left to itself, the scheduler puts them on one core or on two, and the
/// figures of either side depend on which.
namespace accel::bench {

/// Halves of the cores that this process may use: one for the clients, one for the servers.
class placement {
  public:
    placement() noexcept;
    /// False with a single core: then nothing is pinned.
    [[nodiscard]] bool can_pin() const noexcept { return CPU_COUNT(&all_) >= 2; }
    /// This thread, and the threads and processes that it starts from now on, run there.
    void run_as_server() const noexcept { run_on(servers_); }
    void run_as_client() const noexcept { run_on(clients_); }
    void run_anywhere() const noexcept { run_on(all_); }

  private:
    void run_on(const cpu_set_t& cores) const noexcept;

    cpu_set_t all_;
    cpu_set_t clients_;
    cpu_set_t servers_;
};

}  // namespace accel::bench
