// SPDX-License-Identifier: Apache-2.0
#include "digits/embedded.hpp"
#include "digits/frame.hpp"
#include "digits/gpu_network.hpp"
#include "serving/models/digits_kernel.hpp"
#include "serving/models/gpu_memory.hpp"
#include "serving/models/gpu_models.hpp"
#include "serving/models/recordings.hpp"

#include <string>
#include <utility>

namespace accel::examples::serving {
namespace {

/// Checks lengths, because kernels do not.
result<void> check_digits(bool good) {
    if (good) return {};
    return error{status::invalid_argument, 0, "a payload does not have the length that the digits network needs"};
}

class digits_gpu_model final : public model {
  public:
    digits_gpu_model(std::int16_t gpu, digits::gpu_network network) : gpu_(gpu), network_(std::move(network)) {}

    const model_shapes& shapes() const noexcept override { return *find_model("digits"); }
    memory_kind memory() const noexcept override { return memory_kind::cuda(gpu_); }
    std::size_t max_batch() const noexcept override { return 1024; }

    result<void> preprocess(CUstream_st* stream, std::span<const std::byte> image,
                            std::span<std::byte> input) override {
        if (auto right = check_digits(image.size() == digits::frame_bytes && input.size() >= digits::tensor_bytes);
            !right)
            return right;
        digits::gpu_scratch* const scratch = network_.scratch_for(stream);
        if (scratch == nullptr)
            return error{status::overloaded, 0,
                         "there are more streams than the digits network has scratch memory for"};
        network_.preprocess(stream, image.data(), scratch);
        return cuda_result("a frame cannot be preprocessed", launch_digits_tensor(stream, scratch, input.data()));
    }

    result<void> infer(CUstream_st* stream, std::span<const model_job> batch) override {
        for (const model_job& each : batch) {
            const bool right =
                each.input.size() >= digits::tensor_bytes && each.output.size() >= sizeof(float) * digits::class_count;
            if (auto checked = check_digits(right); !checked) return checked;
            network_.infer(stream, each.input.data(), each.output.data(), digits::answer_form::scores);
        }
        return launched("the digits network cannot be launched");
    }

    gpu_graph::recorder recorder() override {
        return [this](CUstream_st* stream, const device::graph_iteration& iteration) {
            return recordings_.record(*this, stream, iteration);
        };
    }

  private:
    std::int16_t gpu_;
    digits::gpu_network network_;
    recordings recordings_;
};

}  // namespace

result<std::unique_ptr<model>> load_digits_gpu(std::int16_t gpu) {
    const auto loaded = digits::network::load(digits::embedded_weights());
    if (!loaded.value) return error{status::invalid_argument, 0, std::string{digits::describe(loaded.error)}};
    auto network = digits::gpu_network::create(gpu, *loaded.value, gpu_model_streams);
    if (!network) return network.error();
    if (auto ready = cuda_result("the digits kernel cannot be loaded", load_digits_kernel()); !ready)
        return ready.error();
    return std::unique_ptr<model>{std::make_unique<digits_gpu_model>(gpu, std::move(*network))};
}

}  // namespace accel::examples::serving
