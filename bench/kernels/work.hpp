// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

struct CUstream_st;

namespace accel::bench {

/// The work of a service that reads all of its request: the sum of its 8-byte words, modulo 2^64, in the
/// first 8 bytes of `response`. On `stream`; waits for nothing. Both are memory of the GPU, 8-byte aligned,
/// and `request` has a multiple of 8 bytes.
void sum_on_gpu(CUstream_st* stream, std::span<const std::byte> request, std::span<std::byte> response);

/// The same on the host.
[[nodiscard]] std::uint64_t sum_of(std::span<const std::byte> words) noexcept;

}  // namespace accel::bench
