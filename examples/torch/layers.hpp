// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>

namespace accel::examples::vision {

enum class activation : std::uint8_t { none, relu, hardswish };

struct conv_shape {
    std::int64_t in = 0, out = 0, kernel = 1, stride = 1, groups = 1;
    activation then = activation::relu;
};

/// Convolution without bias, batch normalisation, activation. Keeps the size, but for the stride.
class conv_norm : public torch::nn::Module {
  public:
    explicit conv_norm(const conv_shape& shape, double epsilon = 1e-5);
    [[nodiscard]] at::Tensor forward(const at::Tensor& image);

  private:
    torch::nn::Conv2d conv_;
    torch::nn::BatchNorm2d norm_;
    activation then_;
};

/// Random weights under which logits depend on the image, and stay within half precision.
void initialise(torch::nn::Conv2d& conv);

}  // namespace accel::examples::vision
