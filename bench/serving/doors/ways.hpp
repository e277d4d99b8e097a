// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "bench/serving/nginx.hpp"
#include "report/child_process.hpp"

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <sys/types.h>

/// Ways from clients of gRPC to an echo: straight, and over a process that passes requests on.
namespace accel::bench {

struct door_choices {
    std::string gateway;  ///< path of the program
    std::string nginx;    ///< path of the program, which need not be there
};

struct door_way {
    std::string name;
    std::string behind;   ///< what the hop passes requests on to; empty: there is no hop
    std::string address;  ///< HOST:PORT, for gRPC
    pid_t hop = 0;        ///< the process in between
};

inline constexpr const char* ours_name = "gateway";

/// The processes of all ways, for one size of message. Owner; they end with it.
class door_ways {
  public:
    [[nodiscard]] static result<door_ways> open(const door_choices& chosen, std::size_t size_bytes);
    door_ways(door_ways&&) noexcept = default;
    door_ways& operator=(door_ways&&) = delete;
    ~door_ways();

    [[nodiscard]] const std::vector<door_way>& ways() const noexcept { return ways_; }
    /// Why a peer is not among them; empty: all are.
    [[nodiscard]] const std::string& absent() const noexcept { return absent_; }

  private:
    door_ways() = default;
    [[nodiscard]] result<std::string> start(const std::vector<std::string>& command, std::string_view announces);
    [[nodiscard]] result<void> open_gateway(const door_choices& chosen, std::size_t size_bytes);
    [[nodiscard]] result<void> open_peers(const door_choices& chosen, const std::string& behind,
                                          const std::string& name);

    std::vector<report::child_process> processes_;
    std::vector<nginx> nginxes_;
    std::vector<door_way> ways_;
    std::string absent_;
};

/// The processes that `door_ways` starts from this program; returns the exit status. `arguments` follow "serve".
[[nodiscard]] int serve_door_peer(const std::vector<std::string>& arguments);

/// The CPU time that a process has used, all of its threads together; 0 where it is gone.
[[nodiscard]] std::chrono::nanoseconds cpu_time_of(pid_t process) noexcept;

}  // namespace accel::bench
