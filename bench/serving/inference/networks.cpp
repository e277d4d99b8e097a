// SPDX-License-Identifier: Apache-2.0
#include "networks.hpp"

#include "digits/digit_answer.hpp"
#include "digits/embedded.hpp"
#include "digits/frame.hpp"
#include "digits/gpu_network.hpp"
#include "digits/gpu_service.hpp"

#include <accel_transport/device/graph.hpp>

#include <utility>

namespace accel::bench {
namespace {

namespace digits = examples::digits;

class digits_network final : public network {
  public:
    digits_network(bool raw, digits::gpu_service service, digits::gpu_network recorded)
        : raw_(raw), service_(std::move(service)), recorded_(std::move(recorded)) {}
    [[nodiscard]] std::size_t input_bytes() const override { return raw_ ? digits::frame_bytes : digits::tensor_bytes; }
    [[nodiscard]] std::size_t output_bytes() const override { return sizeof(digits::digit_answer); }
    [[nodiscard]] handler on_host(bool replays) override {
        if (replays) return {};
        return [this](exchange request) { service_.serve(std::move(request)); };
    }
    [[nodiscard]] gpu_graph::recorder recorder() override {
        return [this](CUstream_st* stream, const device::graph_iteration& iteration) {
            if (!raw_) {
                recorded_.infer(stream, iteration.input, iteration.output);
                return result<void>{};
            }
            digits::gpu_scratch* const scratch = recorded_.scratch_for(stream);
            recorded_.preprocess(stream, iteration.input, scratch);
            recorded_.infer(stream, scratch, iteration.output);
            return result<void>{};
        };
    }

  private:
    bool raw_;
    digits::gpu_service service_;
    digits::gpu_network recorded_;
};

result<std::unique_ptr<network>> load_digits(const network_choice& choice) {
    if (choice.half) return error{status::invalid_argument, 0, "the digits network has single precision only"};
    const auto weights = digits::network::load(digits::embedded_weights());
    if (!weights.value) return error{status::invalid_argument, 0, std::string{describe(weights.error)}};
    auto service = digits::gpu_service::load(memory_kind::cuda(choice.gpu));
    if (!service) return service.error();
    auto recorded = digits::gpu_network::create(choice.gpu, *weights.value, 1);
    if (!recorded) return recorded.error();
    return std::unique_ptr<network>{
        std::make_unique<digits_network>(choice.name == "digits_raw", std::move(*service), std::move(*recorded))};
}

}  // namespace

result<std::unique_ptr<network>> load_network(const network_choice& choice) {
    const bool ours = choice.name == "digits" || choice.name == "digits_raw";
    return ours ? load_digits(choice) : load_torch_network(choice);
}

std::vector<std::string> network_names() {
    std::vector<std::string> all{"digits", "digits_raw"};
    if (has_torch()) all.insert(all.end(), {"resnet50", "mobilenet_v3"});
    return all;
}

}  // namespace accel::bench
