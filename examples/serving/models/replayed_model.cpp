// SPDX-License-Identifier: Apache-2.0
#include "serving/models/replayed_model.hpp"

#include "serving/models/gpu_models.hpp"

#include <accel_transport/device/graph.hpp>

#include <cstdlib>
#include <string>
#include <utility>

#include <cuda_runtime.h>

namespace accel::examples::serving {
namespace {

bool on_gpu(const void* address) {
    cudaPointerAttributes seen{};
    if (cudaPointerGetAttributes(&seen, address) == cudaSuccess) return seen.type == cudaMemoryTypeDevice;
    (void)cudaGetLastError();
    return false;
}

/// A copy from the host would bring the bytes of the recording's time again each time.
bool stays_on_gpu(cudaGraphNode_t node) {
    cudaGraphNodeType kind{};
    if (cudaGraphNodeGetType(node, &kind) != cudaSuccess) return false;
    if (kind == cudaGraphNodeTypeMemcpy) {
        cudaMemcpy3DParms copy{};
        return cudaGraphMemcpyNodeGetParams(node, &copy) == cudaSuccess && on_gpu(copy.srcPtr.ptr) &&
               on_gpu(copy.dstPtr.ptr);
    }
    return kind == cudaGraphNodeTypeKernel || kind == cudaGraphNodeTypeMemset || kind == cudaGraphNodeTypeEmpty;
}

result<void> check_nodes(cudaGraph_t graph) {
    std::size_t count = 0;
    if (auto counted = cuda_result("its nodes cannot be counted", cudaGraphGetNodes(graph, nullptr, &count)); !counted)
        return counted;
    std::vector<cudaGraphNode_t> nodes(count);
    if (auto got = cuda_result("its nodes cannot be read", cudaGraphGetNodes(graph, nodes.data(), &count)); !got)
        return got;
    for (cudaGraphNode_t each : nodes)
        if (!stays_on_gpu(each))
            return error{status::unsupported, 0, "it does more than kernels, copies and memsets within the GPU"};
    return {};
}

}  // namespace

/// The work of one inference, with the memory that it reads and writes.
class replayed_model::recording {
  public:
    recording() = default;
    recording(const recording&) = delete;
    recording& operator=(const recording&) = delete;
    ~recording() {
        if (ready_ != nullptr) (void)cudaGraphExecDestroy(ready_);
        if (stream_ != nullptr) (void)cudaStreamDestroy(stream_);
    }

    [[nodiscard]] result<void> make(const model_shapes& shapes, const gpu_graph::recorder& work);
    [[nodiscard]] result<void> replay(CUstream_st* stream, const model_job& job, std::atomic<std::uint64_t>& copies,
                                      std::atomic<std::uint64_t>& bytes) const;
    [[nodiscard]] std::span<std::byte> input() const noexcept { return {input_.get(), input_bytes_}; }

  private:
    [[nodiscard]] result<void> capture(const gpu_graph::recorder& work, cudaGraph_t& graph);

    gpu_memory input_;
    gpu_memory output_;
    std::size_t input_bytes_ = 0;
    std::size_t output_bytes_ = 0;
    cudaStream_t stream_ = nullptr;  ///< kept: models have scratch memory for each stream that they were recorded on
    cudaGraphExec_t ready_ = nullptr;
};

result<void> replayed_model::recording::make(const model_shapes& shapes, const gpu_graph::recorder& work) {
    input_bytes_ = payload_bytes(shapes.inputs);
    output_bytes_ = payload_bytes(shapes.outputs);
    auto input = allocate_on_gpu(input_bytes_);
    if (!input) return input.error();
    auto output = allocate_on_gpu(output_bytes_);
    if (!output) return output.error();
    input_ = std::move(*input);
    output_ = std::move(*output);
    cudaGraph_t graph = nullptr;
    auto done = capture(work, graph);
    if (done) done = check_nodes(graph);
    if (done) done = cuda_result("its graph cannot be made ready", cudaGraphInstantiate(&ready_, graph, 0));
    if (graph != nullptr) (void)cudaGraphDestroy(graph);
    return done;
}

/// Other threads may allocate meanwhile.
result<void> replayed_model::recording::capture(const gpu_graph::recorder& work, cudaGraph_t& graph) {
    auto made = cuda_result("a stream for the recording cannot be made",
                            cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    if (!made) return made;
    auto begun =
        cuda_result("the recording cannot begin", cudaStreamBeginCapture(stream_, cudaStreamCaptureModeRelaxed));
    if (!begun) return begun;
    device::graph_iteration iteration;
    iteration.input = input_.get();
    iteration.output = output_.get();
    iteration.input_bytes = input_bytes_;
    iteration.output_bytes = output_bytes_;
    iteration.batch = 1;
    auto given = work(stream_, iteration);
    auto ended = cuda_result("the recording cannot end", cudaStreamEndCapture(stream_, &graph));
    return given ? ended : given;
}

result<void> replayed_model::recording::replay(CUstream_st* stream, const model_job& job,
                                               std::atomic<std::uint64_t>& copies,
                                               std::atomic<std::uint64_t>& bytes) const {
    int code = 0;
    const auto copy = [&](std::byte* to, const std::byte* from, std::size_t length) {
        code = cudaMemcpyAsync(to, from, length, cudaMemcpyDeviceToDevice, stream);
        copies.fetch_add(1, std::memory_order_relaxed);
        bytes.fetch_add(length, std::memory_order_relaxed);
    };
    if (job.input.data() != input_.get()) copy(input_.get(), job.input.data(), input_bytes_);
    if (code == 0) code = cudaGraphLaunch(ready_, stream);
    if (code == 0) copy(job.output.data(), output_.get(), output_bytes_);
    return cuda_result("a recorded inference cannot be launched", code);
}

replayed_model::replayed_model()
    : slots_(gpu_model_streams), recordings_(gpu_model_streams), failed_(gpu_model_streams) {}

replayed_model::~replayed_model() = default;

result<std::unique_ptr<model>> replayed_model::create(std::unique_ptr<model>& what) {
    std::unique_ptr<replayed_model> made(new replayed_model);
    made->what_ = std::move(what);
    auto first = made->record();
    if (!first) {
        what = std::move(made->what_);
        return first.error();
    }
    made->spare_ = std::move(*first);
    return std::unique_ptr<model>{std::move(made)};
}

result<std::unique_ptr<replayed_model::recording>> replayed_model::record() {
    if (auto ready = use_gpu(memory().ordinal); !ready) return ready.error();
    const gpu_graph::recorder work = what_->recorder();
    if (!work) return error{status::unsupported, 0, "it has no recorder"};
    auto made = std::make_unique<recording>();
    if (auto done = made->make(shapes(), work); !done) return done.error();
    return made;
}

/// A stream belongs to one worker, so no other thread uses its slot meanwhile.
replayed_model::recording* replayed_model::of(CUstream_st* stream) {
    const auto slot = slots_.of(stream);
    if (!slot) return nullptr;
    if (recordings_[*slot] != nullptr || failed_[*slot] != 0) return recordings_[*slot].get();
    const std::lock_guard lock(mutex_);
    recordings_[*slot] = std::move(spare_);
    if (recordings_[*slot] != nullptr) return recordings_[*slot].get();
    if (auto made = record())
        recordings_[*slot] = std::move(*made);
    else
        failed_[*slot] = 1;
    return recordings_[*slot].get();
}

std::span<std::byte> replayed_model::input_room(CUstream_st* stream) {
    const recording* const own = of(stream);
    return own == nullptr ? std::span<std::byte>{} : own->input();
}

result<void> replayed_model::infer(CUstream_st* stream, std::span<const model_job> batch) {
    const recording* const own = batch.size() == 1 ? of(stream) : nullptr;
    if (own == nullptr) return what_->infer(stream, batch);
    if (batch[0].input.size() < payload_bytes(shapes().inputs) ||
        batch[0].output.size() < payload_bytes(shapes().outputs))
        return error{status::invalid_argument, 0,
                     "a payload does not have the length of those of '" + shapes().name + "'"};
    replayed_.fetch_add(1, std::memory_order_relaxed);
    return own->replay(stream, batch[0], copies_, copied_bytes_);
}

void use_all_gpu_queues() noexcept {
    (void)::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
}

result<std::unique_ptr<model>> replay_graphs(std::unique_ptr<model>& what) {
    return replayed_model::create(what);
}

replay_statistics replayed_model::replays() const noexcept {
    return {replayed_.load(std::memory_order_relaxed), copies_.load(std::memory_order_relaxed),
            copied_bytes_.load(std::memory_order_relaxed)};
}

}  // namespace accel::examples::serving
