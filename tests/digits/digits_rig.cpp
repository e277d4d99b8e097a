// SPDX-License-Identifier: Apache-2.0
#include "digits_rig.hpp"

#include "digits/embedded.hpp"
#include "digits/frame.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

#include <cuda_runtime.h>

namespace accel::tests {

using namespace examples::digits;

namespace {

constexpr std::size_t max_misplaced = 16;

void check(cudaError_t code, const char* what) {
    ASSERT_EQ(code, cudaSuccess) << what << ": " << cudaGetErrorString(code);
}
#define CHECK_CUDA(call) check(call, #call)

}  // namespace

const network& host_network() {
    static const loaded<network> trained = network::load(embedded_weights());
    return trained.value.value();
}

std::unique_ptr<digits_rig> digits_rig::make(std::string& why) {
    auto on_gpu = gpu_network::create(0, host_network(), 2);
    if (!on_gpu) {
        why = on_gpu.error().message;
        return nullptr;
    }
    std::unique_ptr<digits_rig> made(new digits_rig(std::move(on_gpu).value()));
    CHECK_CUDA(cudaStreamCreateWithFlags(&made->stream_, cudaStreamNonBlocking));
    CHECK_CUDA(cudaMalloc(&made->request_, frame_bytes + max_misplaced));
    CHECK_CUDA(cudaMalloc(&made->answer_, sizeof(digit_answer) + max_misplaced));
    return made;
}

digits_rig::~digits_rig() {
    CHECK_CUDA(cudaStreamSynchronize(stream_));
    CHECK_CUDA(cudaFree(answer_));
    CHECK_CUDA(cudaFree(request_));
    CHECK_CUDA(cudaStreamDestroy(stream_));
}

digit_answer digits_rig::fetch_answer(std::size_t misplaced) {
    std::array<std::byte, sizeof(digit_answer) + max_misplaced> bytes{};
    CHECK_CUDA(cudaGetLastError());
    CHECK_CUDA(cudaMemcpyAsync(bytes.data(), answer_, bytes.size(), cudaMemcpyDefault, stream_));
    CHECK_CUDA(cudaStreamSynchronize(stream_));
    const auto untouched = [](std::byte each) { return each == std::byte{0xEE}; };
    EXPECT_TRUE(std::all_of(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(misplaced), untouched));
    EXPECT_TRUE(std::all_of(bytes.begin() + static_cast<std::ptrdiff_t>(misplaced + sizeof(digit_answer)), bytes.end(),
                            untouched));
    digit_answer answer;
    std::memcpy(&answer, bytes.data() + misplaced, sizeof answer);
    return answer;
}

gpu_outcome digits_rig::frame(std::span<const std::byte> bytes, std::size_t misplaced) {
    gpu_outcome outcome;
    gpu_scratch* const scratch = network_.scratch_for(stream_);
    CHECK_CUDA(cudaMemsetAsync(answer_, 0xEE, sizeof(digit_answer) + max_misplaced, stream_));
    CHECK_CUDA(cudaMemcpyAsync(request_ + misplaced, bytes.data(), bytes.size(), cudaMemcpyDefault, stream_));
    network_.preprocess(stream_, request_ + misplaced, scratch);
    network_.infer(stream_, scratch, answer_ + misplaced);
    CHECK_CUDA(cudaMemcpyAsync(outcome.tensor.data(), gpu_network::tensor_of(scratch), tensor_bytes, cudaMemcpyDefault,
                               stream_));
    outcome.answer = fetch_answer(misplaced);
    return outcome;
}

digit_answer digits_rig::tensor(std::span<const float> values, std::size_t misplaced) {
    CHECK_CUDA(cudaMemsetAsync(answer_, 0xEE, sizeof(digit_answer) + max_misplaced, stream_));
    CHECK_CUDA(cudaMemcpyAsync(request_ + misplaced, values.data(), values.size_bytes(), cudaMemcpyDefault, stream_));
    network_.infer(stream_, request_ + misplaced, answer_ + misplaced);
    return fetch_answer(misplaced);
}

std::array<float, 2> digits_rig::measure(std::span<const std::byte> bytes, int times) {
    gpu_scratch* const scratch = network_.scratch_for(stream_);
    std::array<std::vector<float>, 2> seen;
    std::array<cudaEvent_t, 3> events{};
    for (auto& each : events) CHECK_CUDA(cudaEventCreate(&each));
    CHECK_CUDA(cudaMemcpyAsync(request_, bytes.data(), bytes.size(), cudaMemcpyDefault, stream_));
    for (int i = 0; i < times; ++i) {
        CHECK_CUDA(cudaEventRecord(events[0], stream_));
        network_.preprocess(stream_, request_, scratch);
        CHECK_CUDA(cudaEventRecord(events[1], stream_));
        network_.infer(stream_, scratch, answer_);
        CHECK_CUDA(cudaEventRecord(events[2], stream_));
        CHECK_CUDA(cudaStreamSynchronize(stream_));
        for (std::size_t k = 0; k < seen.size(); ++k) {
            float milliseconds = 0;
            CHECK_CUDA(cudaEventElapsedTime(&milliseconds, events[k], events[k + 1]));
            seen[k].push_back(milliseconds * 1000);
        }
    }
    for (auto& each : events) CHECK_CUDA(cudaEventDestroy(each));
    for (auto& each : seen) std::nth_element(each.begin(), each.begin() + times / 2, each.end());
    const auto middle = static_cast<std::size_t>(times / 2);
    return {seen[0][middle], seen[1][middle]};
}

}  // namespace accel::tests
