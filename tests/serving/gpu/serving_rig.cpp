// SPDX-License-Identifier: Apache-2.0
#include "gpu/serving_rig.hpp"

#include "serving/models/gpu_memory.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <stdexcept>

#include <cuda_runtime.h>

namespace accel::tests {
namespace {

using namespace examples::serving;

void must(cudaError_t code) {
    if (code != cudaSuccess) throw std::runtime_error(cudaGetErrorString(code));
}

std::string failure_of(cudaError_t code) {
    return code == cudaSuccess ? std::string{} : cudaGetErrorString(code);
}

float float_at(std::span<const std::byte> payload, std::size_t at) {
    float value = 0;
    std::memcpy(&value, payload.data() + at * sizeof value, sizeof value);
    return value;
}

}  // namespace

gpu_buffer::gpu_buffer(const bytes& content, std::size_t misplaced) : misplaced_(misplaced), size_(content.size()) {
    must(cudaMalloc(&memory_, size_ + misplaced));
    must(cudaMemcpy(data(), content.data(), size_, cudaMemcpyDefault));
    // It may return before the last bytes are there, and other streams do not wait for them.
    must(cudaDeviceSynchronize());
}

gpu_buffer::~gpu_buffer() {
    (void)cudaFree(memory_);
}

void gpu_buffer::fill(const bytes& content, CUstream_st* stream) const {
    must(cudaMemcpyAsync(data(), content.data(), size_, cudaMemcpyDefault, stream));
    must(cudaStreamSynchronize(stream));
}

bytes gpu_buffer::fetch(CUstream_st* stream) const {
    bytes content(size_);
    must(cudaMemcpyAsync(content.data(), data(), size_, cudaMemcpyDefault, stream));
    must(cudaStreamSynchronize(stream));
    return content;
}

serving_rig::~serving_rig() {
    if (stream_ != nullptr) (void)cudaStreamDestroy(stream_);
}

std::string serving_rig::open() {
    const auto code = cudaSetDevice(0);
    if (code != cudaSuccess) return std::string{"there is no GPU: "} + cudaGetErrorString(code);
    must(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    return {};
}

std::vector<bytes> serving_rig::infer(model& what, const std::vector<bytes>& inputs) const {
    std::vector<std::unique_ptr<gpu_buffer>> there;
    std::vector<std::unique_ptr<gpu_buffer>> outputs;
    std::vector<model_job> jobs;
    for (const bytes& each : inputs) {
        const auto& in = *there.emplace_back(std::make_unique<gpu_buffer>(each));
        const auto& out =
            *outputs.emplace_back(std::make_unique<gpu_buffer>(bytes(payload_bytes(what.shapes().outputs))));
        jobs.push_back({{in.data(), in.size()}, {out.data(), out.size()}});
    }
    if (const auto done = what.infer(stream_, jobs); !done) throw std::runtime_error(done.error().message);
    std::vector<bytes> fetched;
    for (const auto& each : outputs) fetched.push_back(each->fetch(stream_));
    return fetched;
}

bytes serving_rig::preprocess(model& what, const bytes& image) const {
    const gpu_buffer there(image);
    const gpu_buffer input(bytes(payload_bytes(what.shapes().inputs)));
    const auto done = what.preprocess(stream_, {there.data(), there.size()}, {input.data(), input.size()});
    if (!done) throw std::runtime_error(done.error().message);
    return input.fetch(stream_);
}

recorded_run::~recorded_run() {
    if (graph_ != nullptr) (void)cudaGraphExecDestroy(graph_);
    if (stream_ != nullptr) (void)cudaStreamDestroy(stream_);
}

std::string recorded_run::record(const gpu_graph::recorder& work, const device::graph_iteration& iteration) {
    cudaGraph_t recorded = nullptr;
    must(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    must(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeRelaxed));
    const auto given = work(stream_, iteration);
    const auto ended = cudaStreamEndCapture(stream_, &recorded);
    if (!given) return given.error().message;
    if (ended != cudaSuccess) return failure_of(ended);
    const auto code = cudaGraphInstantiate(&graph_, recorded, 0);
    (void)cudaGraphDestroy(recorded);
    return failure_of(code);
}

std::string recorded_run::launch(CUstream_st* stream) const {
    return failure_of(cudaGraphLaunch(graph_, stream));
}

void copy_from_host(std::byte* to, CUstream_st* stream) {
    static std::byte* const pinned = [] {
        std::byte* made = nullptr;
        must(cudaMallocHost(&made, 40));
        return made;
    }();
    must(cudaMemcpyAsync(to, pinned, 40, cudaMemcpyHostToDevice, stream));
}

result<void> wait_for(CUstream_st* stream) {
    return cuda_result("the stream cannot be waited for", cudaStreamSynchronize(stream));
}

double float_distance(std::span<const std::byte> one, std::span<const std::byte> other) {
    if (one.size() != other.size()) return 1;
    if (std::ranges::equal(one, other)) return 0;
    double greatest = 0;
    double apart = 0;
    for (std::size_t i = 0; i < one.size() / sizeof(float); ++i) {
        const auto a = static_cast<double>(float_at(one, i));
        const auto b = static_cast<double>(float_at(other, i));
        if (!std::isfinite(a) || !std::isfinite(b)) return 1;
        greatest = std::max({greatest, std::abs(a), std::abs(b)});
        apart = std::max(apart, std::abs(a - b));
    }
    return greatest > 0 ? apart / greatest : 0;
}

}  // namespace accel::tests
