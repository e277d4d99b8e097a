// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

/// What the GPU tests do on the GPU. Each call but start_reader() has ended when it returns, waits for its
/// own stream only, and throws std::runtime_error when CUDA complains.
namespace accel::softnic::testing::gpu {

/// Byte `at` of pattern `seed`.
constexpr std::uint8_t pattern(std::uint32_t seed, std::uint64_t at) {
    std::uint64_t mixed = (at + 1) * 0x9e3779b97f4a7c15 + seed * 0xc2b2ae3d27d4eb4f;
    mixed ^= mixed >> 29;
    mixed *= 0xbf58476d1ce4e5b9;
    return static_cast<std::uint8_t>(mixed >> 32);
}

void fill(std::byte* memory, std::size_t size, std::uint32_t seed);
void set(std::byte* memory, std::size_t size, std::uint8_t value);
[[nodiscard]] std::uint64_t count_wrong(const std::byte* memory, std::size_t size, std::uint32_t seed);
[[nodiscard]] std::uint64_t count_unlike(const std::byte* memory, std::size_t size, std::uint8_t value);

/// What a kernel saw that waits on the GPU for a flag and then looks at the data.
struct reading {
    std::uint32_t finished;
    std::uint32_t timed_out;
    std::uint64_t wrong;
};
/// Starts that kernel; the result appears in pinned memory.
void start_reader(const std::uint32_t* flag, std::uint32_t value, const std::byte* data, std::size_t size,
                  std::uint32_t seed, reading* result);
/// Makes every later call of CUDA in this process fail.
void fault();

}  // namespace accel::softnic::testing::gpu
