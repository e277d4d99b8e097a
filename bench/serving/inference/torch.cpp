// SPDX-License-Identifier: Apache-2.0
#include "networks.hpp"
#include "torch/torch_service.hpp"

#include <utility>

namespace accel::bench {
namespace {

namespace vision = examples::vision;

class torch_network final : public network {
  public:
    explicit torch_network(vision::torch_model model) : model_(std::move(model)) {}
    [[nodiscard]] std::size_t input_bytes() const override { return model_.input_bytes(); }
    [[nodiscard]] std::size_t output_bytes() const override { return model_.output_bytes(); }
    [[nodiscard]] handler on_host(bool replays) override { return vision::handler_of(model_, replays); }
    [[nodiscard]] gpu_graph::recorder recorder() override { return vision::recorder_of(model_); }

  private:
    vision::torch_model model_;
};

}  // namespace

bool has_torch() noexcept {
    return true;
}

result<std::unique_ptr<network>> load_torch_network(const network_choice& choice) {
    auto model = vision::torch_model::create({choice.name, choice.half, choice.gpu});
    if (!model) return model.error();
    return std::unique_ptr<network>{std::make_unique<torch_network>(std::move(*model))};
}

}  // namespace accel::bench
