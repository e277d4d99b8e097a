// SPDX-License-Identifier: Apache-2.0
#include "serving/models/torch_file.hpp"

#include "serving/models/image.hpp"
#include "serving/models/torch_gpu.hpp"
#include "serving/models/torch_network.hpp"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/ops/cat.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>
#include <c10/util/Exception.h>

namespace accel::examples::serving {
namespace {

constexpr std::size_t torch_batch_limit = 64;
using tensors_of_torch = std::vector<at::Tensor>;

/// Empty: torch has none.
std::optional<at::ScalarType> scalar_of(const data_type& type) {
    struct pair {
        data_type ours;
        at::ScalarType theirs;
    };
    constexpr pair pairs[] = {
        {{type_code::floating, 32, 1}, at::kFloat},       {{type_code::floating, 16, 1}, at::kHalf},
        {{type_code::floating, 64, 1}, at::kDouble},      {{type_code::bfloat, 16, 1}, at::kBFloat16},
        {{type_code::signed_integer, 8, 1}, at::kChar},   {{type_code::signed_integer, 16, 1}, at::kShort},
        {{type_code::signed_integer, 32, 1}, at::kInt},   {{type_code::signed_integer, 64, 1}, at::kLong},
        {{type_code::unsigned_integer, 8, 1}, at::kByte}, {{type_code::boolean, 8, 1}, at::kBool},
    };
    for (const pair& each : pairs)
        if (each.ours == type) return each.theirs;
    return std::nullopt;
}

std::vector<std::int64_t> sizes_of(const tensor& one, std::size_t batch) {
    std::vector<std::int64_t> sizes(one.shape, one.shape + one.rank);
    if (!sizes.empty()) sizes[0] *= static_cast<std::int64_t>(batch);
    return sizes;
}

class torch_file_model final : public model {
  public:
    /// `gpu` null: on the CPU.
    torch_file_model(const model_shapes& shapes, std::int16_t ordinal, std::unique_ptr<torch_gpu> gpu,
                     std::unique_ptr<torch_network> network)
        : shapes_(shapes), ordinal_(ordinal), gpu_(std::move(gpu)), network_(std::move(network)) {
        if (takes_images(shapes) && gpu_ == nullptr) images_.emplace(shapes.image, tensor_image(shapes));
    }

    const model_shapes& shapes() const noexcept override { return shapes_; }
    memory_kind memory() const noexcept override {
        return gpu_ == nullptr ? memory_kind::host() : memory_kind::cuda(ordinal_);
    }
    std::size_t max_batch() const noexcept override { return torch_batch_limit; }

    result<void> preprocess(CUstream_st* stream, std::span<const std::byte> image, std::span<std::byte> input) override;
    result<void> infer(CUstream_st* stream, std::span<const model_job> batch) override;
    gpu_graph::recorder recorder() override;

    /// Runs it on zeros and compares what comes with the table; finds out whether it takes batches.
    [[nodiscard]] result<void> try_out();

  private:
    [[nodiscard]] at::TensorOptions options(const tensor& one) const {
        const at::Device device = gpu_ == nullptr ? at::Device(at::kCPU) : gpu_->device();
        const auto type = scalar_of(one.type);
        TORCH_CHECK(type, "torch has no such type of elements");
        return at::TensorOptions(device).dtype(*type);
    }
    [[nodiscard]] at::Tensor view(const std::byte* memory, const tensor& one) const;
    /// The tensors of a payload, without a copy.
    [[nodiscard]] tensors_of_torch views(const std::byte* payload, std::span<const tensor> list) const;
    [[nodiscard]] tensors_of_torch gather(std::span<const model_job> batch) const;
    void scatter(const tensors_of_torch& outputs, std::span<const model_job> batch) const;
    /// What `check` expects of an output of this size: of an open dimension it takes what there is, up to the longest.
    [[nodiscard]] std::vector<std::int64_t> expected(std::size_t index, std::size_t batch, at::IntArrayRef seen) const;
    /// Throws unless these are the outputs of a batch of so many.
    void check(const tensors_of_torch& outputs, std::size_t batch) const;
    [[nodiscard]] tensors_of_torch run_on_zeros(std::size_t batch);
    void run(std::span<const model_job> batch);
    void on_stream(CUstream_st* stream, const std::function<void()>& work);
    void on_own_stream(const std::function<void()>& work);
    /// Loads what is each thread's own, and waits.
    void warm_up();

    model_shapes shapes_;
    std::int16_t ordinal_;
    std::unique_ptr<torch_gpu> gpu_;
    std::unique_ptr<torch_network> network_;
    std::optional<image_preprocessor> images_;  ///< on the CPU
    bool batches_ = false;                      ///< it takes more than one request at once
};

at::Tensor torch_file_model::view(const std::byte* memory, const tensor& one) const {
    const auto sizes = sizes_of(one, 1);
    return at::for_blob(const_cast<std::byte*>(memory), sizes)
        .options(options(one))
        .target_device(options(one).device())
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
        const std::span<tensor> open = batch[job].outputs;
        for (std::size_t i = 0; i < open.size(); ++i) std::ranges::copy(outputs[i].sizes(), open[i].shape);
        place_from_zero(open);
        const tensors_of_torch room =
            views(batch[job].output.data(), open.empty() ? std::span<const tensor>{shapes_.outputs} : open);
        for (std::size_t i = 0; i < room.size(); ++i) {
            const std::int64_t rows = room[i].dim() == 0 ? 0 : room[i].size(0);
            const bool whole = batch.size() == 1;
            room[i].copy_(whole ? outputs[i] : outputs[i].narrow(0, static_cast<std::int64_t>(job) * rows, rows), true);
        }
    }
}

std::vector<std::int64_t> torch_file_model::expected(std::size_t index, std::size_t batch, at::IntArrayRef seen) const {
    auto out = sizes_of(shapes_.outputs[index], batch);
    const std::size_t open = shapes_.open.empty() ? out.size() : shapes_.open[index];
    if (open < out.size() && seen.size() == out.size()) out[open] = std::min(out[open], seen[open]);
    return out;
}

void torch_file_model::check(const tensors_of_torch& outputs, std::size_t batch) const {
    TORCH_CHECK(outputs.size() == shapes_.outputs.size(), "it gives ", outputs.size(), " tensors, not ",
                shapes_.outputs.size());
    for (std::size_t i = 0; i < outputs.size(); ++i) {
        const auto wanted = expected(i, batch, outputs[i].sizes());
        TORCH_CHECK(outputs[i].sizes() == at::IntArrayRef(wanted), "its output ", i, " has the shape ",
                    outputs[i].sizes(), ", not ", at::IntArrayRef(wanted));
        const auto type = scalar_of(shapes_.outputs[i].type);
        TORCH_CHECK(type && outputs[i].scalar_type() == *type, "its output ", i, " is of ", outputs[i].scalar_type(),
                    ", which is not the type that is described");
    }
}

tensors_of_torch torch_file_model::run_on_zeros(std::size_t batch) {
    tensors_of_torch inputs;
    for (const tensor& each : shapes_.inputs) inputs.push_back(at::zeros(sizes_of(each, batch), options(each)));
    return network_->run(std::move(inputs));
}

void torch_file_model::on_stream(CUstream_st* stream, const std::function<void()>& work) {
    if (gpu_ != nullptr) return gpu_->on_stream(stream, work);
    const c10::InferenceMode mode;
    work();
}

void torch_file_model::on_own_stream(const std::function<void()>& work) {
    gpu_ == nullptr ? on_stream(nullptr, work) : gpu_->on_own_stream(work);
}

void torch_file_model::warm_up() {
    on_own_stream([this] {
        const int times = gpu_ == nullptr ? 1 : 3;
        for (int i = 0; i < times; ++i) check(run_on_zeros(1), 1);
    });
}

result<void> torch_file_model::try_out() {
    auto one = with_torch(status::invalid_argument, [&] { warm_up(); });
    if (!one) return error{one.error().code, 0, "it is not a " + shapes_.name + ": " + one.error().message};
    if (!shapes_.open.empty()) return {};  // nobody says which rows are whose
    const auto two = with_torch(status::unsupported, [&] { on_own_stream([this] { check(run_on_zeros(2), 2); }); });
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
    if (gpu_ != nullptr) return gpu_->preprocess(stream, shapes_, image, input);
    images_->run(image, input);
    return {};
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
        on_stream(stream, [&] {
            if (batches_) return run(batch);
            for (std::size_t i = 0; i < batch.size(); ++i) run(batch.subspan(i, 1));
        });
    });
}

gpu_graph::recorder torch_file_model::recorder() {
    if (gpu_ == nullptr) return {};
    // Handles and choices of algorithms are each thread's own, and cannot be made while it records.
    (void)with_torch(status::system_error, [&] { warm_up(); });
    return [this](CUstream_st* stream, const device::graph_iteration& iteration) {
        return gpu_->record(*this, stream, iteration);
    };
}

}  // namespace

result<std::unique_ptr<model>> load_torch_file(std::string_view name, const std::string& path, std::int16_t gpu) {
    const model_shapes* const shapes = find_model(name);
    if (shapes == nullptr)
        return error{status::invalid_argument, 0, "there is no model '" + std::string{name} + "' in the table"};
    std::unique_ptr<torch_gpu> place;
    if (gpu >= 0) {
        auto opened = torch_gpu::open(gpu);
        if (!opened) return opened.error();
        place = std::move(*opened);
    }
    auto network = read_torch_network(path, place.get());
    if (!network) return network.error();
    auto made = std::make_unique<torch_file_model>(*shapes, gpu, std::move(place), std::move(*network));
    if (auto tried = made->try_out(); !tried) return error{tried.error().code, 0, path + ": " + tried.error().message};
    return std::unique_ptr<model>{std::move(made)};
}

bool has_torch_files() noexcept {
    return true;
}

}  // namespace accel::examples::serving
