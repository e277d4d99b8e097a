// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "digits/digit_answer.hpp"
#include "digits/gpu_network.hpp"

#include <accel_transport/context.hpp>

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include <gtest/gtest.h>

namespace accel::tests {

using tensor_array = std::array<float, examples::digits::tensor_values>;

/// What a request came to on the GPU.
struct gpu_outcome {
    tensor_array tensor{};  ///< of a frame: as the preprocessing left it
    examples::digits::digit_answer answer;
};

/// One stream of GPU 0 with the digits network, and memory for one request that may be put at any offset.
class digits_rig {
  public:
    /// Null: no GPU; `why` says what is missing.
    [[nodiscard]] static std::unique_ptr<digits_rig> make(std::string& why);
    digits_rig(const digits_rig&) = delete;
    digits_rig& operator=(const digits_rig&) = delete;
    ~digits_rig();

    /// Copies the bytes there, runs the kernels, copies what they made back and waits for it.
    [[nodiscard]] gpu_outcome frame(std::span<const std::byte> bytes, std::size_t misplaced = 0);
    [[nodiscard]] examples::digits::digit_answer tensor(std::span<const float> values, std::size_t misplaced = 0);
    /// Microseconds for preprocessing and for inference on a frame that lies on the GPU: medians by events.
    [[nodiscard]] std::array<float, 2> measure(std::span<const std::byte> bytes, int times);

    [[nodiscard]] examples::digits::gpu_network& network() noexcept { return network_; }
    [[nodiscard]] CUstream_st* stream() const noexcept { return stream_; }

  private:
    explicit digits_rig(examples::digits::gpu_network network) noexcept : network_(std::move(network)) {}
    [[nodiscard]] examples::digits::digit_answer fetch_answer(std::size_t misplaced);

    examples::digits::gpu_network network_;
    CUstream_st* stream_ = nullptr;
    std::byte* request_ = nullptr;
    std::byte* answer_ = nullptr;
};

/// The trained network on the host, which is what the GPU is compared with.
[[nodiscard]] const examples::digits::network& host_network();

}  // namespace accel::tests
