// SPDX-License-Identifier: Apache-2.0
#include "serving/models/gpu_memory.hpp"
#include "serving/models/gpu_models.hpp"
#include "serving/models/image.hpp"
#include "serving/models/image_kernel.hpp"
#include "serving/models/recordings.hpp"
#include "serving/models/stream_slots.hpp"
#include "serving/models/synthetic.hpp"
#include "serving/models/synthetic_kernel.hpp"

#include <utility>

namespace accel::examples::serving {
namespace {

constexpr std::size_t batch_limit = 64;

class synthetic_gpu_model final : public model {
  public:
    synthetic_gpu_model(const model_shapes& shapes, double rate, std::int16_t gpu, gpu_memory sums)
        : shapes_(shapes), rate_(rate), gpu_(gpu), sums_(std::move(sums)), slots_(gpu_model_streams) {}

    const model_shapes& shapes() const noexcept override { return shapes_; }
    memory_kind memory() const noexcept override { return memory_kind::cuda(gpu_); }
    std::size_t max_batch() const noexcept override { return batch_limit; }

    result<void> preprocess(CUstream_st* stream, std::span<const std::byte> image,
                            std::span<std::byte> input) override {
        if (!takes_images(shapes_))
            return error{status::unsupported, 0, "the model '" + shapes_.name + "' does not take raw images"};
        if (image.size() != image_bytes(shapes_.image) || input.size() < payload_bytes(shapes_.inputs))
            return error{status::invalid_argument, 0,
                         "an image does not have the length of those of '" + shapes_.name + "'"};
        return cuda_result("an image cannot be preprocessed",
                           launch_image(stream, image.data(), shapes_.image, reinterpret_cast<float*>(input.data()),
                                        tensor_image(shapes_)));
    }

    result<void> infer(CUstream_st* stream, std::span<const model_job> batch) override {
        if (batch.size() > batch_limit) return error{status::invalid_argument, 0, "the batch has too many requests"};
        const auto slot = slots_.of(stream);
        if (!slot) return error{status::overloaded, 0, "there are more streams than the model has scratch memory for"};
        auto* const sums = reinterpret_cast<std::uint64_t*>(sums_.get()) + *slot * batch_limit;
        return cuda_result("a synthetic inference cannot be launched", launch(stream, batch, sums));
    }

    gpu_graph::recorder recorder() override {
        return [this](CUstream_st* stream, const device::graph_iteration& iteration) {
            return recordings_.record(*this, stream, iteration);
        };
    }

  private:
    int launch(CUstream_st* stream, std::span<const model_job> batch, std::uint64_t* sums) const noexcept {
        const auto length = synthetic_duration(shapes_, batch.size(), rate_);
        int code = 0;
        for (std::size_t i = 0; i < batch.size() && code == 0; ++i)
            code = launch_synthetic_sum(stream, batch[i].input, sums + i);
        if (code == 0) code = launch_spin(stream, static_cast<std::uint64_t>(length.count()));
        for (std::size_t i = 0; i < batch.size() && code == 0; ++i)
            code = launch_synthetic_output(stream, sums + i, batch[i].input.size(), batch[i].output);
        return code;
    }

    model_shapes shapes_;
    double rate_;
    std::int16_t gpu_;
    gpu_memory sums_;  ///< `batch_limit` for each slot
    stream_slots slots_;
    recordings recordings_;
};

}  // namespace

result<std::unique_ptr<model>> load_synthetic_gpu(const model_shapes& shapes, double gflops_per_second,
                                                  std::int16_t gpu) {
    if (auto ready = use_gpu(gpu); !ready) return ready.error();
    for (const int code : {load_image_kernel(), load_synthetic_kernels()})
        if (auto ready = cuda_result("the GPU cannot run the kernels of this build", code); !ready)
            return ready.error();
    auto sums = allocate_on_gpu(gpu_model_streams * batch_limit * sizeof(std::uint64_t));
    if (!sums) return sums.error();
    return std::unique_ptr<model>{
        std::make_unique<synthetic_gpu_model>(shapes, gflops_per_second, gpu, std::move(*sums))};
}

}  // namespace accel::examples::serving
