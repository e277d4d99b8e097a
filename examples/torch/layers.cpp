// SPDX-License-Identifier: Apache-2.0
#include "torch/layers.hpp"

#include <ATen/ops/hardswish.h>
#include <ATen/ops/relu.h>
#include <torch/nn/init.h>

namespace accel::examples::vision {

void initialise(torch::nn::Conv2d& conv) {
    torch::nn::init::kaiming_normal_(conv->weight, 0, torch::kFanIn, torch::kReLU);
    if (conv->bias.defined()) torch::nn::init::zeros_(conv->bias);
}

conv_norm::conv_norm(const conv_shape& shape, double epsilon)
    : conv_(torch::nn::Conv2dOptions(shape.in, shape.out, shape.kernel)
                .stride(shape.stride)
                .padding((shape.kernel - 1) / 2)
                .groups(shape.groups)
                .bias(false)),
      norm_(torch::nn::BatchNorm2dOptions(shape.out).eps(epsilon)),
      then_(shape.then) {
    register_module("conv", conv_);
    register_module("norm", norm_);
    initialise(conv_);
}

at::Tensor conv_norm::forward(const at::Tensor& image) {
    at::Tensor out = norm_->forward(conv_->forward(image));
    if (then_ == activation::relu) at::relu_(out);
    if (then_ == activation::hardswish) at::hardswish_(out);
    return out;
}

}  // namespace accel::examples::vision
