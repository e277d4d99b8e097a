// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/models/model.hpp"

#include <accel_transport/device/graph.hpp>

#include <cstddef>
#include <span>
#include <string>
#include <vector>

struct CUgraphExec_st;

namespace accel::tests {

using bytes = std::vector<std::byte>;

/// Bytes in the memory of GPU 0, at any offset. Throws where CUDA fails, as all of this file.
class gpu_buffer {
  public:
    explicit gpu_buffer(const bytes& content, std::size_t misplaced = 0);
    gpu_buffer(const gpu_buffer&) = delete;
    gpu_buffer& operator=(const gpu_buffer&) = delete;
    ~gpu_buffer();
    [[nodiscard]] std::byte* data() const noexcept { return memory_ + misplaced_; }
    [[nodiscard]] std::size_t size() const noexcept { return size_; }
    void fill(const bytes& content, CUstream_st* stream) const;
    /// After all work of the stream.
    [[nodiscard]] bytes fetch(CUstream_st* stream) const;

  private:
    std::byte* memory_ = nullptr;
    std::size_t misplaced_, size_;
};

/// A stream of GPU 0, and models' work on it.
class serving_rig {
  public:
    serving_rig() = default;
    serving_rig(const serving_rig&) = delete;
    serving_rig& operator=(const serving_rig&) = delete;
    ~serving_rig();
    /// Empty, or why there is no GPU.
    [[nodiscard]] std::string open();
    [[nodiscard]] CUstream_st* stream() const noexcept { return stream_; }

    /// The outputs of one batch.
    [[nodiscard]] std::vector<bytes> infer(examples::serving::model& what, const std::vector<bytes>& inputs) const;
    /// The inputs that the model makes of an image.
    [[nodiscard]] bytes preprocess(examples::serving::model& what, const bytes& image) const;

  private:
    CUstream_st* stream_ = nullptr;
};

/// What a recorder gives, as a CUDA graph.
class recorded_run {
  public:
    recorded_run() = default;
    recorded_run(const recorded_run&) = delete;
    recorded_run& operator=(const recorded_run&) = delete;
    ~recorded_run();
    /// Empty, or what failed.
    [[nodiscard]] std::string record(const gpu_graph::recorder& work, const device::graph_iteration& iteration);
    [[nodiscard]] std::string launch(CUstream_st* stream) const;

  private:
    CUstream_st* stream_ = nullptr;
    CUgraphExec_st* graph_ = nullptr;
};

/// From memory of the host, which lasts.
void copy_from_host(std::byte* to, CUstream_st* stream);
/// For all work of a stream; what it fails with.
[[nodiscard]] result<void> wait_for(CUstream_st* stream);

/// The greatest difference of two payloads of floats, as a part of the greatest amount; 0 for equal bytes, 1 for
/// payloads that cannot be compared.
[[nodiscard]] double float_distance(std::span<const std::byte> one, std::span<const std::byte> other);

}  // namespace accel::tests
