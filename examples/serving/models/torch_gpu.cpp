// SPDX-License-Identifier: Apache-2.0
#include "serving/models/torch_gpu.hpp"

#include "serving/models/gpu_memory.hpp"
#include "serving/models/image.hpp"
#include "serving/models/image_kernel.hpp"
#include "serving/models/recordings.hpp"

#include <mutex>
#include <utility>
#include <vector>

#include <ATen/cuda/CUDAGraph.h>
#include <c10/core/InferenceMode.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>

namespace accel::examples::serving {
namespace {

namespace allocator = c10::cuda::CUDACachingAllocator;

/// Within, what torch allocates on the stream is kept for a recording.
class recorded_pool {
  public:
    recorded_pool(c10::DeviceIndex device, c10::MempoolId_t pool, CUstream_st* stream) : device_(device), pool_(pool) {
        allocator::beginAllocateToPool(device, pool, [stream](CUstream_st* other) { return other == stream; });
    }
    recorded_pool(const recorded_pool&) = delete;
    recorded_pool& operator=(const recorded_pool&) = delete;
    ~recorded_pool() { allocator::endAllocateToPool(device_, pool_); }

  private:
    c10::DeviceIndex device_;
    c10::MempoolId_t pool_;
};

/// Its runner is the one that can be recorded, and that waits for nothing; it serves one thread at a time.
class compiled_network final : public torch_network {
  public:
    compiled_network(const std::string& path, c10::DeviceIndex gpu) : loader_(path, "model", true, 1, gpu) {}
    std::vector<at::Tensor> run(std::vector<at::Tensor> inputs) override {
        const std::lock_guard lock(mutex_);
        return loader_.boxed_run(std::move(inputs));
    }

  private:
    std::mutex mutex_;
    torch::inductor::AOTIModelPackageLoader loader_;
};

class torch_cuda final : public torch_gpu {
  public:
    explicit torch_cuda(std::int16_t ordinal) : index_(static_cast<c10::DeviceIndex>(ordinal)) {}
    torch_cuda(const torch_cuda&) = delete;
    torch_cuda& operator=(const torch_cuda&) = delete;
    ~torch_cuda() override {
        for (const c10::MempoolId_t& each : pools_) allocator::releasePool(index_, each);
    }

    c10::Device device() const noexcept override { return {c10::kCUDA, index_}; }
    std::unique_ptr<torch_network> read_package(const std::string& path) override {
        return std::make_unique<compiled_network>(path, index_);
    }
    void on_stream(CUstream_st* stream, const std::function<void()>& work) override {
        const c10::InferenceMode mode;
        const c10::cuda::CUDAStreamGuard guard(c10::cuda::getStreamFromExternal(stream, index_));
        work();
    }
    void on_own_stream(const std::function<void()>& work) override {
        const auto stream = c10::cuda::getStreamFromPool(false, index_);
        on_stream(stream.stream(), work);
        stream.synchronize();
    }
    result<void> preprocess(CUstream_st* stream, const model_shapes& shapes, std::span<const std::byte> image,
                            std::span<std::byte> input) override {
        return cuda_result("an image cannot be preprocessed",
                           launch_image(stream, image.data(), shapes.image, reinterpret_cast<float*>(input.data()),
                                        tensor_image(shapes)));
    }
    result<void> record(model& what, CUstream_st* stream, const device::graph_iteration& iteration) override;

  private:
    c10::DeviceIndex index_;
    recordings recordings_;
    std::mutex mutex_;                     ///< of the pools
    std::vector<c10::MempoolId_t> pools_;  ///< of recordings
};

result<void> torch_cuda::record(model& what, CUstream_st* stream, const device::graph_iteration& iteration) {
    result<void> done;
    auto thrown = with_torch(status::system_error, [&] {
        const auto pool = at::cuda::graph_pool_handle();
        on_stream(stream, [&] {
            const recorded_pool memory(index_, pool, stream);
            {
                const std::lock_guard lock(mutex_);
                pools_.push_back(pool);
            }
            done = recordings_.record(what, stream, iteration);
        });
    });
    return thrown ? done : thrown;
}

}  // namespace

result<std::unique_ptr<torch_gpu>> torch_gpu::open(std::int16_t ordinal) {
    if (auto ready = use_gpu(ordinal); !ready) return ready.error();
    if (auto ready = cuda_result("the GPU cannot run the kernels of this build", load_image_kernel()); !ready)
        return ready.error();
    return std::unique_ptr<torch_gpu>{std::make_unique<torch_cuda>(ordinal)};
}

}  // namespace accel::examples::serving
