// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/models/table.hpp"

#include <accel_transport/gpu_graph.hpp>
#include <accel_transport/memory.hpp>
#include <accel_transport/status.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

struct CUstream_st;

namespace accel::examples::serving {

/// One request of a batch: its input tensors, and the room for its output tensors, each `payload_bytes` long in the
/// order of the table.
struct model_job {
    std::span<const std::byte> input;
    std::span<std::byte> output;
    /// Of a model with open outputs, else empty: the longest tensors of an answer. `infer` makes them those of this
    /// answer, and places them from zero.
    std::span<tensor> outputs{};
};

/// What graphs of a model's work did. Copies are within the GPU.
struct replay_statistics {
    std::uint64_t replays = 0;
    std::uint64_t copies = 0;  ///< of inputs and outputs, to and from the memory that a graph works on
    std::uint64_t copied_bytes = 0;
};

/// A model that is loaded: on the host, or on one GPU. Its methods may be called from any thread, and by several at
/// once. On a GPU all pointers are to its memory, and calls give their work to `stream` and do not wait for it; on the
/// host `stream` is null and the work is done when they return.
class model {
  public:
    virtual ~model() = default;
    [[nodiscard]] virtual const model_shapes& shapes() const noexcept = 0;
    [[nodiscard]] virtual memory_kind memory() const noexcept = 0;
    /// The largest batch that `infer` takes.
    [[nodiscard]] virtual std::size_t max_batch() const noexcept = 0;
    /// Makes the input tensors out of a raw image of `shapes().image`. `unsupported`: the model takes none.
    [[nodiscard]] virtual result<void> preprocess(CUstream_st* stream, std::span<const std::byte> image,
                                                  std::span<std::byte> input) = 0;
    /// Answers a batch of 1 to `max_batch()` jobs.
    [[nodiscard]] virtual result<void> infer(CUstream_st* stream, std::span<const model_job> batch) = 0;
    /// What a GPU-resident service records of it, for batches of one. Empty: the model cannot be recorded.
    [[nodiscard]] virtual gpu_graph::recorder recorder() { return {}; }
    /// Where inputs of this stream need no copy on their way to `infer`, for the stream's next one. Empty: nowhere.
    [[nodiscard]] virtual std::span<std::byte> input_room(CUstream_st* /*stream*/) { return {}; }
    [[nodiscard]] virtual replay_statistics replays() const noexcept { return {}; }
};

}  // namespace accel::examples::serving
