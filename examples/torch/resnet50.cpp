// SPDX-License-Identifier: Apache-2.0
#include "torch/image_model.hpp"
#include "torch/layers.hpp"

#include <string>
#include <vector>

#include <ATen/ops/max_pool2d.h>
#include <torch/nn/modules/linear.h>

namespace accel::examples::vision {
namespace {

constexpr std::int64_t expansion = 4;

/// 1x1, 3x3, 1x1, and the way past them.
class bottleneck : public torch::nn::Module {
  public:
    bottleneck(std::int64_t in, std::int64_t width, std::int64_t stride)
        : first_(register_module("first", std::make_shared<conv_norm>(conv_shape{.in = in, .out = width}))),
          second_(register_module("second", std::make_shared<conv_norm>(
                                                conv_shape{.in = width, .out = width, .kernel = 3, .stride = stride}))),
          third_(register_module("third", std::make_shared<conv_norm>(conv_shape{
                                              .in = width, .out = width * expansion, .then = activation::none}))) {
        if (stride == 1 && in == width * expansion) return;
        past_ = register_module(
            "past", std::make_shared<conv_norm>(
                        conv_shape{.in = in, .out = width * expansion, .stride = stride, .then = activation::none}));
    }
    [[nodiscard]] at::Tensor forward(const at::Tensor& image) {
        at::Tensor out = third_->forward(second_->forward(first_->forward(image)));
        return out.add_(past_ ? past_->forward(image) : image).relu_();
    }

  private:
    std::shared_ptr<conv_norm> first_, second_, third_, past_;
};

class resnet50 final : public image_model {
  public:
    resnet50()
        : first_(register_module(
              "first", std::make_shared<conv_norm>(conv_shape{.in = 3, .out = 64, .kernel = 7, .stride = 2}))),
          classes_(register_module("classes", torch::nn::Linear(512 * expansion, 1000))) {
        add(64, 3, 1);
        add(128, 4, 2);
        add(256, 6, 2);
        add(512, 3, 2);
    }
    [[nodiscard]] at::Tensor forward(const at::Tensor& image) override {
        at::Tensor out = at::max_pool2d(first_->forward(image), {3, 3}, {2, 2}, {1, 1});
        for (const auto& each : blocks_) out = each->forward(out);
        return classes_->forward(out.mean({2, 3}));
    }

  private:
    void add(std::int64_t width, int count, std::int64_t stride) {
        for (int i = 0; i < count; ++i) {
            blocks_.push_back(register_module("block" + std::to_string(blocks_.size()),
                                              std::make_shared<bottleneck>(channels_, width, i == 0 ? stride : 1)));
            channels_ = width * expansion;
        }
    }

    std::int64_t channels_ = 64;
    std::shared_ptr<conv_norm> first_;
    std::vector<std::shared_ptr<bottleneck>> blocks_;
    torch::nn::Linear classes_;
};

}  // namespace

std::shared_ptr<image_model> make_resnet50() {
    return std::make_shared<resnet50>();
}

}  // namespace accel::examples::vision
