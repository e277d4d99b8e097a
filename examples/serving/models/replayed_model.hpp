// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/models/gpu_memory.hpp"
#include "serving/models/model.hpp"
#include "serving/models/stream_slots.hpp"

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

namespace accel::examples::serving {

/// A model on a GPU whose inference is recorded once per stream, as a CUDA graph, and then replayed: one launch instead
/// of one for each kernel. A graph reads and writes memory of its own; input and output are copied within the GPU
/// unless the input is made in place (`input_room`). Batches of one are replayed, others are given to the model.
class replayed_model final : public model {
  public:
    /// Records the first graph, so that a model which cannot be recorded is known at once: it then stays in `what`.
    /// `invalid_argument`, `unsupported`, `system_error`: the sentence says why. May block.
    [[nodiscard]] static result<std::unique_ptr<model>> create(std::unique_ptr<model>& what);
    ~replayed_model() override;

    const model_shapes& shapes() const noexcept override { return what_->shapes(); }
    memory_kind memory() const noexcept override { return what_->memory(); }
    std::size_t max_batch() const noexcept override { return what_->max_batch(); }
    result<void> preprocess(CUstream_st* stream, std::span<const std::byte> image,
                            std::span<std::byte> input) override {
        return what_->preprocess(stream, image, input);
    }
    /// The first call on each stream makes its recording, which is slow. If that fails, as without memory, the stream's
    /// kernels are launched from then on.
    result<void> infer(CUstream_st* stream, std::span<const model_job> batch) override;
    gpu_graph::recorder recorder() override { return what_->recorder(); }
    std::span<std::byte> input_room(CUstream_st* stream) override;
    replay_statistics replays() const noexcept override;

  private:
    class recording;

    replayed_model();
    [[nodiscard]] result<std::unique_ptr<recording>> record();
    /// That of the stream, made where it is missing; null: there is none.
    [[nodiscard]] recording* of(CUstream_st* stream);

    std::unique_ptr<model> what_;
    std::mutex mutex_;                  ///< recordings are made one after another
    std::unique_ptr<recording> spare_;  ///< the first, until a stream takes it
    stream_slots slots_;
    std::vector<std::unique_ptr<recording>> recordings_;  ///< by slot; each is used by one thread at a time
    std::vector<char> failed_;                            ///< by slot: it could not be recorded
    std::atomic<std::uint64_t> replayed_{0};
    std::atomic<std::uint64_t> copies_{0};
    std::atomic<std::uint64_t> copied_bytes_{0};
};

}  // namespace accel::examples::serving
