// SPDX-License-Identifier: Apache-2.0
#include "torch/image_model.hpp"
#include "torch/layers.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include <ATen/ops/hardsigmoid.h>
#include <ATen/ops/hardswish.h>
#include <torch/nn/modules/linear.h>

namespace accel::examples::vision {
namespace {

constexpr double epsilon = 1e-3;

struct row {
    std::int64_t in, kernel, inner, out;
    bool squeezes;
    activation then;
    std::int64_t stride;
};

constexpr auto re = activation::relu;
constexpr auto hs = activation::hardswish;
constexpr std::array<row, 15> rows{{{16, 3, 16, 16, false, re, 1},
                                    {16, 3, 64, 24, false, re, 2},
                                    {24, 3, 72, 24, false, re, 1},
                                    {24, 5, 72, 40, true, re, 2},
                                    {40, 5, 120, 40, true, re, 1},
                                    {40, 5, 120, 40, true, re, 1},
                                    {40, 3, 240, 80, false, hs, 2},
                                    {80, 3, 200, 80, false, hs, 1},
                                    {80, 3, 184, 80, false, hs, 1},
                                    {80, 3, 184, 80, false, hs, 1},
                                    {80, 3, 480, 112, true, hs, 1},
                                    {112, 3, 672, 112, true, hs, 1},
                                    {112, 5, 672, 160, true, hs, 2},
                                    {160, 5, 960, 160, true, hs, 1},
                                    {160, 5, 960, 160, true, hs, 1}}};

/// A multiple of eight near a quarter, never less than nine tenths of it.
std::int64_t squeezed(std::int64_t channels) {
    const std::int64_t quarter = channels / 4;
    const std::int64_t rounded = std::max<std::int64_t>(8, (quarter + 4) / 8 * 8);
    return rounded * 10 < quarter * 9 ? rounded + 8 : rounded;
}

/// Scales each channel by what the means of all say.
class squeeze_excite : public torch::nn::Module {
  public:
    explicit squeeze_excite(std::int64_t channels)
        : narrow_(
              register_module("narrow", torch::nn::Conv2d(torch::nn::Conv2dOptions(channels, squeezed(channels), 1)))),
          widen_(
              register_module("widen", torch::nn::Conv2d(torch::nn::Conv2dOptions(squeezed(channels), channels, 1)))) {
        initialise(narrow_);
        initialise(widen_);
    }
    [[nodiscard]] at::Tensor forward(const at::Tensor& image) {
        at::Tensor means = narrow_->forward(image.mean({2, 3}, true)).relu_();
        return image * at::hardsigmoid(widen_->forward(means));
    }

  private:
    torch::nn::Conv2d narrow_, widen_;
};

class inverted_residual : public torch::nn::Module {
  public:
    explicit inverted_residual(const row& is) : past_(is.stride == 1 && is.in == is.out) {
        if (is.inner != is.in) widen_ = add("widen", {.in = is.in, .out = is.inner, .then = is.then});
        each_ = add("each", {.in = is.inner,
                             .out = is.inner,
                             .kernel = is.kernel,
                             .stride = is.stride,
                             .groups = is.inner,
                             .then = is.then});
        if (is.squeezes) squeeze_ = register_module("squeeze", std::make_shared<squeeze_excite>(is.inner));
        narrow_ = add("narrow", {.in = is.inner, .out = is.out, .then = activation::none});
    }
    [[nodiscard]] at::Tensor forward(const at::Tensor& image) {
        at::Tensor out = each_->forward(widen_ ? widen_->forward(image) : image);
        if (squeeze_) out = squeeze_->forward(out);
        out = narrow_->forward(out);
        return past_ ? out.add_(image) : out;
    }

  private:
    std::shared_ptr<conv_norm> add(const char* name, const conv_shape& shape) {
        return register_module(name, std::make_shared<conv_norm>(shape, epsilon));
    }

    bool past_;
    std::shared_ptr<conv_norm> widen_, each_, narrow_;
    std::shared_ptr<squeeze_excite> squeeze_;
};

class mobilenet_v3 final : public image_model {
  public:
    mobilenet_v3()
        : first_(add("first", {.in = 3, .out = 16, .kernel = 3, .stride = 2, .then = hs})),
          last_(add("last", {.in = 160, .out = 960, .then = hs})),
          hidden_(register_module("hidden", torch::nn::Linear(960, 1280))),
          classes_(register_module("classes", torch::nn::Linear(1280, 1000))) {
        for (const row& each : rows) {
            blocks_.push_back(
                register_module("block" + std::to_string(blocks_.size()), std::make_shared<inverted_residual>(each)));
        }
    }
    [[nodiscard]] at::Tensor forward(const at::Tensor& image) override {
        at::Tensor out = first_->forward(image);
        for (const auto& each : blocks_) out = each->forward(out);
        out = hidden_->forward(last_->forward(out).mean({2, 3}));
        return classes_->forward(at::hardswish_(out));
    }

  private:
    std::shared_ptr<conv_norm> add(const char* name, const conv_shape& shape) {
        return register_module(name, std::make_shared<conv_norm>(shape, epsilon));
    }

    std::shared_ptr<conv_norm> first_, last_;
    torch::nn::Linear hidden_, classes_;
    std::vector<std::shared_ptr<inverted_residual>> blocks_;
};

}  // namespace

std::shared_ptr<image_model> make_mobilenet_v3() {
    return std::make_shared<mobilenet_v3>();
}

}  // namespace accel::examples::vision
