// SPDX-License-Identifier: Apache-2.0
#include "serving/models/digits_model.hpp"

#include "digits/embedded.hpp"
#include "digits/network.hpp"
#include "digits/preprocess.hpp"

#include <array>
#include <cstring>
#include <string>

namespace accel::examples::serving {
namespace {

result<void> outcome_of(digits::failure why) {
    if (why == digits::failure::none) return {};
    return error{status::invalid_argument, 0, std::string{digits::describe(why)}};
}

class digits_model final : public model {
  public:
    explicit digits_model(const digits::network& network) : network_(network) {}

    const model_shapes& shapes() const noexcept override { return *find_model("digits"); }
    memory_kind memory() const noexcept override { return memory_kind::host(); }
    std::size_t max_batch() const noexcept override { return 1024; }

    result<void> preprocess(CUstream_st*, std::span<const std::byte> image, std::span<std::byte> input) override {
        std::array<float, digits::tensor_values> tensor{};
        const digits::failure why = digits::preprocess(image, tensor);
        if (why == digits::failure::none) std::memcpy(input.data(), tensor.data(), sizeof tensor);
        return outcome_of(why);
    }

    result<void> infer(CUstream_st*, std::span<const model_job> batch) override {
        for (const model_job& each : batch)
            if (auto done = outcome_of(infer_one(each)); !done) return done;
        return {};
    }

  private:
    digits::failure infer_one(const model_job& job) const noexcept {
        std::array<float, digits::tensor_values> tensor{};
        std::array<float, digits::class_count> scores{};
        std::memcpy(tensor.data(), job.input.data(), sizeof tensor);
        const digits::failure why = network_.classify(tensor, scores);
        if (why == digits::failure::none) std::memcpy(job.output.data(), scores.data(), sizeof scores);
        return why;
    }

    digits::network network_;
};

}  // namespace

result<std::unique_ptr<model>> make_digits() {
    const auto loaded = digits::network::load(digits::embedded_weights());
    if (!loaded.value) return outcome_of(loaded.error).error();
    return std::unique_ptr<model>{std::make_unique<digits_model>(*loaded.value)};
}

}  // namespace accel::examples::serving
