// SPDX-License-Identifier: Apache-2.0
#include "serving/models/torch_file.hpp"

#include "serving/models/gpu_memory.hpp"
#include "serving/models/image.hpp"
#include "serving/models/image_kernel.hpp"
#include "serving/models/recordings.hpp"
#include "serving/models/torch_network.hpp"

#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/cuda/CUDAGraph.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/util/Exception.h>

namespace accel::examples::serving {
namespace {

namespace allocator = c10::cuda::CUDACachingAllocator;

constexpr std::size_t torch_batch_limit = 64;
using tensors_of_torch = std::vector<at::Tensor>;

/// Within, torch works for inference only, and on a GPU on this stream.
class torch_scope {
  public:
    torch_scope(std::int16_t gpu, CUstream_st* stream) {
        if (gpu >= 0) guard_.emplace(c10::cuda::getStreamFromExternal(stream, static_cast<c10::DeviceIndex>(gpu)));
    }

  private:
    c10::InferenceMode mode_;
    std::optional<c10::cuda::CUDAStreamGuard> guard_;
};

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

std::vector<std::int64_t> sizes_of(const tensor& one, std::size_t batch) {
    std::vector<std::int64_t> sizes(one.shape, one.shape + one.rank);
    if (!sizes.empty()) sizes[0] *= static_cast<std::int64_t>(batch);
    return sizes;
}

class torch_file_model final : public model {
  public:
    torch_file_model(const model_shapes& shapes, std::int16_t gpu, std::unique_ptr<torch_network> network)
        : shapes_(shapes), gpu_(gpu), network_(std::move(network)) {
        if (takes_images(shapes) && gpu < 0) images_.emplace(shapes.image, tensor_image(shapes));
    }
    torch_file_model(const torch_file_model&) = delete;
    torch_file_model& operator=(const torch_file_model&) = delete;
    ~torch_file_model() override {
        for (const c10::MempoolId_t& each : pools_) allocator::releasePool(index(), each);
    }

    const model_shapes& shapes() const noexcept override { return shapes_; }
    memory_kind memory() const noexcept override { return gpu_ < 0 ? memory_kind::host() : memory_kind::cuda(gpu_); }
    std::size_t max_batch() const noexcept override { return torch_batch_limit; }

    result<void> preprocess(CUstream_st* stream, std::span<const std::byte> image, std::span<std::byte> input) override;
    result<void> infer(CUstream_st* stream, std::span<const model_job> batch) override;
    gpu_graph::recorder recorder() override;

    /// Runs it on zeros and compares what comes with the table; finds out whether it takes batches.
    [[nodiscard]] result<void> try_out();

  private:
    [[nodiscard]] c10::DeviceIndex index() const noexcept { return static_cast<c10::DeviceIndex>(gpu_); }
    [[nodiscard]] at::TensorOptions options() const {
        const at::Device device = gpu_ < 0 ? at::Device(at::kCPU) : at::Device(at::kCUDA, index());
        return at::TensorOptions(device).dtype(at::kFloat);
    }
    [[nodiscard]] at::Tensor view(const std::byte* memory, const tensor& one) const;
    /// The tensors of a payload, without a copy.
    [[nodiscard]] tensors_of_torch views(const std::byte* payload, std::span<const tensor> list) const;
    [[nodiscard]] tensors_of_torch gather(std::span<const model_job> batch) const;
    void scatter(const tensors_of_torch& outputs, std::span<const model_job> batch) const;
    /// Throws unless these are the outputs of a batch of so many.
    void check(const tensors_of_torch& outputs, std::size_t batch) const;
    [[nodiscard]] tensors_of_torch run_on_zeros(std::size_t batch);
    void run(std::span<const model_job> batch);
    /// Loads what is each thread's own, and waits.
    void warm_up();
    [[nodiscard]] result<void> record(CUstream_st* stream, const device::graph_iteration& iteration);

    model_shapes shapes_;
    std::int16_t gpu_;  ///< below 0: the CPU
    std::unique_ptr<torch_network> network_;
    std::optional<image_preprocessor> images_;  ///< on the CPU
    bool batches_ = false;                      ///< it takes more than one request at once
    recordings recordings_;
    std::mutex mutex_;                     ///< of the pools
    std::vector<c10::MempoolId_t> pools_;  ///< of recordings
};

at::Tensor torch_file_model::view(const std::byte* memory, const tensor& one) const {
    const auto sizes = sizes_of(one, 1);
    return at::for_blob(const_cast<std::byte*>(memory), sizes)
        .options(options())
        .target_device(options().device())
        .make_tensor();
}

tensors_of_torch torch_file_model::views(const std::byte* payload, std::span<const tensor> list) const {
    tensors_of_torch all;
    std::size_t end = 0;
    for (const tensor& each : list) {
        const std::size_t begin = (end + 63) / 64 * 64;
        all.push_back(view(payload + begin, each));
        end = begin + size_bytes(each);
    }
    return all;
}

tensors_of_torch torch_file_model::gather(std::span<const model_job> batch) const {
    if (batch.size() == 1) return views(batch[0].input.data(), shapes_.inputs);
    std::vector<tensors_of_torch> parts(shapes_.inputs.size());
    for (const model_job& job : batch) {
        const tensors_of_torch one = views(job.input.data(), shapes_.inputs);
        for (std::size_t i = 0; i < one.size(); ++i) parts[i].push_back(one[i]);
    }
    tensors_of_torch all;
    for (const tensors_of_torch& each : parts) all.push_back(at::cat(each));
    return all;
}

void torch_file_model::scatter(const tensors_of_torch& outputs, std::span<const model_job> batch) const {
    for (std::size_t job = 0; job < batch.size(); ++job) {
        const tensors_of_torch room = views(batch[job].output.data(), shapes_.outputs);
        for (std::size_t i = 0; i < room.size(); ++i) {
            const std::int64_t rows = room[i].dim() == 0 ? 0 : room[i].size(0);
            const bool whole = batch.size() == 1;
            room[i].copy_(whole ? outputs[i] : outputs[i].narrow(0, static_cast<std::int64_t>(job) * rows, rows), true);
        }
    }
}

void torch_file_model::check(const tensors_of_torch& outputs, std::size_t batch) const {
    TORCH_CHECK(outputs.size() == shapes_.outputs.size(), "it gives ", outputs.size(), " tensors, not ",
                shapes_.outputs.size());
    for (std::size_t i = 0; i < outputs.size(); ++i) {
        const auto wanted = sizes_of(shapes_.outputs[i], batch);
        TORCH_CHECK(outputs[i].sizes() == at::IntArrayRef(wanted), "its output ", i, " has the shape ",
                    outputs[i].sizes(), ", not ", at::IntArrayRef(wanted));
        TORCH_CHECK(outputs[i].scalar_type() == at::kFloat, "its output ", i, " is of ", outputs[i].scalar_type(),
                    ", not of Float");
    }
}

tensors_of_torch torch_file_model::run_on_zeros(std::size_t batch) {
    tensors_of_torch inputs;
    for (const tensor& each : shapes_.inputs) inputs.push_back(at::zeros(sizes_of(each, batch), options()));
    return network_->run(std::move(inputs));
}

void torch_file_model::warm_up() {
    if (gpu_ < 0) return check(run_on_zeros(1), 1);
    const auto stream = c10::cuda::getStreamFromPool(false, index());
    const torch_scope here(gpu_, stream.stream());
    for (int i = 0; i < 3; ++i) check(run_on_zeros(1), 1);
    stream.synchronize();
}

result<void> torch_file_model::try_out() {
    const c10::InferenceMode mode;
    auto one = with_torch(status::invalid_argument, [&] { warm_up(); });
    if (!one) return error{one.error().code, 0, "it is not a " + shapes_.name + ": " + one.error().message};
    const auto two = with_torch(status::unsupported, [&] {
        const auto stream = gpu_ < 0 ? nullptr : c10::cuda::getStreamFromPool(false, index()).stream();
        const torch_scope here(gpu_, stream);
        check(run_on_zeros(2), 2);
        if (gpu_ >= 0) c10::cuda::getStreamFromExternal(stream, index()).synchronize();
    });
    batches_ = two.ok();
    return {};
}

result<void> torch_file_model::preprocess(CUstream_st* stream, std::span<const std::byte> image,
                                          std::span<std::byte> input) {
    if (!takes_images(shapes_))
        return error{status::unsupported, 0, "the model '" + shapes_.name + "' does not take raw images"};
    if (image.size() != image_bytes(shapes_.image) || input.size() < payload_bytes(shapes_.inputs))
        return error{status::invalid_argument, 0,
                     "an image does not have the length of those of '" + shapes_.name + "'"};
    if (images_) {
        images_->run(image, input);
        return {};
    }
    return cuda_result("an image cannot be preprocessed",
                       launch_image(stream, image.data(), shapes_.image, reinterpret_cast<float*>(input.data()),
                                    tensor_image(shapes_)));
}

void torch_file_model::run(std::span<const model_job> batch) {
    const tensors_of_torch outputs = network_->run(gather(batch));
    check(outputs, batch.size());
    scatter(outputs, batch);
}

result<void> torch_file_model::infer(CUstream_st* stream, std::span<const model_job> batch) {
    for (const model_job& each : batch)
        if (each.input.size() < payload_bytes(shapes_.inputs) || each.output.size() < payload_bytes(shapes_.outputs))
            return error{status::invalid_argument, 0,
                         "a payload does not have the length of those of '" + shapes_.name + "'"};
    return with_torch(status::system_error, [&] {
        const torch_scope here(gpu_, stream);
        if (batches_) return run(batch);
        for (std::size_t i = 0; i < batch.size(); ++i) run(batch.subspan(i, 1));
    });
}

result<void> torch_file_model::record(CUstream_st* stream, const device::graph_iteration& iteration) {
    result<void> done;
    auto thrown = with_torch(status::system_error, [&] {
        const auto pool = at::cuda::graph_pool_handle();
        const torch_scope here(gpu_, stream);
        const recorded_pool memory(index(), pool, stream);
        {
            const std::lock_guard lock(mutex_);
            pools_.push_back(pool);
        }
        done = recordings_.record(*this, stream, iteration);
    });
    return thrown ? done : thrown;
}

gpu_graph::recorder torch_file_model::recorder() {
    if (gpu_ < 0) return {};
    // Handles and choices of algorithms are each thread's own, and cannot be made while it records.
    (void)with_torch(status::system_error, [&] {
        const c10::InferenceMode mode;
        warm_up();
    });
    return [this](CUstream_st* stream, const device::graph_iteration& iteration) { return record(stream, iteration); };
}

}  // namespace

result<std::unique_ptr<model>> load_torch_file(std::string_view name, const std::string& path, std::int16_t gpu) {
    const model_shapes* const shapes = find_model(name);
    if (shapes == nullptr)
        return error{status::invalid_argument, 0, "there is no model '" + std::string{name} + "' in the table"};
    if (gpu >= 0) {
        if (auto ready = use_gpu(gpu); !ready) return ready.error();
        if (auto ready = cuda_result("the GPU cannot run the kernels of this build", load_image_kernel()); !ready)
            return ready.error();
    }
    auto network = read_torch_network(path, gpu);
    if (!network) return network.error();
    auto made = std::make_unique<torch_file_model>(*shapes, gpu, std::move(*network));
    if (auto tried = made->try_out(); !tried) return error{tried.error().code, 0, path + ": " + tried.error().message};
    return std::unique_ptr<model>{std::move(made)};
}

bool has_torch_files() noexcept {
    return true;
}

}  // namespace accel::examples::serving
