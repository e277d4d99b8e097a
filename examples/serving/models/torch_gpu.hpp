// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/models/model.hpp"
#include "serving/models/torch_network.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include <c10/core/Device.h>

namespace accel::examples::serving {

/// What a network of a file needs of its GPU. Work throws as torch does, and is for inference only.
class torch_gpu {
  public:
    /// `unsupported`: this build's LibTorch, or this machine, has none.
    [[nodiscard]] static result<std::unique_ptr<torch_gpu>> open(std::int16_t ordinal);
    virtual ~torch_gpu() = default;

    [[nodiscard]] virtual c10::Device device() const noexcept = 0;
    /// A package of AOTInductor's.
    [[nodiscard]] virtual std::unique_ptr<torch_network> read_package(const std::string& path) = 0;
    /// Does the work, whose kernels go to this stream.
    virtual void on_stream(CUstream_st* stream, const std::function<void()>& work) = 0;
    /// The same on a stream of torch's, and waits for it.
    virtual void on_own_stream(const std::function<void()>& work) = 0;
    /// As `model::preprocess`, with lengths that are right.
    [[nodiscard]] virtual result<void> preprocess(CUstream_st* stream, const model_shapes& shapes,
                                                  std::span<const std::byte> image, std::span<std::byte> input) = 0;
    /// Records `what` on the stream; what torch allocates meanwhile is kept as long as this is.
    [[nodiscard]] virtual result<void> record(model& what, CUstream_st* stream,
                                              const device::graph_iteration& iteration) = 0;
};

}  // namespace accel::examples::serving
