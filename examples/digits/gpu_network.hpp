// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "digits/digit_answer.hpp"
#include "digits/network.hpp"

#include <accel_transport/status.hpp>

#include <cstddef>
#include <memory>

struct CUstream_st;

namespace accel::examples::digits {

struct gpu_scratch;

/// Preprocessing and network on one GPU, bit by bit what they are on the host. Pointers are to memory of that
/// GPU, of any alignment; a refusal is written as `digit_answer` says. Calls only give work to a stream:
/// they neither allocate nor wait, any number of threads may make them, and their thread's current device is
/// this one, as a handler's is.
class gpu_network {
  public:
    /// Brings weights and kernels to the GPU and makes scratch memory for `streams` streams. May block.
    /// `unsupported` names what is missing.
    [[nodiscard]] static result<gpu_network> create(int device, const network& model, std::size_t streams);
    gpu_network(gpu_network&&) noexcept;
    gpu_network& operator=(gpu_network&&) noexcept;
    /// After all work given to it.
    ~gpu_network();

    /// The scratch memory that belongs to a stream from its first call on, and that one request after another
    /// uses. Null: there are more streams than it was made for.
    [[nodiscard]] gpu_scratch* scratch_for(CUstream_st* stream) noexcept;

    /// `frame_bytes` of a frame to the tensor in the scratch memory.
    void preprocess(CUstream_st* stream, const std::byte* frame, gpu_scratch* scratch) const noexcept;
    /// That tensor to `sizeof(digit_answer)` bytes of answer.
    void infer(CUstream_st* stream, const gpu_scratch* scratch, std::byte* answer) const noexcept;
    /// The same for a tensor of `tensor_bytes` from elsewhere. `scores`: the answer is its scores alone.
    void infer(CUstream_st* stream, const std::byte* tensor, std::byte* answer,
               answer_form form = answer_form::whole) const noexcept;

    /// Where `preprocess` leaves its tensor.
    [[nodiscard]] static const std::byte* tensor_of(const gpu_scratch* scratch) noexcept;

  private:
    struct state;
    explicit gpu_network(std::unique_ptr<state> made) noexcept;
    std::unique_ptr<state> state_;
};

}  // namespace accel::examples::digits
