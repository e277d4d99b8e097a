// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "perf/load.hpp"

#include <accel_transport/options.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace accel::perf {

inline constexpr const char* program = "accel_perf";

/// As given on the command line.
struct settings {
    std::vector<std::string> uris;
    std::vector<std::size_t> sizes{64};
    std::optional<std::size_t> response_bytes;  ///< nothing: as long as the request
    std::optional<std::uint64_t> count;         ///< nothing: 10,000, but at most 4 GiB of payload
    std::optional<std::uint64_t> warm_up;       ///< nothing: a tenth of the count, at most 1,000
    std::optional<std::uint32_t> depth;         ///< nothing: 1; 64 with `rate`, but at most 256 MiB of payload
    std::optional<size_mix> mix;                ///< in place of `sizes`: one measurement of all
    std::uint32_t clients = 1;
    double rate = 0;  ///< calls a second; 0: each client sends when an answer has come
    arrivals arriving = arrivals::constant;
    std::optional<std::chrono::nanoseconds> duration;
    poll_mode poll = poll_mode::adaptive;
    std::uint32_t workers = 1;
    bool check = false;
    std::string json;       ///< file, "-", or empty
    std::string histogram;  ///< file, or empty
    std::string metrics;    ///< HOST:PORT for scrapes, or empty
};

/// Each returns the exit status of the program.
[[nodiscard]] int serve(const settings& chosen);
[[nodiscard]] int client(const settings& chosen);
[[nodiscard]] int loop(const settings& chosen);

/// The measurements that `chosen` asks for, one for each size.
[[nodiscard]] std::vector<load> plan(const settings& chosen);

/// The name as the command line spells it.
[[nodiscard]] const char* poll_name(poll_mode mode) noexcept;
[[nodiscard]] const char* arrivals_name(arrivals how) noexcept;

}  // namespace accel::perf
