// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/status.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

struct CUstream_st;

namespace accel::examples::vision {

struct torch_model_options {
    std::string name = "resnet50";  ///< or mobilenet_v3
    bool half = false;              ///< weights, images and logits in half precision, else single
    std::int16_t gpu = 0;
};

/// A network of PyTorch's on one GPU: an image of 1x3x224x224 to 1x1000 logits. Its weights are random, the
/// same each time. Pointers are to memory of that GPU. Calls give work to a stream and do not wait for it.
class torch_model {
  public:
    /// Runs it a few times, so that everything has been loaded and chosen for this thread. May block.
    [[nodiscard]] static result<torch_model> create(const torch_model_options& options);
    torch_model(torch_model&&) noexcept;
    torch_model& operator=(torch_model&&) noexcept;
    /// After all work given to it, and all recordings of it.
    ~torch_model();

    [[nodiscard]] std::size_t input_bytes() const noexcept;
    [[nodiscard]] std::size_t output_bytes() const noexcept;

    /// Launches its kernels one by one. Any thread; the first call on each takes long.
    [[nodiscard]] result<void> infer(CUstream_st* stream, const std::byte* image, std::byte* logits);
    /// Launches a CUDA graph of them, recorded in the first call for each stream, which takes long and waits.
    [[nodiscard]] result<void> replay(CUstream_st* stream, const std::byte* image, std::byte* logits);
    /// Gives them to a stream that is being recorded, by the thread that made this. Memory that they use
    /// between them is that recording's own, and stays as long as this does.
    [[nodiscard]] result<void> record(CUstream_st* stream, const std::byte* image, std::byte* logits);

  private:
    struct state;
    explicit torch_model(std::unique_ptr<state> made) noexcept;
    std::unique_ptr<state> state_;
};

}  // namespace accel::examples::vision
