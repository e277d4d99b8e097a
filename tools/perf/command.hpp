// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

/// What an accel_perf client asks of an accel_perf server. It travels in the trace id, so that payloads of
/// any size, zero included, stay free for the measurement.
namespace accel::perf {

struct command {
    std::uint32_t response_bytes = 0;
    std::uint32_t seed = 0;   ///< 24 bits: of the pattern, when `check`
    bool check = false;       ///< verify the request, fill the response
    bool report_cpu = false;  ///< answer with `server_report` instead
};

[[nodiscard]] constexpr std::uint64_t pack(const command& c) noexcept {
    return std::uint64_t{c.response_bytes} | std::uint64_t{c.seed & 0xff'ffff} << 32 | std::uint64_t{c.check} << 56 |
           std::uint64_t{c.report_cpu} << 57;
}

[[nodiscard]] constexpr command unpack(std::uint64_t bits) noexcept {
    return {static_cast<std::uint32_t>(bits), static_cast<std::uint32_t>(bits >> 32) & 0xff'ffff, (bits >> 56 & 1) != 0,
            (bits >> 57 & 1) != 0};
}

/// Answer to `report_cpu`.
struct server_report {
    std::uint64_t cpu_ns = 0;  ///< of the server's process so far
};

}  // namespace accel::perf
