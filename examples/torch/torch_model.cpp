// SPDX-License-Identifier: Apache-2.0
#include "torch/torch_model.hpp"

#include "torch/image_model.hpp"

#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include <ATen/cuda/CUDAGraph.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/utils.h>

namespace accel::examples::vision {
namespace {

namespace allocator = c10::cuda::CUDACachingAllocator;

constexpr std::int64_t side = 224;
constexpr std::int64_t channels = 3;
constexpr std::int64_t classes = 1000;

/// What torch throws, as a result.
template <class Work>
result<void> attempt(const Work& work) {
    try {
        work();
        return {};
    } catch (const c10::Error& failure) {
        return error{status::system_error, 0, failure.what_without_backtrace()};
    } catch (const std::exception& failure) {
        return error{status::system_error, 0, failure.what()};
    }
}

/// Within, torch works on the stream, and for inference only.
struct on_stream {
    explicit on_stream(const c10::cuda::CUDAStream& stream) : guard(stream) {}
    c10::InferenceMode mode;
    c10::cuda::CUDAStreamGuard guard;
};

/// Within, what torch allocates on the stream comes from this pool, and from no other.
class private_pool {
  public:
    private_pool(c10::DeviceIndex device, c10::MempoolId_t pool, CUstream_st* stream) : device_(device), pool_(pool) {
        allocator::beginAllocateToPool(device, pool, [stream](CUstream_st* other) { return other == stream; });
    }
    private_pool(const private_pool&) = delete;
    private_pool& operator=(const private_pool&) = delete;
    ~private_pool() { allocator::endAllocateToPool(device_, pool_); }

  private:
    c10::DeviceIndex device_;
    c10::MempoolId_t pool_;
};

/// A CUDA graph, and the memory that it reads and writes.
struct recording {
    at::Tensor image, logits;
    at::cuda::CUDAGraph graph;
};

}  // namespace

struct torch_model::state {
    explicit state(const torch_model_options& options)
        : device(c10::kCUDA, static_cast<c10::DeviceIndex>(options.gpu)), type(options.half ? at::kHalf : at::kFloat) {}
    state(const state&) = delete;
    state& operator=(const state&) = delete;
    ~state() {
        for (const c10::MempoolId_t& each : pools) allocator::releasePool(device.index(), each);
    }

    c10::Device device;
    at::ScalarType type;
    std::shared_ptr<image_model> network;
    std::vector<c10::MempoolId_t> pools;  ///< of recordings that are not ours
    std::mutex mutex;                     ///< of the next
    std::map<CUstream_st*, std::unique_ptr<recording>> recordings;

    [[nodiscard]] at::Tensor view(const std::byte* memory, at::IntArrayRef sizes) const {
        return at::for_blob(const_cast<std::byte*>(memory), sizes)
            .options(at::TensorOptions(device).dtype(type))
            .target_device(device)
            .make_tensor();
    }
    [[nodiscard]] at::Tensor image(const std::byte* memory) const { return view(memory, {1, channels, side, side}); }
    [[nodiscard]] at::Tensor logits(std::byte* memory) const { return view(memory, {1, classes}); }
    [[nodiscard]] c10::cuda::CUDAStream stream_of(CUstream_st* stream) const {
        return c10::cuda::getStreamFromExternal(stream, device.index());
    }

    void load(const std::string& name);
    [[nodiscard]] recording& recording_for(CUstream_st* stream);
    [[nodiscard]] std::unique_ptr<recording> capture() const;
};

void torch_model::state::load(const std::string& name) {
    torch::manual_seed(0);
    network = name == "resnet50" ? make_resnet50() : make_mobilenet_v3();
    network->eval();
    network->to(device, type);
    const c10::cuda::CUDAStream stream = c10::cuda::getStreamFromPool(false, device.index());
    const on_stream here(stream);
    const auto nothing = at::zeros({1, channels, side, side}, at::TensorOptions(device).dtype(type));
    for (int i = 0; i < 3; ++i) (void)network->forward(nothing);
    stream.synchronize();
}

/// On the current stream, which waits.
std::unique_ptr<recording> torch_model::state::capture() const {
    auto made = std::make_unique<recording>();
    made->image = at::zeros({1, channels, side, side}, at::TensorOptions(device).dtype(type));
    made->logits = at::zeros({1, classes}, at::TensorOptions(device).dtype(type));
    // Handles and choices of algorithms are each thread's own.
    for (int i = 0; i < 2; ++i) made->logits.copy_(network->forward(made->image));
    c10::cuda::getCurrentCUDAStream(device.index()).synchronize();
    made->graph.capture_begin({0, 0}, cudaStreamCaptureModeThreadLocal);
    made->logits.copy_(network->forward(made->image), true);
    made->graph.capture_end();
    return made;
}

recording& torch_model::state::recording_for(CUstream_st* stream) {
    const std::lock_guard lock(mutex);
    std::unique_ptr<recording>& found = recordings[stream];
    if (!found) {
        const on_stream aside(c10::cuda::getStreamFromPool(false, device.index()));
        found = capture();
    }
    return *found;
}

torch_model::torch_model(std::unique_ptr<state> made) noexcept : state_(std::move(made)) {}
torch_model::torch_model(torch_model&&) noexcept = default;
torch_model& torch_model::operator=(torch_model&&) noexcept = default;
torch_model::~torch_model() = default;

result<torch_model> torch_model::create(const torch_model_options& options) {
    if (options.name != "resnet50" && options.name != "mobilenet_v3")
        return error{status::invalid_argument, 0, "there are resnet50 and mobilenet_v3, no " + options.name};
    auto made = std::make_unique<state>(options);
    if (auto loaded = attempt([&] { made->load(options.name); }); !loaded) return loaded.error();
    return torch_model{std::move(made)};
}

std::size_t torch_model::input_bytes() const noexcept {
    return static_cast<std::size_t>(channels * side * side) * c10::elementSize(state_->type);
}

std::size_t torch_model::output_bytes() const noexcept {
    return static_cast<std::size_t>(classes) * c10::elementSize(state_->type);
}

result<void> torch_model::infer(CUstream_st* stream, const std::byte* image, std::byte* logits) {
    return attempt([&] {
        const on_stream here(state_->stream_of(stream));
        state_->logits(logits).copy_(state_->network->forward(state_->image(image)), true);
    });
}

result<void> torch_model::replay(CUstream_st* stream, const std::byte* image, std::byte* logits) {
    return attempt([&] {
        recording& mine = state_->recording_for(stream);
        const on_stream here(state_->stream_of(stream));
        mine.image.copy_(state_->image(image), true);
        mine.graph.replay();
        state_->logits(logits).copy_(mine.logits, true);
    });
}

result<void> torch_model::record(CUstream_st* stream, const std::byte* image, std::byte* logits) {
    return attempt([&] {
        const auto pool = at::cuda::graph_pool_handle();
        const on_stream here(state_->stream_of(stream));
        const private_pool memory(state_->device.index(), pool, stream);
        state_->pools.push_back(pool);
        state_->logits(logits).copy_(state_->network->forward(state_->image(image)), true);
    });
}

}  // namespace accel::examples::vision
