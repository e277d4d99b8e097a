// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "rings.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace accel::bench {

/// Requests a doorbell of one thread.
inline constexpr std::array<std::uint32_t, 4> thread_batches{1, 8, 32, 128};

/// By who posts, with how many a doorbell, in which order and to what memory.
[[nodiscard]] std::vector<post_case> post_cases(std::uint32_t processors);
/// By payload, named and carried: one thread, one warp, a warp on each processor.
[[nodiscard]] std::vector<post_case> payload_cases(const std::vector<std::size_t>& payloads, std::uint32_t processors);
/// The same on the CPU.
[[nodiscard]] std::vector<post_case> cpu_cases(const std::vector<std::size_t>& payloads);

/// For people: "thread", "warp", "block of 256", "warp on each SM".
[[nodiscard]] std::string poster_text(const post_case& of);
[[nodiscard]] std::string order_text(ordering how);
/// One line that tells a case from the others.
[[nodiscard]] std::string text_of(const post_case& what);

}  // namespace accel::bench
