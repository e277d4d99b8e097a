// SPDX-License-Identifier: Apache-2.0
/// `gpu_network` with the host's arithmetic on a stand-in for a GPU: for the logic of gpu_service, which is
/// linked with this in the place of the kernels. It says nothing about CUDA.
#include "digits/digit_answer.hpp"
#include "digits/frame.hpp"
#include "digits/gpu_network.hpp"
#include "digits/preprocess.hpp"
#include "gpu/fake_gpu.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <mutex>

namespace accel::examples::digits {

struct gpu_scratch {
    std::array<float, tensor_values> tensor{};
    failure refused = failure::none;
};

struct gpu_network::state {
    explicit state(const network& trained) : model(trained) {}
    network model;
    std::size_t streams = 0;
    std::mutex mutex;
    std::deque<std::pair<CUstream_st*, gpu_scratch>> scratches;
};

namespace {

void put_answer(const network& model, std::span<const float> tensor, failure why, std::byte* to,
                answer_form form = answer_form::whole) {
    digit_answer answer;
    if (why == failure::none) why = model.classify(tensor, answer.scores);
    answer.label = why == failure::none ? static_cast<std::uint32_t>(best_class(answer.scores)) : label_of(why);
    if (form == answer_form::scores)
        std::memcpy(to, answer.scores.data(), sizeof answer.scores);
    else
        std::memcpy(to, &answer, sizeof answer);
}

}  // namespace

gpu_network::gpu_network(std::unique_ptr<state> made) noexcept : state_(std::move(made)) {}
gpu_network::gpu_network(gpu_network&&) noexcept = default;
gpu_network& gpu_network::operator=(gpu_network&&) noexcept = default;
gpu_network::~gpu_network() = default;

result<gpu_network> gpu_network::create(int, const network& model, std::size_t streams) {
    auto made = std::make_unique<state>(model);
    made->streams = streams;
    return gpu_network{std::move(made)};
}

gpu_scratch* gpu_network::scratch_for(CUstream_st* stream) noexcept {
    const std::lock_guard lock(state_->mutex);
    for (auto& [owner, scratch] : state_->scratches)
        if (owner == stream) return &scratch;
    if (state_->scratches.size() == state_->streams) return nullptr;
    return &state_->scratches.emplace_back(stream, gpu_scratch{}).second;
}

void gpu_network::preprocess(CUstream_st* stream, const std::byte* frame, gpu_scratch* scratch) const noexcept {
    tests::fake_stream::of(stream).launch([=] {
        scratch->refused = digits::preprocess({frame, frame_bytes}, scratch->tensor);
    });
}

void gpu_network::infer(CUstream_st* stream, const gpu_scratch* scratch, std::byte* answer) const noexcept {
    tests::fake_stream::of(stream).launch(
        [=, this] { put_answer(state_->model, scratch->tensor, scratch->refused, answer); });
}

void gpu_network::infer(CUstream_st* stream, const std::byte* tensor, std::byte* answer,
                        answer_form form) const noexcept {
    tests::fake_stream::of(stream).launch([=, this] {
        std::array<float, tensor_values> values{};
        std::memcpy(values.data(), tensor, tensor_bytes);
        put_answer(state_->model, values, failure::none, answer, form);
    });
}

const std::byte* gpu_network::tensor_of(const gpu_scratch* scratch) noexcept {
    return reinterpret_cast<const std::byte*>(scratch->tensor.data());
}

}  // namespace accel::examples::digits
