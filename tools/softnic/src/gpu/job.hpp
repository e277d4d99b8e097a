// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

/// What the host and a copy kernel say to each other, in pinned host memory. Without CUDA's headers: both
/// sides include it.
namespace accel::softnic::gpu {

enum class action : std::uint32_t { write = 1, read = 2, fetch_add = 3, compare_swap = 4 };

inline constexpr std::uint32_t lane_depth = 32;
inline constexpr std::uint32_t line_words = 16;
inline constexpr std::uint32_t quad_words = 4;
inline constexpr std::uint32_t content_words = 12;
/// A payload up to this size travels in the job itself.
inline constexpr std::uint32_t inline_bytes = 32;
inline constexpr std::uint32_t in_line_bit = 8;
inline constexpr std::uint32_t loose_bit = 16;  ///< in any order with loose jobs next to it
inline constexpr std::uint32_t size_shift = 5;

/// One job is one 64-byte line of four quads. Word 0 of each quad is the job's number, the other three are
/// content: a reader that finds the number in all four quads has all of the job after one read over PCIe, as
/// long as 16 aligned bytes never tear.
///
/// Content: 0: action | in_line_bit | loose_bit | size << size_shift; 1, 2: address; from 3 on the payload, or the
/// address in pinned memory, or the operands of an atomic (what to add, or desired and expected).
struct lane_memory {
    alignas(64) std::uint32_t ring[lane_depth][line_words];
    alignas(64) std::uint32_t done;   ///< number of the last job that is finished; written by the server
    std::uint32_t left;               ///< which service ended last; written by the server
    std::uint64_t previous;           ///< result of the last atomic
    std::uint32_t begun;              ///< which service of a kernel began last; written by the kernel
    alignas(64) std::uint32_t first;  ///< the job that such a service begins with; written by the host
    std::uint32_t granted;            ///< which of them may begin with it: until then the host serves the lane
};

}  // namespace accel::softnic::gpu
