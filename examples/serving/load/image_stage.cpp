// SPDX-License-Identifier: Apache-2.0
#include "serving/load/image_stage.hpp"

#include "serving/models/gpu_memory.hpp"
#include "serving/models/image.hpp"
#include "serving/models/image_kernel.hpp"

#include <utility>

#include <cuda_runtime.h>

namespace accel::examples::serving {
namespace {

struct host_release {
    void operator()(std::byte* memory) const noexcept { (void)cudaFreeHost(memory); }
};
struct stream_release {
    void operator()(CUstream_st* stream) const noexcept { (void)cudaStreamDestroy(stream); }
};

class image_stage_on_gpu final : public image_stage {
  public:
    image_stage_on_gpu(const model_shapes& model, const first_stage& chosen) : model_(model), chosen_(chosen) {}

    [[nodiscard]] result<void> open(context& ctx, std::span<const std::byte> image) {
        const std::size_t size = payload_bytes(model_.inputs);
        if (auto used = use_gpu(chosen_.gpu); !used) return used;
        if (auto loaded = cuda_result("the image kernel cannot be loaded", load_image_kernel()); !loaded) return loaded;
        cudaStream_t stream = nullptr;
        if (auto made = cuda_result("no stream", cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking)); !made)
            return made;
        stream_.reset(stream);
        auto kept = allocate_on_gpu(image.size());
        if (!kept) return kept.error();
        image_ = std::move(kept).value();
        auto memory = chosen_.from_host ? open_host(ctx, size) : ctx.allocate(size, memory_kind::cuda(chosen_.gpu));
        if (!memory) return memory.error();
        sent_ = std::move(memory).value();
        return cuda_result("the image cannot be copied",
                           cudaMemcpy(image_.get(), image.data(), image.size(), cudaMemcpyHostToDevice));
    }

    [[nodiscard]] result<void> run() override {
        if (auto used = use_gpu(chosen_.gpu); !used) return used;
        const std::size_t size = sent_.size();
        std::byte* const made = chosen_.from_host ? tensors_.get() : sent_.data();
        int code = launch_image(stream_.get(), image_.get(), model_.image, reinterpret_cast<float*>(made),
                                tensor_image(model_));
        if (code == cudaSuccess && chosen_.from_host)
            code = cudaMemcpyAsync(sent_.data(), made, size, cudaMemcpyDeviceToHost, stream_.get());
        if (code == cudaSuccess) code = cudaStreamSynchronize(stream_.get());
        return cuda_result("the image cannot be preprocessed", code);
    }

    [[nodiscard]] slice request() const noexcept override { return sent_.whole(); }

  private:
    /// Pinned, so that the GPU copies without a second copy. The context knows of no GPU.
    [[nodiscard]] result<region> open_host(context& ctx, std::size_t size) {
        auto tensors = allocate_on_gpu(size);
        if (!tensors) return tensors.error();
        tensors_ = std::move(tensors).value();
        void* memory = nullptr;
        if (auto got = cuda_result("no pinned memory", cudaMallocHost(&memory, size)); !got) return got.error();
        pinned_.reset(static_cast<std::byte*>(memory));
        return ctx.register_memory(memory, size);
    }

    const model_shapes& model_;
    first_stage chosen_;
    std::unique_ptr<CUstream_st, stream_release> stream_;
    gpu_memory image_;
    gpu_memory tensors_;                               ///< `from_host` alone, as is:
    std::unique_ptr<std::byte, host_release> pinned_;  ///< behind `sent_`
    region sent_;
};

}  // namespace

result<std::unique_ptr<image_stage>> image_stage::make(context& ctx, const model_shapes& model,
                                                       std::span<const std::byte> image, const first_stage& chosen) {
    if (!takes_images(model) || image.size() != image_bytes(model.image))
        return error{status::unsupported, 0, "the model '" + model.name + "' does not take raw images"};
    auto made = std::make_unique<image_stage_on_gpu>(model, chosen);
    if (auto opened = made->open(ctx, image); !opened) return opened.error();
    return std::unique_ptr<image_stage>(std::move(made));
}

}  // namespace accel::examples::serving
