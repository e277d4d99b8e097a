// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include <torch/nn/module.h>

namespace accel::examples::vision {

/// A network that classifies: 1x3x224x224 to 1x1000 logits. Its weights are random, by torch's generator.
class image_model : public torch::nn::Module {
  public:
    [[nodiscard]] virtual at::Tensor forward(const at::Tensor& image) = 0;
};

[[nodiscard]] std::shared_ptr<image_model> make_resnet50();
/// The large one.
[[nodiscard]] std::shared_ptr<image_model> make_mobilenet_v3();

}  // namespace accel::examples::vision
